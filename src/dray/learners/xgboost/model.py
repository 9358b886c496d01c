"""A trained XGBoost model with the meaning of its columns: saved, loaded, identified, asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xgboost

from dray.data.features import Column
from dray.errors import ModelError
from dray.learners.classes import positive_class, type_of, value_of
from dray.learners.predictor import PredictionType
from dray.learners.xgboost.categories import with_categories
from dray.learners.xgboost.ubjson import is_whole

_ATTRIBUTE = "dray"
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Model:
    """What `model.ubj` holds: trees, and how columns become the numbers that the trees were grown on."""

    booster: xgboost.Booster
    features: tuple[Column, ...]
    label: Column
    objective: str

    def to_bytes(self) -> bytes:
        """UBJSON, with everything needed to predict; any XGBoost can read it."""
        self.booster.set_attr(
            **{
                _ATTRIBUTE: json.dumps(
                    {
                        "features": [feature.to_json() for feature in self.features],
                        "label": self.label.to_json(),
                        "objective": self.objective,
                    }
                )
            }
        )
        return with_categories(bytes(self.booster.save_raw("ubj")), self.features)

    @staticmethod
    def from_bytes(content: bytes, origin: str) -> Model:
        """Return what `to_bytes` wrote. XGBoost believes every byte: see `xgboost_unknown` for a file of elsewhere."""
        booster = xgboost.Booster()
        try:
            if not is_whole(content):  # XGBoost ends the process when a document is empty or was cut off
                raise ValueError("not a whole document")
            booster.load_model(bytearray(content))
        except (ValueError, xgboost.core.XGBoostError):
            raise ModelError(
                f"{origin} is not an XGBoost model.", fix="Name a run directory or its model.ubj."
            ) from None
        text = booster.attr(_ATTRIBUTE)
        if text is None:
            raise ModelError(
                f"{origin} was not trained by dray: it does not say what its columns mean.",
                fix="Train with dray train, or use xgboost to predict.",
            )
        try:
            document = json.loads(text)
            features = tuple(Column.from_json(feature) for feature in document["features"])
            label, objective = Column.from_json(document["label"]), str(document["objective"])
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise ModelError(
                f"{origin} is damaged: what it says of its columns cannot be read ({error}).",
                fix="Put the file back if there is a copy, or train again.",
            ) from error
        if len(features) != booster.num_features():
            raise ModelError(
                f"{origin} is damaged: it names {len(features)} columns and has trees of {booster.num_features()}.",
                fix="Put the file back if there is a copy, or train again.",
            )
        return Model(booster, features, label, objective)

    def digest(self) -> str:
        """sha256 of a canonical dump of the trees: equal models, equal digest, wherever they were trained."""
        learner = json.loads(self.booster.save_raw("json"))["learner"]
        booster = learner["gradient_booster"]
        model = _trees_of(booster)
        canonical = {
            "trees": model["trees"],
            "tree_info": model["tree_info"],
            "weights": booster.get("weight_drop", []),
            "base_score": learner["learner_model_param"]["base_score"],
            "objective": learner["objective"]["name"],
        }
        return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()

    @property
    def is_classifier(self) -> bool:
        return self.objective.startswith(("binary:", "multi:"))

    def class_names(self) -> Sequence[str] | None:
        """The classes where they have names; those of other labels are 0, 1, 2, ..."""
        if self.label.kind == "boolean":
            return ("false", "true")
        return self.label.categories if self.label.kind == "category" else None

    @property
    def classes(self) -> pa.Array | None:
        """The label's own values by their codes; None where the codes are the values."""
        if self.label.kind == "boolean":
            return pa.array([False, True])
        if self.label.kind != "category":
            return None
        return pa.array([value_of(self.label, name) for name in self.label.categories], type_of(self.label))

    @property
    def positive_class(self) -> str | int | float | bool | None:
        """Of two classes, the one whose probability is predicted."""
        return positive_class(self.label, self.objective)

    def predict(self, matrix: npt.NDArray[np.float32], output: PredictionType) -> npt.NDArray[Any]:
        """Return a vector, or a column a class for a multi-class model's probabilities and margins."""
        if output == "margin":
            return self._ask(matrix, "margin")
        values = self._ask(matrix, "value")
        return self._classes(values) if output == "class" and self.is_classifier else values

    def use_threads(self, threads: int) -> None:
        self.booster.set_param({"nthread": threads})

    def contributions(self, matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """SHAP values of every feature, the bias last; rows x (features + 1), or rows x classes x (features + 1)."""
        values: npt.NDArray[np.float32] = self.booster.predict(self._rows(matrix), pred_contribs=True)
        return values

    def _ask(self, matrix: npt.NDArray[np.float32], kind: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any]
        if self._weighs_trees:  # in place XGBoost adds them in another order, and the last bits differ from training's
            values = self.booster.predict(self._rows(matrix), output_margin=kind == "margin")
        else:
            values = self.booster.inplace_predict(matrix, predict_type=kind, validate_features=False)
        return values

    def _rows(self, matrix: npt.NDArray[np.float32]) -> xgboost.DMatrix:
        types = ["c" if feature.kind == "category" else "q" for feature in self.features]
        names = self.booster.feature_names
        return xgboost.DMatrix(matrix, feature_names=names, feature_types=types, enable_categorical=True)

    @cached_property
    def _weighs_trees(self) -> bool:
        return bool(json.loads(self.booster.save_config())["learner"]["gradient_booster"]["name"] == "dart")

    def _classes(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if values.ndim == 2:
            classes: npt.NDArray[Any] = values.argmax(axis=1)
        elif self.objective == "multi:softmax":
            classes = values
        else:
            classes = values > (0 if self.objective == "binary:logitraw" else 0.5)
        return classes.astype(np.int32)


def _trees_of(gradient_booster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a saved model that holds the trees; dart wraps it once more, to weigh them."""
    trees: Mapping[str, Any] = gradient_booster.get("gbtree", gradient_booster)["model"]
    return trees


def splits_of(content: bytes) -> list[Floats]:
    """Return, for each feature of a saved model, the numbers that its trees compare it with; none for a category."""
    booster = xgboost.Booster(model_file=bytearray(content))
    found: list[list[Floats]] = [[] for _ in range(booster.num_features())]
    for tree in _trees_of(json.loads(booster.save_raw("json"))["learner"]["gradient_booster"])["trees"]:
        features, values = np.array(tree["split_indices"]), np.array(tree["split_conditions"], np.float32)
        compares = (np.array(tree["left_children"]) >= 0) & (np.array(tree["split_type"]) == 0)
        for feature in np.unique(features[compares]):
            found[feature].append(values[compares & (features == feature)])
    return [np.unique(np.concatenate(values)) if values else np.empty(0, np.float32) for values in found]
