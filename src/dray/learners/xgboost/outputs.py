"""What a model predicts: one number a row, one a class or one a quantile; and what a run that goes on from it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost

from dray.errors import ConfigError
from dray.learners.xgboost.metrics import quantiles_of
from dray.learners.xgboost.params import class_count

_OF_METRICS = ("tweedie_variance_power", "huber_slope", "ndcg_exp_gain")
"""The objective's parameters that its metric needs too. XGBoost keeps all of them with the model."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The numbers that a model predicts for a row."""

    classes: int = 0
    """Of a multi-class model."""
    quantiles: tuple[float, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """What the objective's metric needs, as XGBoost writes it."""

    @staticmethod
    def of(booster: xgboost.Booster) -> Outputs:
        learner = json.loads(booster.save_config())["learner"]
        kept = {
            name: value
            for group in learner["objective"].values()
            if isinstance(group, dict)
            for name, value in group.items()
        }
        several = json.loads(kept.get("quantile_alpha", "[]"))
        return Outputs(
            int(learner["learner_model_param"]["num_class"]),
            tuple(float(_shortest(str(alpha))) for alpha in several),
            tuple((name, _shortest(kept[name])) for name in _OF_METRICS if name in kept),
        )


def _shortest(number: str) -> str:
    """A number as it was given: XGBoost writes the 1.2 that it keeps as float32 with nine digits."""
    return number if number in ("0", "1") else str(np.float32(number))


def going_on(params: Mapping[str, Any], booster: xgboost.Booster) -> dict[str, Any]:
    """Return the parameters of a run that goes on: what a prediction consists of stays as it was."""
    earlier = Outputs.of(booster)
    if params.get("base_score") is not None:
        raise ConfigError(
            "base_score cannot change in a run that goes on: the earlier trees were grown from theirs.",
            fix="Leave base_score out.",
        )
    kind = json.loads(booster.save_config())["learner"]["gradient_booster"]["name"]
    if params.get("booster", kind) != kind:
        raise ConfigError(
            f"The earlier run has the booster {kind}, not {params['booster']}.", fix="Leave booster out, or train anew."
        )
    kept = (
        {"booster": kind}
        | dict(earlier.settings)
        | {name: value for name, value in params.items() if value is not None}
    )
    if earlier.classes:
        if class_count(params) not in (0, earlier.classes):
            raise ConfigError(
                f"num_class is {params['num_class']}, and the earlier run has {earlier.classes} classes.",
                fix="Leave num_class out.",
            )
        kept["num_class"] = earlier.classes
    if earlier.quantiles:
        asked = [float(_shortest(str(alpha))) for alpha in quantiles_of(params)]
        if asked not in ([], list(earlier.quantiles)):
            raise ConfigError(
                f"quantile_alpha is {asked}, and the earlier run has {list(earlier.quantiles)}.",
                fix="Leave quantile_alpha out.",
            )
        kept["quantile_alpha"] = list(earlier.quantiles)
    has_vectors = has_vector_leaves(booster)
    strategy = "multi_output_tree" if has_vectors else "one_output_per_tree"
    if kept.get("multi_strategy", strategy) != strategy:
        raise ConfigError(
            f"multi_strategy is {kept['multi_strategy']}, and the earlier run has {strategy}.",
            fix="Leave multi_strategy out.",
        )
    if has_vectors:
        kept["multi_strategy"] = strategy
    return kept


def has_vector_leaves(booster: xgboost.Booster) -> bool:
    """Say whether each tree predicts all numbers of a row at once (multi_strategy=multi_output_tree)."""
    if not booster.num_boosted_rounds():
        return False
    model = json.loads(booster[:1].save_raw("json"))["learner"]["gradient_booster"]
    trees = model.get("gbtree", model)["model"]["trees"]
    return int(trees[0]["tree_param"]["size_leaf_vector"]) > 1
