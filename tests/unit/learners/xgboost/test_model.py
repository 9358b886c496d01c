from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xgboost

from dray.data.features import Column
from dray.errors import ModelError
from dray.learners.xgboost.matrix import safe_names
from dray.learners.xgboost.model import Model
from dray.learners.xgboost.ubjson import is_whole
from dray.learners.xgboost.unknown import rewritten

FEATURES = (Column("size [cm]", "number"), Column("a<b", "boolean"), Column("Größe", "category", ("x", "y", "z")))


def rows(count: int = 200, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    random = np.random.default_rng(seed)
    columns = [random.normal(size=count), random.integers(0, 2, count), random.integers(0, 3, count)]
    matrix = np.stack(columns, axis=1).astype(np.float32)
    matrix[::7, 0] = np.nan
    return matrix


def trained(objective: str = "binary:logistic", label: Column | None = None, rounds: int = 4, **params: Any) -> Model:
    matrix = rows()
    signal = np.nan_to_num(matrix[:, 0]) + matrix[:, 1] + (matrix[:, 2] == 1)
    classes = np.digitize(signal, [0.3, 1.2])
    target = classes if objective.startswith("multi:") else signal > 0.8
    types = ["q", "q", "c"]
    data = xgboost.DMatrix(
        matrix, target, feature_names=safe_names(FEATURES), feature_types=types, enable_categorical=True
    )
    many = {"num_class": 3} if objective.startswith("multi:") else {}
    booster = xgboost.train({"objective": objective, "max_depth": 3, "nthread": 1} | many | params, data, rounds)
    return Model(booster, FEATURES, label or Column("y", "number"), objective)


def again(model: Model) -> Model:
    return Model.from_bytes(model.to_bytes(), "model.ubj")


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror"])
def test_a_model_survives_its_bytes(objective: str) -> None:
    model = trained(objective, Column("y", "category", ("no", "yes")))
    loaded = again(model)
    assert (loaded.features, loaded.label, loaded.objective) == (FEATURES, model.label, objective)
    assert loaded.digest() == model.digest()
    for output in ("probability", "margin", "class"):
        assert np.array_equal(loaded.predict(rows(50, 1), output), model.predict(rows(50, 1), output))


def test_names_that_xgboost_refuses_are_kept_with_the_model() -> None:
    assert [feature.name for feature in again(trained()).features] == ["size [cm]", "a<b", "Größe"]


def test_any_xgboost_can_read_the_bytes() -> None:
    model = trained()
    booster = xgboost.Booster(model_file=bytearray(model.to_bytes()))
    values = booster.inplace_predict(rows(20), validate_features=False)
    assert np.array_equal(values, model.predict(rows(20), "probability"))


def test_names_that_would_collide_are_numbered() -> None:
    assert safe_names([Column("a[", "number"), Column("a]", "number")]) == ["f0", "f1"]
    assert safe_names([Column("a[0]", "number"), Column("b", "number")]) == ["a_0_", "b"]


@pytest.mark.parametrize("content", [b"", b"{", b"not a model", b"{}", b"PAR1" * 10])
def test_bytes_that_are_no_model_are_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"old/model\.ubj is not an XGBoost model"):
        Model.from_bytes(content, "old/model.ubj")


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_a_model_that_was_cut_off_is_refused_wherever_it_was_cut(booster: str) -> None:
    """XGBoost itself would end the process."""
    content = trained(rounds=2, booster=booster).to_bytes()
    assert is_whole(content)
    for length in [*range(0, len(content), 41), len(content) - 1]:
        with pytest.raises(ModelError, match="is not an XGBoost model"):
            Model.from_bytes(content[:length], "cut.ubj")


@pytest.mark.parametrize("content", [b"[#L\xff\xff\xff\xff\xff\xff\xff\xff", b"{L" + b"\xff" * 50, b"[" * 5000, b"?"])
def test_nonsense_is_no_whole_document(content: bytes) -> None:
    assert not is_whole(content)


