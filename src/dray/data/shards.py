"""Assign a data set's row groups to workers.

Pure: plain values in, plain values out. Reading the footers is `parquet.py`'s job.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
            f"{len(units)} row group{' is' if len(units) == 1 else 's are'} too few for {workers} workers.",
            fix=f"Use --workers {len(units)}, or write the data with smaller row groups.",
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
