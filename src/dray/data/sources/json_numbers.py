"""Numbers of JSON objects that a column's type would change: 9007199254740993 into 9007199254740992 as a double.

pyarrow reads such a number without an error, and Python's parser, which keeps its digits, takes ten times as long. So
objects are checked one by one only where pyarrow found a number beyond 2^53 in a column of doubles.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.sources.numbers import EXACT_BELOW, has_large, may_wrap

_DIGITS = re.compile(rb"(?<![.0-9])[0-9]{16}")
"""Matches every number beyond 2^53 that is written without an exponent."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Guard:
    """The columns of numbers that pyarrow may change; the doubles of them only where their type was guessed."""

    doubles: frozenset[str]
    decimals: frozenset[str]
    """Whatever named their type: pyarrow makes 0 of a number that is too small for any of them."""
    strings: re.Pattern[bytes] | None
    """Finds a string under the name of a decimal: pyarrow would take "012" for 12."""
    every: bool = False
    """There is a column in which pyarrow changes numbers without an error."""

    def suspicious(self, table: pa.Table, data: bytes) -> Rows:
        """Return the rows of a flat table that may hold a number that its type changes."""
        every = np.arange(table.num_rows)
        if self.every or (self.strings is not None and self.strings.search(data)):
            return every
        found = np.zeros(table.num_rows, bool)
        has_digits = None
        for column, name in zip(table.columns, table.column_names, strict=True):
            if name in self.decimals:
                found |= pc.fill_null(pc.equal(column, 0), False).to_numpy()
            for path, values in leaves(name, column):
                if path not in self.doubles or not has_large(values):
                    continue
                has_digits = _DIGITS.search(data) is not None if has_digits is None else has_digits
                if not has_digits:
                    continue
                if path != name:  # within a list: its row is not known
                    return every
                found |= np.abs(pc.fill_null(values, 0.0).to_numpy()) >= EXACT_BELOW
        return np.flatnonzero(found)


def make_guard(schema: pa.Schema, asked: Container[str]) -> Guard | None:
    """Return the guard of the columns of a flat schema, or None if there is nothing to guard."""
    found = [(path, type_, field.name in asked) for field in schema for path, type_ in _types(field.name, field.type)]
    doubles = frozenset(path for path, type_, named in found if pt.is_floating(type_) and not named)
    decimals = frozenset(path for path, type_, _ in found if pt.is_decimal(type_))
    every = any(may_wrap(type_) for _, type_, _ in found) or any("[]" in path for path in decimals)
    guessed = (path for path, type_, named in found if pt.is_decimal(type_) and not named)
    names = sorted({re.escape(path.rpartition(".")[2].encode()) for path in guessed})
    strings = re.compile(rb'"(?:' + b"|".join(names) + rb')"\s*:\s*"') if names else None
    return Guard(doubles, decimals, strings, every) if doubles or decimals else None


def leaves(path: str, values: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield values within lists, and within objects in them, as columns of their own."""
    if pt.is_list(values.type):
        yield from leaves(f"{path}[]", pc.list_flatten(values))
    elif pt.is_struct(values.type):
        for index, inner in enumerate(values.type):
            yield from leaves(f"{path}.{inner.name}", pc.struct_field(values, [index]))
    else:
        yield path, values


def _types(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pt.is_list(type_):
        yield from _types(f"{path}[]", type_.value_type)
    elif pt.is_struct(type_):
        for inner in type_:
            yield from _types(f"{path}.{inner.name}", inner.type)
    else:
        yield path, type_
