"""Columns of any type for counting: their kind, numbers, extremes, and values as text."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.describing.figures import Kind
from dray.data.features import kind_of
from dray.errors import DataError

Numbers = npt.NDArray[np.float64]

VALUE_CHARACTERS = 80
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def kind(name: str, arrow: pa.DataType) -> Kind:
    """Return what a column means to training; `other` if training cannot use it (lists, bytes)."""
    try:
        found = kind_of(name, arrow)
    except DataError:
        return "other"
    return "text" if found == "category" else found


def plain_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array, without a dictionary, times without nanoseconds, halves as floats."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # more than an array can hold, or none
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pt.is_timestamp(array.type):  # Python has no nanoseconds; and one zone for all
        array = array.cast(pa.timestamp("us", array.type.tz and "UTC"), safe=False)
    if pt.is_time64(array.type) and array.type.unit == "ns":
        array = array.cast(pa.time64("us"), safe=False)
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    if pt.is_large_string(array.type) or pt.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def numbers(array: pa.Array) -> Numbers:
    """Return numbers and times as floats, in which missing is NaN: days, seconds, 0 and 1."""
    arrow = array.type
    if pt.is_null(arrow):
        return np.full(len(array), np.nan)
    if pt.is_date(arrow):
        array = array.cast(pa.date32()).cast(pa.int32())
    elif pt.is_time32(arrow):
        array = array.cast(pa.int32())
    elif pt.is_timestamp(arrow) or pt.is_time(arrow) or pt.is_duration(arrow):
        array = array.cast(pa.int64())
    found: Numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    unit = getattr(arrow, "unit", None)
    return found / _PER_SECOND[unit] if unit in _PER_SECOND and not pt.is_date(arrow) else found


def from_number(value: float, kind: Kind) -> Any:
    """Return a number of `numbers` in its readable form."""
    if kind == "date":
        return str(date(1970, 1, 1) + timedelta(days=round(value)))
    if kind == "timestamp":
        return plain(datetime(1970, 1, 1) + timedelta(seconds=round(value)))
    return float(value)


def extremes(array: pa.Array) -> tuple[Any, Any]:
    """Return the least and the greatest value as Python's (a duration in seconds), or None twice."""
    if pt.is_floating(array.type):
        found = array.drop_null().to_numpy(zero_copy_only=False)
        found = found[~np.isnan(found)]
        return (float(found.min()), float(found.max())) if len(found) else (None, None)
    if pt.is_duration(array.type):
        per_second = _PER_SECOND[array.type.unit]
        low, high = extremes(array.cast(pa.int64()))
        return (None, None) if low is None else (low / per_second, high / per_second)
    both = pc.min_max(array)
    return both["min"].as_py(), both["max"].as_py()


def plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers and booleans as such, anything else as text, not too long."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no infinity
    if isinstance(value, Decimal):
        return plain(float(value))
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"


def can_be_counted(arrow: pa.DataType) -> bool:
    """Whether values of a type can be told apart."""
    return not (pt.is_nested(arrow) or isinstance(arrow, pa.BaseExtensionType))


def nan_count(array: pa.Array) -> int:
    return int(pc.sum(pc.is_nan(array)).as_py() or 0) if pt.is_floating(array.type) else 0


def infinite_count(array: pa.Array) -> int:
    return int(pc.sum(pc.is_inf(array)).as_py() or 0) if pt.is_floating(array.type) else 0
