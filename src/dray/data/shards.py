"""Deal a data set's row groups to workers.

Pure: plain values in, plain values out. Reading the footers is `parquet.py`'s job.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """Number of the slice's first row in the whole data set, whoever reads it."""
    constants: tuple[Constant, ...] = ()
    """Columns that stand in the names of the file's directories."""

    @property
    def rows(self) -> int:
        return self.stop - self.start


Unit = tuple[Slice, ...]
"""Slices that must stay on one worker, in order."""

Shard = tuple[Unit, ...]
"""What one worker holds, in the order of the data set."""


def rows_of(shard: Shard) -> int:
    return sum(piece.rows for unit in shard for piece in unit)


def deal(units: Sequence[Unit], workers: int, *, may_be_empty: bool = False) -> list[Shard]:
    """Return one shard per worker, balanced by rows.

    Largest first onto the lightest worker: within 4/3 of the best possible balance, and the same answer
    for the same input, so that a resumed run deals as the first one did. Evaluation data may leave a worker
    without rows; training data may not.
    """
    if len(units) < workers and not may_be_empty:
        raise DataError(
            f"{len(units)} row group{'s' * (len(units) != 1)} cannot feed {workers} workers.",
            fix=f"Use --workers {len(units)}, or write the data with smaller row groups.",
        )
    dealt = deal_evenly([rows_of((unit,)) for unit in units], workers)
    return [tuple(units[index] for index in indices) for indices in dealt]


def deal_evenly(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    """Return the indices of the units, by their rows, that each worker gets; some get none when units are few."""
    order = sorted(range(len(rows)), key=lambda index: (-rows[index], index))
    lightest = [(0, worker) for worker in range(workers)]
    dealt: list[list[int]] = [[] for _ in range(workers)]
    for index in order:
        held, worker = heapq.heappop(lightest)
        dealt[worker].append(index)
        heapq.heappush(lightest, (held + rows[index], worker))
    return [tuple(sorted(indices)) for indices in dealt]


@dataclass(frozen=True, slots=True)
class GroupEdges:
    """Where ranking groups begin and end in one row group: enough to see which groups cross its borders."""

    first: object
    last: object
    leading_rows: int
    """Rows of the row group's first group."""


def keep_groups_whole(row_groups: Sequence[Slice], edges: Sequence[GroupEdges]) -> list[Unit]:
    """Return units in which no ranking group is split.

    A group that crosses from one row group into the next goes with its beginning: its tail is handed to the
    unit that holds its head, so neighbouring units read different rows of the same row group.
    """
    units: list[list[Slice]] = []
    last: object = None
    for piece, edge in zip(row_groups, edges, strict=True):
        goes_on = bool(units) and edge.first == last
        lead = edge.leading_rows if goes_on else 0
        if lead:
            units[-1].append(_part(piece, 0, lead))
        if lead < piece.rows:
            units.append([_part(piece, lead, piece.rows)])
        last = edge.last
    return [tuple(unit) for unit in units]


def _part(piece: Slice, start: int, stop: int) -> Slice:
    return replace(piece, start=piece.start + start, stop=piece.start + stop, position=piece.position + start)
