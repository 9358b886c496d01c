"""Whole numbers that float32 cannot tell apart: whether they are names of something, times or quantities. Pure.

Trees see float32, which holds every whole number up to 2^24 and rounds the others. A quantity loses nothing by it:
values that become one lie next to each other. Names do: the trees can no longer tell them apart. So a column whose
values collide is a category if its values come again and again and do not look like times; else it stays a number, and
the user is told what becomes of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from shlex import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from dray.data.features import Column
from dray.data.scan import MOST_CATEGORIES
from dray.data.sources.types import flag_of_type
from dray.data.times import DATES

EXACT = 2**24
"""float32 holds all whole numbers up to this one."""
_EARLIEST, _LATEST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1990, 2040))
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_COUNTING = 2
"""Numbers of which at least every second one is there were counted up: ids, not times."""
_ROWS_A_NAME = 2
"""A category has so many rows a value, or its values say nothing of other rows."""
_NEIGHBOURS = 64
"""Times stay a number as long as float32 joins no more than this share of them (1 in 64), or a few, into one."""
_FEW_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Wholes:
    """The different values of a column."""

    values: frozenset[int] = frozenset()
    low: int | None = None
    high: int | None = None
    more: bool = False
    """There are more than a category can have; `values` has some of them."""

    def joined(self, other: Wholes) -> Wholes:
        """Return those of both; the same for any division of the rows but for `values` with `more`."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        values = self.values | other.values
        more = self.more or other.more or len(values) > MOST_CATEGORIES
        return Wholes(frozenset() if more else values, min(lows, default=None), max(highs, default=None), more)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a column is, and what the user is told."""

    column: Column
    message: str = ""
    fix: str = ""


def is_wide(arrow: pa.DataType) -> bool:
    """Whether a type holds whole numbers beyond those that float32 has all of."""
    return bool((pt.is_integer(arrow) and arrow.bit_width >= 32) or (pt.is_decimal(arrow) and arrow.scale <= 0))


def may_collide(known: tuple[int, int] | None) -> bool:
    """Whether float32 may join values of a column, as far as its least and greatest value say."""
    return known is None or max(map(abs, known)) > EXACT


def judged(column: Column, arrow: pa.DataType, found: Wholes, rows: int) -> Verdict:
    """Decide what a column of whole numbers is."""
    name, ignore = column.name, f"--ignore {quote(column.name)}"
    if found.low is None or found.high is None or max(abs(found.low), abs(found.high)) <= EXACT:
        return Verdict(column)
    if found.more:
        step = int(np.spacing(np.float32(max(abs(found.low), abs(found.high)))))
        return Verdict(
            column,
            f'Column "{name}" holds more than {MOST_CATEGORIES:,} different whole numbers up to {found.high:,}; '
            f"float32, which trees see, rounds them to multiples of up to {step:,}.",
            f"It stays a number, as is right for a quantity or a time. If it is an id, leave it out: {ignore}.",
        )
    floats, sizes = np.unique(np.array(sorted(found.values), np.float64).astype(np.float32), return_counts=True)
    count = len(found.values)
    if len(floats) == count:
        return Verdict(column)
    holds = f"{count:,} different whole numbers up to {found.high:,}, of which float32 tells apart {len(floats):,}"
    times = looks_like_times(found.values)
    if times is not None and sizes.max() <= max(_FEW_NEIGHBOURS, count // _NEIGHBOURS):
        return Verdict(
            column,
            f'Column "{name}" looks like {times}: it holds {holds}.',
            f"It stays a number, in which neighbours are one time. Write it as a timestamp, or leave it out: {ignore}.",
        )
    if rows < _ROWS_A_NAME * count:
        return Verdict(
            column,
            f'Column "{name}" holds {holds}, and in {rows:,} rows hardly one comes twice.',
            f"It stays a number. If it is an id, leave it out: {ignore}.",
        )
    names = tuple(map(str, sorted(found.values)))
    return Verdict(
        replace(column, kind="category", categories=names, values=str(arrow)),
        f'Column "{name}" is taken as a category: it holds {holds}.',
        f"To have it as a number nevertheless, write it as a double (CSV: {flag_of_type(name, 'double')}); "
        f"to leave it out: {ignore}.",
    )


def judged_floats(name: str, values: npt.NDArray[np.float64]) -> Verdict:
    """Tell of a column of floats that would be a category as whole numbers: pandas makes floats of ids with gaps.

    It stays a number, which is how a user has it whose whole numbers are a quantity. Beyond 64 bits there are no ids.
    """
    column, known = Column(name, "number"), values[np.isfinite(values)]
    if not len(known) or not EXACT < np.abs(known).max() <= 2.0**64 or (known != np.floor(known)).any():
        return Verdict(column)
    different = frozenset(map(int, np.unique(known)))
    if (
        judged(
            column, pa.int64(), Wholes().joined(Wholes(different, min(different), max(different))), len(known)
        ).column
        == column
    ):
        return Verdict(column)
    apart = len(np.unique(known.astype(np.float32)))
    return Verdict(
        column,
        f'Column "{name}" is a double, but holds whole numbers: of {len(different):,} different ones up to '
        f"{max(different):,}, float32, which trees see, tells apart {apart:,}.",
        'It stays a number. If it is an id, write it as whole numbers (pandas: astype("Int64")), or leave it out: '
        f"--ignore {quote(name)}.",
    )


def looks_like_times(values: Collection[int]) -> str | None:
    """Say what times, if whole numbers look like some between 1990 and 2040; 0 and negative ones say nothing."""
    positive = [value for value in values if value > 0]
    if not positive:
        return None
    low, high, lengths = min(positive), max(positive), {len(str(value)) for value in positive}
    if len(lengths) == 1 and (form := DATES.get(lengths.pop())) and all(_is_date(value, form) for value in positive):
        return f"dates that are written as one number, such as {low}"
    if high - low < _COUNTING * len(positive):
        return None
    for unit, of_second in _UNITS.items():
        if _EARLIEST * of_second <= low and high <= _LATEST * of_second:
            # Clocks that tell nanoseconds rarely do: ids of 19 digits end in anything.
            return None if unit == "nanoseconds" and any(value % 1000 for value in positive) else f"times in {unit}"
    return None


def _is_date(value: int, form: str) -> bool:
    try:
        return 1900 <= datetime.strptime(str(value), form).year < 2100
    except ValueError:
        return False
