"""What plain XGBoost says with a model that dray saved, of rows that dray did not encode."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import xgboost

from dray.data.features import Column

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

_EPOCH = date(1970, 1, 1)
_EPOCH_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def as_numbers(values: pa.ChunkedArray) -> Floats:
    """Return a column as the documentation says it becomes numbers; text is not for here."""
    numbers = [_number(value) for value in values.to_pylist()]
    if all(isinstance(number, int) for number in numbers):
        return np.array(numbers, np.int64).astype(np.float32)
    return np.array([np.nan if number is None else number for number in numbers], np.float64).astype(np.float32)


def _number(value: Any) -> float | int | None:
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH_TIME).total_seconds()
    if isinstance(value, date):
        return (value - _EPOCH).days
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    return int(value) if isinstance(value, bool) else value


def matrix(features: Sequence[Column], table: pa.Table) -> Floats:
    """Return the numbers that the trees were grown on: of a category its place in the model's list."""
    columns = []
    for feature in features:
        values = table[feature.name]
        if feature.kind == "category":
            codes = {name: code for code, name in enumerate(feature.categories)}
            found = [codes.get(str(value), np.nan) if value is not None else np.nan for value in values.to_pylist()]
            columns.append(np.array(found, np.float32))
        else:
            columns.append(as_numbers(values))
    return np.stack(columns, axis=1)


def predict(booster: xgboost.Booster, features: Sequence[Column], table: pa.Table, *, margin: bool = False) -> Floats:
    """Ask with a numpy matrix of numbers and codes."""
    data = xgboost.DMatrix(
        matrix(features, table),
        feature_names=booster.feature_names,
        feature_types=["c" if feature.kind == "category" else "q" for feature in features],
        enable_categorical=True,
    )
    found: Floats = booster.predict(data, output_margin=margin)
    return found


def predict_frame(
    booster: xgboost.Booster, features: Sequence[Column], table: pa.Table, random: np.random.Generator
) -> tuple[Floats, Bools]:
    """Ask with a pandas frame whose categories are in another order, one of each column's left out.

    Returns the predictions and of which rows they are: not of those with a category that was left out. What training
    did not see is missing: XGBoost refuses it.
    """
    rows = np.ones(table.num_rows, dtype=bool)
    columns: dict[str, Any] = {}
    for name, feature in zip(booster.feature_names or [], features, strict=True):
        if feature.kind != "category":
            columns[name] = as_numbers(table[feature.name])
            continue
        values = np.array(table[feature.name].to_pylist(), dtype=object)
        kept = [value for value in _known(feature, values) if value is not None]
        random.shuffle(kept)
        if len(kept) > 1:
            left_out = kept.pop()
            rows &= np.array([value != left_out for value in values])
        seen = set(kept)
        known = [value if value in seen else None for value in values]
        columns[name] = pd.Categorical(known, categories=pd.Index(kept, dtype=_dtype(kept)))
    frame = pd.DataFrame(columns)[rows]
    found: Floats = booster.predict(xgboost.DMatrix(frame, enable_categorical=True))
    return found, rows


def _known(feature: Column, values: npt.NDArray[Any]) -> list[Any]:
    """Return the categories of training, as the values that the data has."""
    if any(isinstance(value, int) for value in values):
        return [int(name) for name in feature.categories]
    return list(feature.categories)


def _dtype(values: Sequence[Any]) -> Any:
    return np.int64 if values and isinstance(values[0], int) else object


@functools.cache
def own_metric(objective: str, **params: Any) -> str:
    """Return the metric that XGBoost itself takes for an objective of which nothing else is said."""
    rows = xgboost.DMatrix(np.arange(4.0)[:, None], [0, 1, 0, 1] if objective != "reg:gamma" else [1, 2, 1, 2])
    if objective.startswith("rank:"):
        rows.set_group([2, 2])
    told: dict[str, Any] = {}
    classes = {"num_class": 2} if objective.startswith("multi:") else {}
    asked = {"objective": objective, **classes, **params}
    xgboost.train(asked, rows, 1, evals=[(rows, "eval")], evals_result=told, verbose_eval=False)
    return str(list(told["eval"])[-1])