def test_a_model_that_was_saved_as_json_text_can_be_read() -> None:
    model = again(trained())
    text = bytes(model.booster.save_raw("json"))
    assert Model.from_bytes(rewritten(text, "model.json"), "model.json").digest() == model.digest()


def test_a_model_of_xgboost_alone_does_not_say_what_its_columns_mean() -> None:
    with pytest.raises(ModelError, match="was not trained by dray"):
        Model.from_bytes(bytes(trained().booster.save_raw("ubj")), "plain.ubj")


def test_the_digest_does_not_depend_on_attributes_names_or_threads() -> None:
    model = trained()
    digest = model.digest()
    model.booster.set_attr(note="anything", best_iteration="2")
    model.booster.feature_names = ["u", "v", "w"]
    model.use_threads(2)
    assert model.digest() == digest
    assert len(digest) == 64


@pytest.mark.parametrize("params", [{}, {"booster": "dart", "rate_drop": 0.5}])
def test_the_digest_is_the_same_for_the_same_training_and_no_other(params: dict[str, Any]) -> None:
    digest = trained(**params).digest()
    assert trained(**params).digest() == digest
    assert trained(rounds=5, **params).digest() != digest
    assert trained(eta=0.31, **params).digest() != digest
    assert trained(base_score=0.4, **params).digest() != digest


def test_one_changed_leaf_changes_the_digest() -> None:
    model = trained()
    document = json.loads(model.booster.save_raw("json"))
    tree = document["learner"]["gradient_booster"]["model"]["trees"][-1]
    leaf = tree["left_children"].index(-1)
    before = tree["split_conditions"][leaf]
    tree["split_conditions"][leaf] = float(np.nextafter(np.float32(before), np.float32(9)))
    changed = xgboost.Booster(model_file=bytearray(json.dumps(document).encode()))
    assert Model(changed, FEATURES, model.label, model.objective).digest() != model.digest()


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror", "multi:softprob"])
def test_contributions_add_up_to_the_margin(objective: str) -> None:
    model = again(trained(objective))
    shap = model.contributions(rows(60, 2))
    assert shap.shape[-1] == len(FEATURES) + 1
    np.testing.assert_allclose(shap.sum(axis=-1), model.predict(rows(60, 2), "margin"), rtol=1e-4, atol=1e-5)


def test_probabilities_margins_and_classes_of_a_binary_model_agree() -> None:
    model = trained()
    margin, probability = model.predict(rows(), "margin"), model.predict(rows(), "probability")
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-margin)), rtol=1e-5)
    assert np.array_equal(model.predict(rows(), "class"), probability > 0.5)
    assert set(np.unique(model.predict(rows(), "class"))) == {0, 1}


def test_probabilities_and_classes_of_a_multi_class_model_agree() -> None:
    model = trained("multi:softprob")
    probability = model.predict(rows(), "probability")
    assert probability.shape == (200, 3)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(model.predict(rows(), "class"), probability.argmax(axis=1))
    assert np.array_equal(model.predict(rows(), "class"), trained("multi:softmax").predict(rows(), "class"))


@pytest.mark.parametrize("objective", ["binary:logitraw", "binary:hinge"])
def test_classes_are_0_and_1_for_every_binary_objective(objective: str) -> None:
    model = trained(objective)
    assert np.array_equal(model.predict(rows(), "class"), model.predict(rows(), "margin") > 0)


def test_a_regression_answers_with_its_value_when_asked_for_a_class() -> None:
    model = trained("reg:squarederror")
    assert np.array_equal(model.predict(rows(), "class"), model.predict(rows(), "probability"))


def test_only_named_classes_have_names() -> None:
    assert trained(label=Column("y", "category", ("no", "yes"))).class_names() == ("no", "yes")
    assert trained(label=Column("y", "boolean")).class_names() == ("false", "true")
