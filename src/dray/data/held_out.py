"""Which rows are evaluated on, by a value in each: whole groups, or what came last. Pure.

The latest share of the rows needs the time from which on they are: it is found by counting, 16 bits of it in each pass
over the column, so no worker sends its values anywhere, and the answer is exact whichever worker reads which rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from dray.data.features import is_text
from dray.data.moments import as_moment, is_moment
from dray.data.times import times_of
from dray.data.value_hashes import hash_rows
from dray.errors import ConfigError, DataError

Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
_BITS = 16
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class ByGroup:
    """About a share of the groups: those whose value has a low hash, as `dray data ingest --split-by` has it."""

    column: str
    fraction: float
    seed: int

    def picks(self, values: pa.Array) -> Bools:
        batch = pa.RecordBatch.from_arrays([values], names=[self.column])
        picked: Bools = hash_rows(batch, [self.column], self.seed) < np.uint64(int(self.fraction * 2**64))
        return picked


@dataclass(frozen=True, slots=True)
class FromKey:
    """Rows of a time or a number from `least` on, as its key; never one without a value."""

    column: str
    least: int
    form: str = ""
    """How the times are written, of a column of text."""

    def picks(self, values: pa.Array) -> Bools:
        keys, known = keys_of(values, self.form)
        picked: Bools = known & (keys >= np.uint64(self.least))
        return picked


Rule = ByGroup | FromKey


def require_ordered(column: str, type_: pa.DataType) -> None:
    """Refuse a column by which rows cannot be put in order of time."""
    if not (is_moment(type_) or pt.is_integer(type_) or pt.is_floating(type_) or is_text(type_)):
        raise not_ordered(column, type_)


def not_ordered(column: str, type_: pa.DataType) -> DataError:
    if is_text(type_):
        return DataError(
            f'The split is by time, but column "{column}" is text that holds no times, or does not tell how they are '
            "written.",
            fix=f"Say how they are, such as --time-form '{column}=%d/%m/%Y', or name a column of dates, times or "
            "numbers with --eval-by.",
        )
    return DataError(
        f'The split is by time, but column "{column}" is {type_}.',
        fix="Name a column of dates, times or numbers with --eval-by.",
    )


def key_of(text: str, column: str, type_: pa.DataType) -> int:
    """Return the key of a date, a time or a number that is given as text, in the terms of a column."""
    if is_moment(type_):
        asked = as_moment(text, column, type_)
        found = pc.cast(asked, type_, safe=False)
        between = pc.cast(found, asked.type, safe=False).as_py() < asked.as_py()  # of a column of whole seconds, say
    else:
        try:
            number = Decimal(text)  # a float does not hold nanoseconds since 1970
            whole = number.to_integral_value(ROUND_FLOOR)
            found = pa.scalar(int(whole) if pt.is_integer(type_) else float(number), type_)
            between = pt.is_integer(type_) and number != whole
        except (ValueError, ArithmeticError, pa.ArrowInvalid):
            raise ConfigError(
                f'"{text}" is compared with column "{column}" ({type_}), but is not such a number.',
                fix="Write --eval-from as a number of that column.",
            ) from None
    keys, _ = keys_of(pa.array([found], type_))
    return int(keys[0]) + int(between)  # the first value that is not less


def keys_of(values: pa.Array, form: str = "") -> tuple[Keys, Bools]:
    """Return numbers in the order of the values, and which rows have a value. Text has times of a `form`."""
    if form:
        values = times_of(values, form).microseconds()
    known = pc.is_valid(values) if not pt.is_floating(values.type) else pc.fill_null(pc.is_finite(values), False)
    if pt.is_floating(values.type):
        floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
        bits = floats.view(np.uint64)
        keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    else:
        whole = values
        if is_moment(values.type):
            whole = values.cast(pa.int32() if pt.is_date32(values.type) else pa.int64())
        filled = pc.fill_null(whole, pa.scalar(0, whole.type)).to_numpy(zero_copy_only=False)
        keys = filled if filled.dtype == np.uint64 else filled.astype(np.int64).view(np.uint64) ^ _SIGN
    return keys.astype(np.uint64, copy=False), known.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True)
class Search:
    """How far the key is known from which on there are `wanted` rows: its first `passes` times 16 bits."""

    wanted: int
    form: str = ""
    prefix: int = 0
    passes: int = 0

    @property
    def over(self) -> bool:
        return self.passes * _BITS == 64

    def count(self, values: pa.Array) -> npt.NDArray[np.int64]:
        """Count rows by the next bits of their keys, of those that begin with the prefix."""
        keys, known = keys_of(values, self.form)
        keys = keys[known]
        if self.passes:
            keys = keys[keys >> np.uint64(64 - self.passes * _BITS) == np.uint64(self.prefix)]
        rest = np.uint64(64 - (self.passes + 1) * _BITS)
        counts: npt.NDArray[np.int64] = np.bincount(
            ((keys >> rest) & np.uint64(2**_BITS - 1)).astype(np.int64), minlength=2**_BITS
        )
        return counts

    def narrowed(self, counts: npt.NDArray[np.int64]) -> Search:
        """Return the search after the counts of all rows."""
        above = np.cumsum(counts[::-1])[::-1]  # rows from these bits on
        bits = int(np.flatnonzero(above >= self.wanted)[-1])
        later = int(above[bits] - counts[bits])
        return Search(self.wanted - later, self.form, (self.prefix << _BITS) | bits, self.passes + 1)
