"""Find the rows to evaluate on by a value in each: the workers look through one column before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.data.held_out import Rule, Search
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.learners.learner import Op
from dray.retry import OnWait
from dray.storage import StorageOptions

Picked = list[tuple[int, int, npt.NDArray[np.uint8]]]
"""Of each slice: the position of its first row, its rows, and which of them are picked, one bit a row."""


class Waiting(Protocol):
    """A worker that can look through a column."""

    def on_wait(self, error: Any, wait_s: float) -> None:
        """A store does not answer; it is asked again."""


@dataclass(frozen=True)
class PickRows(Op[..., Picked]):
    """Apply a rule to the rows of slices."""

    def __call__(self, side: Waiting, *inputs: Any, **_: Any) -> Picked:
        slices, rule, storage = inputs
        return [
            (piece.position, piece.rows, np.packbits(_picked(piece, rule, storage, side.on_wait))) for piece in slices
        ]


@dataclass(frozen=True)
class CountKeys(Op[..., npt.NDArray[np.int64]]):
    """Count rows for one pass of a search."""

    def __call__(self, side: Waiting, *inputs: Any, **_: Any) -> npt.NDArray[np.int64]:
        slices, column, search, storage = inputs
        counts: npt.NDArray[np.int64] = search.count(pa.array([], pa.int64()))
        for values in _values(slices, column, storage, side.on_wait):
            counts = counts + search.count(values)
        return counts


def _picked(piece: Slice, rule: Rule, storage: StorageOptions, on_wait: OnWait) -> npt.NDArray[np.bool_]:
    masks = [rule.picks(values) for values in _values([piece], rule.column, storage, on_wait)]
    return np.concatenate([np.zeros(0, np.bool_), *masks])


def _values(slices: Sequence[Slice], column: str, storage: StorageOptions, on_wait: OnWait) -> Iterator[pa.Array]:
    for _, batch in read_slices(slices, [column], [], storage, on_wait):
        yield batch.column(0)


def search_of(fraction: float, known: int, form: str) -> Search:
    """Return the search for the latest share of so many rows."""
    return Search(min(known, max(1, round(fraction * known))), form)
