"""Numbers of databases: no digit is lost on the way to Arrow, as none of a text file is.

DB-API drivers return NUMERIC as `Decimal`, ADBC's for PostgreSQL as text. pyarrow makes 5 of Decimal("5.5") in a column
of whole numbers, and the nearest double of any text, both without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from dray.data.sources.numbers import Numbers, exact_as_double, has_large


def type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the type that keeps the values of a column as they are; raise where they are of several kinds."""
    if any(isinstance(value, Decimal) for value in values):
        return _type_of_numbers(_literal(value) for value in values if value is not None)
    try:
        return pa.array(values).type
    except OverflowError:  # whole numbers beyond int64
        return pa.array(values, pa.uint64()).type


def type_of_texts(texts: Iterable[str]) -> pa.DataType:
    """Return the type that keeps numbers that are written as text; a double where there is none."""
    texts = list(texts)
    return _type_of_numbers(texts) if texts else pa.float64()


def array_of(values: Sequence[Any], type_: pa.DataType, *, nearest: bool = True) -> pa.Array:
    """Return the values as an array; raise where one does not fit.

    `nearest`: a double takes the nearest number, as where the user asked for doubles.
    """
    if any(isinstance(value, Decimal) for value in values):
        values = [_of_decimal(value, type_, nearest) if isinstance(value, Decimal) else value for value in values]
    if pt.is_string(type_) or pt.is_large_string(type_):
        values = [str(value) if type(value) is int else value for value in values]
    elif not pt.is_floating(type_) and any(isinstance(v, float) and not v.is_integer() for v in values):
        raise ValueError("a fraction")  # pyarrow would cut it off
    return pa.array(values, type_)


def array_of_texts(texts: pa.Array, type_: pa.DataType, *, nearest: bool) -> pa.Array:
    """Return numbers that are written as text as an array; raise where one does not fit."""
    if pt.is_floating(type_):
        found = texts.cast(type_)
        if nearest or not has_large(pa.chunked_array([found])):
            return found
    elif not pt.is_decimal(type_):
        return texts.cast(type_)
    return array_of([None if text is None else Decimal(text) for text in texts.to_pylist()], type_, nearest=nearest)


def _type_of_numbers(literals: Iterable[str]) -> pa.DataType:
    numbers = Numbers()
    for literal in literals:
        numbers.add(literal)
    return numbers.arrow() or pa.string()


def _literal(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{value!r} is not a number")
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _of_decimal(value: Decimal, type_: pa.DataType, nearest: bool) -> Any:
    """Return a value that pyarrow takes for a column of this type."""
    if pt.is_floating(type_):
        if not nearest and not exact_as_double(f"{value:f}"):
            raise ValueError(f"a double cannot hold {value:f}")
        return float(value)
    if pt.is_integer(type_):
        if value != value.to_integral_value():
            raise ValueError(f"{value:f} is not a whole number")
        return int(value)
    return f"{value:f}" if pt.is_string(type_) or pt.is_large_string(type_) else value
