"""Which units belong together, and which rows are read by whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.data.shards import Slice, assign_evenly
from dray.learners.shard import Shard
from dray.training.factorization.routes import Units


def evenly(work: Sequence[int], parts: int) -> tuple[Shard, ...]:
    """Return parts of about the same work, one for every worker there may be."""
    dealt = assign_evenly(work, max(1, min(len(work), parts)))
    return tuple(Shard(base, units) for base, units in enumerate(dealt))


def contiguous(work: Sequence[int], parts: int) -> tuple[Shard, ...]:
    """Return parts of neighbouring units, one for every worker there may be."""
    units, count = len(work), max(1, min(len(work), parts))
    edges = [units * number // count for number in range(count + 1)]
    return tuple(Shard(base, tuple(range(edges[base], edges[base + 1]))) for base in range(count))


def units_of(parts: Iterable[Shard]) -> Units:
    return tuple(sorted(unit for part in parts for unit in part.units))


def in_order(slices: Sequence[Slice], shares: int) -> list[tuple[Slice, ...]]:
    """Return consecutive slices with about as many rows each; some get none where slices are few."""
    total = sum(piece.rows for piece in slices)
    dealt: list[list[Slice]] = [[] for _ in range(shares)]
    done = 0
    for piece in slices:
        dealt[min(shares - 1, (done + piece.rows // 2) * shares // max(1, total))].append(piece)
        done += piece.rows
    return [tuple(share) for share in dealt]
