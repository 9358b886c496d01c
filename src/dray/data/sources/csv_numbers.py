"""Numbers of CSV text that a column's type would change: `001` into 1, 9007199254740993 into 9007199254740992.

pyarrow reads such a number without an error, and checking each as text would double the time of reading. So the bytes
of a block are first searched for a value with a leading zero, and the doubles for one above 2^53; only where there is
one are the columns in question read again, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.sources.numbers import (
    CODE,
    EXACT_BELOW,
    Numbers,
    exact_as_double,
    fits_decimal,
    has_large,
    may_wrap,
    room,
)
from dray.data.sources.quotes import CR, LF, Positions, Quoting

_STEP = 256 << 10
"""Bytes that are searched at a time: the temporary arrays stay in the processor's cache."""
_SPACE = r"[ \t]*"
_IS_CODE = f"^{_SPACE}{CODE}{_SPACE}$"
_SOFT = list(b" \t+-")
"""What may be between the start of a value and its first digit, and in the middle of a date."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as they were read, with the text that they come from."""

    table: pa.Table
    data: bytes | pa.Buffer
    quoting: Quoting
    names: Sequence[str]
    """The columns of the text, in order."""
    read_as: Callable[[Sequence[str], pa.DataType], pa.Table]
    """Reads columns of the same rows as another type, with null for what is missing."""

    def may_have_codes(self, names: Sequence[str]) -> list[str]:
        """Return the columns in which a value may have a leading zero; all of them, if that is not known."""
        zeros = zeros_that_lead(self.data, self.quoting) if names else ()
        if not len(zeros):
            return []
        text = np.frombuffer(self.data, np.uint8)
        if self.quoting.quote is not None and (text == self.quoting.quote).any():
            return list(names)
        ends = np.flatnonzero((text == self.quoting.delimiter) | (text == LF))
        if len(ends) + (text[-1] != LF) != len(self.names) * self.table.num_rows:  # rows or empty lines were left out
            return list(names)
        having = {self.names[index] for index in np.unique(np.searchsorted(ends, zeros) % len(self.names))}
        return [name for name in names if name in having]


@dataclass(frozen=True, slots=True)
class Changed:
    """A number that its column's type would change."""

    column: str
    row: int
    literal: str
    why: str


def sampled_numbers(rows: Rows) -> dict[str, Numbers]:
    """Return what the numbers of a sample look like, by column, where pyarrow guessed the type."""
    table = rows.table
    names = [field.name for field in table.schema if pt.is_integer(field.type) or pt.is_floating(field.type)]
    codes = rows.may_have_codes(names)
    large = [name for name in names if pt.is_floating(table[name].type) and has_large(table[name])]
    asked = [name for name in names if name in large or name in codes]
    texts = rows.read_as(asked, pa.string()) if asked else table
    found = {}
    for name in names:
        if name in large:
            found[name] = _written(texts[name])
        else:
            found[name] = _integers(table[name]) if pt.is_integer(table[name].type) else Numbers(whole=False)
        if name in codes and (row := _first_code(texts[name])) is not None:
            found[name].code = texts[name][row].as_py().strip()
    return found


def _written(texts: pa.ChunkedArray) -> Numbers:
    numbers = Numbers()
    for literal in pc.unique(texts.drop_null()).to_pylist():
        numbers.add(literal)
    return numbers


def _integers(column: pa.ChunkedArray) -> Numbers:
    numbers = Numbers()
    for bound in pc.min_max(column).as_py().values():
        numbers.add(str(bound))
    if has_large(column):
        written = (str(value) for value in pc.unique(column.drop_null()).to_pylist())
        numbers.inexact = next((literal for literal in written if not exact_as_double(literal)), None)
    return numbers


def first_changed(rows: Rows, columns: Sequence[str], guarded: Container[str]) -> Changed | None:
    """Return a number that the type of its column would change, of the columns that are `guarded`."""
    table = rows.table
    names = [name for name in columns if name in guarded]
    codes = rows.may_have_codes(names)
    large = [name for name in names if pt.is_floating(table[name].type) and has_large(table[name])]
    wrapped = [name for name in columns if _may_be_wrong(table[name])]  # guarded or not: another number is never wanted
    if not codes and not large and not wrapped:
        return None
    texts = rows.read_as([name for name in columns if name in {*codes, *large, *wrapped}], pa.string())
    doubles = rows.read_as(wrapped, pa.float64()) if wrapped else table
    for kind, found in (
        ("has a leading zero, which {} would lose", ((name, _first_code(texts[name])) for name in codes)),
        ("has more digits than {} can hold", ((name, _first_inexact(table[name], texts[name])) for name in large)),
        (
            "has more digits than {} can hold",
            ((name, _first_wrapped(table[name], doubles[name], texts[name])) for name in wrapped),
        ),
    ):
        for name, row in found:
            if row is not None:
                return Changed(name, row, texts[name][row].as_py().strip(), kind.format(table[name].type))
    return None


