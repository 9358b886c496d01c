"""What the label of a training of trees becomes: a number, or classes with their own names. Decided in the driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import xgboost

from dray.data.features import Column
from dray.data.parquet import Dataset
from dray.errors import DataError
from dray.learners.classes import MOST_CLASSES, are_whole, as_classes, check_few, with_classes
from dray.learners.label_scan import LabelValues

Look = Callable[[int], LabelValues]
"""Counts the label's values, up to so many different ones."""
_BINARY = "binary:"
_CLASSES = "multi:"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user said of the task."""

    objective: str | None
    classes: int
    """num_class; 0 if it was not given."""
    ranking: bool


@dataclass(frozen=True, slots=True)
class Begun:
    """What the trees of a run that is resumed were grown for: by another version of dray, perhaps."""

    objective: str
    categories: tuple[bool, ...]
    """Whether each feature is a category."""

    @staticmethod
    def of(model: bytes | None) -> Begun | None:
        if model is None:
            return None
        booster = xgboost.Booster(model_file=bytearray(model))
        objective = str(json.loads(booster.save_config())["learner"]["objective"]["name"])
        return Begun(objective, tuple(kind == "c" for kind in booster.feature_types or ()))


def named_classes(label: Column, data: Dataset, asked: Asked, look: Look) -> Column:
    """Return the label with its classes; as it is where it is a number."""
    if label.kind == "category":
        return _text_classes(label, asked, look)
    objective = asked.objective
    if label.kind != "number" or asked.ranking:
        return label
    if objective is not None and not objective.startswith((_BINARY, _CLASSES)):
        return label
    multi = objective is not None and objective.startswith(_CLASSES)
    known = data.statistics.ranges.get(label.name)
    if not multi and known is not None and tuple(map(float, known)) == (0, 1):
        return label  # 0 and 1, or what lies between: a look at every row would say no more
    found = look(MOST_CLASSES if multi else 2)
    if not found.counts:
        raise DataError(f'No row has a finite value in the label "{label.name}".', fix="Check --label.")
    arrow = str(_plain(data.schema.field(label.name).type))
    values = set(found.counts)
    if multi:
        is_number = found.more or not are_whole(values)
        return label if is_number else as_classes(label, values, arrow, codes=asked.classes)
    if found.more or len(values) != 2 or (objective is not None and _are_shares(values)):
        return label
    return as_classes(label, values, arrow, codes=0)


def _text_classes(label: Column, asked: Asked, look: Look) -> Column:
    found = look(MOST_CLASSES)
    named = asked.objective is not None and asked.objective.startswith((_BINARY, _CLASSES))
    check_few(label, found.counts, more=found.more, asked=named)
    return with_classes(label, found.counts)


def _are_shares(values: set[str]) -> bool:
    """Whether they are probabilities, which a binary objective takes as they are."""
    return all(0 <= float(value) <= 1 for value in values)


def _plain(arrow: pa.DataType) -> Any:
    return arrow.value_type if pt.is_dictionary(arrow) else arrow
