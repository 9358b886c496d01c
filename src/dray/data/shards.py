"""Assign a data set's row groups to workers.

Pure: plain values in, plain values out. Reading the footers is `parquet.py`'s job.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dray.data.fitted import Given
from dray.data.partitions import Constant
from dray.errors import DataError


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive rows of one row group."""

    file: str
    row_group: int
    start: int
    """First row within the row group."""
    stop: int
    position: int
    """Number of the slice's first row in the whole data set."""
    constants: tuple[Constant, ...] = ()
    """Columns in the names of the file's directories."""
    footer: str = field(default="", compare=False)
    """Digest of the file's footer: reading checks that the file is still the same; "": no check."""
    given: Given = field(default=(), compare=False)
    """What the file lacks, or stores with another type than all the data."""

    @property
    def rows(self) -> int:
        return self.stop - self.start


Unit = tuple[Slice, ...]
"""Slices that must stay on one worker, in order."""

Units = tuple[Unit, ...]
"""What one worker holds, in the order of the data set."""


def rows_of(shard: Units) -> int:
    return sum(slice_.rows for unit in shard for slice_ in unit)


def assign(units: Sequence[Unit], workers: int, *, may_be_empty: bool = False) -> list[Units]:
    """Return one shard per worker, balanced by rows.

    Largest first onto the lightest worker: within 4/3 of the best possible balance, and the same answer
    for the same input, so that a resumed run assigns as the first one did. Evaluation data may leave a worker
    without rows; training data may not.
    """
    if len(units) < workers and not may_be_empty:
        raise DataError(
            f"The rows can be divided among {len(units)} worker{'s' * (len(units) != 1)} at most, not {workers}.",
            fix=f"Use --workers {len(units)}.",
        )
    assigned = assign_evenly([rows_of((unit,)) for unit in units], workers)
    return [tuple(units[index] for index in indices) for indices in assigned]


def assign_evenly(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Return the indices of the units of each worker, balanced by rows; some workers get none when units are few."""
    order = sorted(range(len(rows)), key=lambda index: (-rows[index], index))
    lightest = [(0, worker) for worker in range(workers)]
    assigned: list[list[int]] = [[] for _ in range(workers)]
    for index in order:
        held, worker = heapq.heappop(lightest)
        assigned[worker].append(index)
        heapq.heappush(lightest, (held + rows[index], worker))
    return [tuple(sorted(indices)) for indices in assigned]


EVEN = 1.05
"""Beyond this ratio of rows, the smaller worker waits for the larger one in every round."""
_CUTS = 20
"""Slices for each worker, where row groups are cut: one more or less is even."""


def divided(row_groups: Sequence[Slice], workers: int) -> list[Slice]:
    """Return the row groups; the large ones cut where whole ones cannot be assigned evenly to so many workers.

    The workers that share a row group decode it up to their last row each: whole ones are better where they are many.
    """
    return [
        _rows_within(group, start, stop)
        for group, borders in zip(row_groups, cuts([group.rows for group in row_groups], workers), strict=True)
        for start, stop in pairwise(borders)
    ]


def cuts(rows: Sequence[int], workers: int) -> list[list[int]]:
    """Return for row groups with these numbers of rows where each begins, is cut, and ends."""
    shares = [sum(rows[index] for index in indices) for indices in assign_evenly(rows, max(1, workers))]
    if not rows or max(shares) <= EVEN * min(shares):
        return [[0, count] for count in rows]
    most = max(1, -(-sum(rows) // (_CUTS * workers)))
    pieces = [-(-count // most) for count in rows]
    return [[count * cut // number for cut in range(number + 1)] for count, number in zip(rows, pieces, strict=True)]


@dataclass(frozen=True, slots=True)
class GroupEdges:
    """Where ranking groups begin and end in one row group: enough to see which groups cross its borders."""

    first: object
    last: object
    leading_rows: int
    """Rows of the row group's first group."""


def keep_groups_whole(row_groups: Sequence[Slice], edges: Sequence[GroupEdges]) -> list[Unit]:
    """Return units in which no ranking group is split.

    A group that crosses from one row group into the next goes with its first rows: its last rows are added to the
    unit of the first ones, so neighbouring units read different rows of the same row group.
    """
    units: list[list[Slice]] = []
    last: object = None
    for slice_, edge in zip(row_groups, edges, strict=True):
        goes_on = bool(units) and edge.first == last
        lead = edge.leading_rows if goes_on else 0
        if lead:
            units[-1].append(_rows_within(slice_, 0, lead))
        if lead < slice_.rows:
            units.append([_rows_within(slice_, lead, slice_.rows)])
        last = edge.last
    return [tuple(unit) for unit in units]


def _rows_within(slice_: Slice, start: int, stop: int) -> Slice:
    return replace(slice_, start=slice_.start + start, stop=slice_.start + stop, position=slice_.position + start)