def _first_code(texts: pa.ChunkedArray) -> int | None:
    row: int = pc.index(pc.match_substring_regex(texts, _IS_CODE), True).as_py()
    return row if row >= 0 else None


def _first_inexact(values: pa.ChunkedArray, texts: pa.ChunkedArray) -> int | None:
    large = pc.greater_equal(pc.abs(values), float(EXACT_BELOW))
    plain = pc.invert(
        pc.match_substring_regex(texts, "[eE]")
    )  # checking one by one is slow, and an exponent is not a digit
    for literal in pc.unique(texts.filter(pc.and_(large, plain))).to_pylist():
        if not exact_as_double(literal.strip()):
            row: int = pc.index(texts, literal).as_py()
            return row
    return None


def _may_be_wrong(values: pa.ChunkedArray) -> bool:
    return pt.is_decimal(values.type) and (may_wrap(values.type) or bool(pc.any(pc.equal(values, 0)).as_py()))


def _first_wrapped(values: pa.ChunkedArray, doubles: pa.ChunkedArray, texts: pa.ChunkedArray) -> int | None:
    near = room(values.type) * (1 - 1e-9)  # as a double, and so perhaps a little less than it is
    asked = pc.or_(pc.greater_equal(pc.abs(doubles), near), pc.equal(values, 0))
    for literal in pc.unique(texts.filter(asked)).to_pylist():
        if not fits_decimal(literal.strip(), values.type):
            row: int = pc.index(texts, literal).as_py()
            return row
    return None


def zeros_that_lead(data: bytes | pa.Buffer, quoting: Quoting) -> Positions:
    """Return the positions of leading zeros (not of 0.5); all of them, and perhaps some positions too many."""
    text = np.frombuffer(data, np.uint8)
    first = np.concatenate([np.full(2, LF, np.uint8), text[:3]])  # as if a line end came before the first value
    room = np.empty((2, max(len(first), min(_STEP, len(text)))), bool)
    found = [_zeros(first, quoting, room) - 2]
    found += [_zeros(text[start : start + _STEP + 3], quoting, room) + start for start in range(0, len(text), _STEP)]
    return np.concatenate(found)


def _zeros(text: npt.NDArray[np.uint8], quoting: Quoting, room: npt.NDArray[np.bool_]) -> Positions:
    """Return the positions of such zeros after the second byte. `room`: a buffer."""
    earlier, before, zero, after = text[:-3], text[1:-2], text[2:-1], text[3:]
    marks = [mark for mark in (quoting.delimiter, quoting.quote) if mark is not None]
    maybe, more = room[:, : len(after)]
    # Quotes, the comma, the plus and white space are below the minus; the point, digits and letters are above.
    np.less(earlier, ord("-"), out=maybe)  # in 2024-01-05 a digit precedes the minus
    for mark in marks:
        if mark >= ord("-"):
            maybe |= np.equal(earlier, mark, out=more)
    maybe &= np.equal(before, ord("-"), out=more)
    maybe |= np.less(before, ord("-"), out=more)
    for mark in marks:
        if mark >= ord("-"):
            maybe |= np.equal(before, mark, out=more)
    maybe &= np.equal(zero, ord("0"), out=more)
    maybe &= np.greater_equal(after, ord("0"), out=more)
    for mark in marks:
        if mark >= ord("0"):
            maybe &= np.not_equal(after, mark, out=more)
    if not maybe.any():
        return np.empty(0, np.int64)
    positions: Positions = np.flatnonzero(maybe)
    begins = np.zeros(256, bool)
    begins[[LF, CR, *marks]] = True
    soft = begins.copy()
    soft[_SOFT] = True
    # The zero of 2024-01-05 03:00 begins no value: a digit is two bytes before it.
    sure = begins[before[positions]] | (soft[before[positions]] & soft[earlier[positions]])
    return positions[sure] + 2
