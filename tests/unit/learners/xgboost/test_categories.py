"""Category names in the model, against what XGBoost itself writes and reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xgboost

from dray.data.features import Column
from dray.learners.xgboost.categories import with_categories, without_categories
from dray.learners.xgboost.ubjson import span_of

COLOURS = ("red", "", "Zebra", "zoo", "é", "éa", "blue", "日本")
SIZES = ("30", "-1", "2")
FEATURES = (Column("colour", "category", COLOURS), Column("x", "number"), Column("size", "category", SIZES, "int64"))
CODES = np.array([[i % 8, i % 5, i % 3] for i in range(240)], np.float32)
LABEL = ((CODES[:, 0] * 3 + CODES[:, 2]) % 2 == 0).astype(np.float32)
PARAMS: dict[str, Any] = {"max_depth": 4, "objective": "binary:logistic", "max_cat_to_onehot": 2}


def on_codes(booster: str = "gbtree") -> xgboost.Booster:
    types = ["c", "q", "c"]
    rows = xgboost.QuantileDMatrix(CODES, LABEL, feature_types=types, feature_names=["colour", "x", "size"])
    return xgboost.train(PARAMS | {"booster": booster}, rows, 5)


def named(booster: str = "gbtree") -> xgboost.Booster:
    content = with_categories(bytes(on_codes(booster).save_raw("ubj")), FEATURES)
    return xgboost.Booster(model_file=bytearray(content))


def frame(colours: tuple[str, ...] = COLOURS, sizes: tuple[int, ...] = (30, -1, 2)) -> pd.DataFrame:
    """The rows as a data frame, with the categories in some order; those that are not named are missing."""
    return pd.DataFrame(
        {
            "colour": pd.Categorical(
                [name if (name := COLOURS[int(code)]) in colours else None for code in CODES[:, 0]],
                categories=list(colours),
            ),
            "x": CODES[:, 1],
            "size": pd.Categorical([int(SIZES[int(code)]) for code in CODES[:, 2]], categories=list(sizes)),
        }
    )


def categories_in(model: xgboost.Booster) -> Any:
    booster = json.loads(model.save_raw("json"))["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]["cats"]


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_the_names_are_written_as_xgboost_writes_those_of_a_table(booster: str) -> None:
    table = pa.table(
        {
            "colour": pa.DictionaryArray.from_arrays(pa.array(CODES[:, 0], pa.int32()), pa.array(COLOURS)),
            "x": CODES[:, 1],
        }
    )
    rows = xgboost.QuantileDMatrix(table, label=LABEL, enable_categorical=True)
    native = xgboost.train(PARAMS | {"booster": booster}, rows, 2)
    content = bytes(native.save_raw("ubj"))
    assert with_categories(without_categories(content), FEATURES[:2]) == content
    assert categories_in(native)["enc"][0]["values"]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "int64"])
def test_whole_numbers_are_written_as_xgboost_writes_those_of_a_frame(kind: str) -> None:
    names = ("30", "200", "2") if kind == "uint8" else SIZES
    values = pd.Index(np.array([int(name) for name in names], kind))
    data = pd.DataFrame({"size": pd.Categorical.from_codes(CODES[:, 2].astype(int), values), "x": CODES[:, 1]})
    native = xgboost.train(PARAMS, xgboost.DMatrix(data, LABEL, enable_categorical=True), 2)
    content = bytes(native.save_raw("ubj"))
    features = (Column("size", "category", names, kind), Column("x", "number"))
    assert with_categories(without_categories(content), features) == content


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_codes_and_frames_in_any_order_are_predicted_alike(booster: str) -> None:
    model, plain = named(booster), on_codes(booster)
    expected = plain.inplace_predict(CODES, validate_features=False)
    assert np.array_equal(model.inplace_predict(CODES, validate_features=False), expected)
    # XGBoost counts characters of a frame's names, not bytes: names beyond ASCII go by way of a table.
    ascii_rows = np.array([COLOURS[int(code)].isascii() for code in CODES[:, 0]])
    ascii_names = tuple(name for name in COLOURS if name.isascii())
    shuffled = frame(ascii_names[::-1], (2, 30, -1))[ascii_rows]
    found = model.predict(xgboost.DMatrix(shuffled, enable_categorical=True))
    np.testing.assert_allclose(found, expected[ascii_rows], rtol=1e-6)
    without_red = frame(tuple(name for name in ascii_names if name != "red"))[ascii_rows & (CODES[:, 0] != 0)]
    found = model.predict(xgboost.DMatrix(without_red, enable_categorical=True))
    np.testing.assert_allclose(found, expected[ascii_rows & (CODES[:, 0] != 0)], rtol=1e-6)


def test_names_beyond_ascii_are_known_in_tables() -> None:
    features = FEATURES[:2]
    types = ["c", "q"]
    rows = xgboost.QuantileDMatrix(CODES[:, :2], LABEL, feature_types=types, feature_names=["colour", "x"])
    plain = xgboost.train(PARAMS, rows, 5)
    model = xgboost.Booster(model_file=bytearray(with_categories(bytes(plain.save_raw("ubj")), features)))
    names = [*COLOURS[::-1]]
    texts = pa.array([names.index(COLOURS[int(code)]) for code in CODES[:, 0]], pa.int32())
    table = pa.table({"colour": pa.DictionaryArray.from_arrays(texts, pa.array(names)), "x": CODES[:, 1]})
    found = model.predict(xgboost.DMatrix(table, enable_categorical=True))
    np.testing.assert_array_equal(found, plain.inplace_predict(CODES[:, :2], validate_features=False))


def test_training_goes_on_without_the_names_and_the_trees_stay() -> None:
    model = named()
    stripped = xgboost.Booster(PARAMS, model_file=bytearray(without_categories(bytes(model.save_raw("ubj")))))
    assert categories_in(stripped) == categories_in(on_codes())
    rows = xgboost.QuantileDMatrix(CODES, LABEL, feature_types=["c", "q", "c"], feature_names=["colour", "x", "size"])
    stripped.update(rows, 5)
    assert stripped[:5].get_dump() == model.get_dump()


def test_other_types_of_values_are_names() -> None:
    features = (Column("day", "category", ("2024-01-01", "2024-01-02"), "date32[day]"), *FEATURES[1:])
    content = with_categories(bytes(on_codes().save_raw("ubj")), features)
    first = categories_in(xgboost.Booster(model_file=bytearray(content)))["enc"][0]
    assert bytes(first["values"]) == b"2024-01-012024-01-02"


def test_a_model_without_categories_stays_as_it_is() -> None:
    content = bytes(on_codes().save_raw("ubj"))
    assert with_categories(content, (Column("x", "number"),) * 3) == content


def test_a_path_that_is_not_there_leads_nowhere() -> None:
    content = bytes(on_codes().save_raw("ubj"))
    assert span_of(content, ("learner", "nothing")) is None
    assert span_of(content, ("version", "learner")) is None
    assert span_of(content, ()) == (0, len(content))
