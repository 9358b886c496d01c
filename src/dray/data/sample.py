"""The row sample that the shared cuts are made from.

Which rows are in it depends on their positions in the data alone: files and row groups may be of any number and size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.data.features import Column, Encoder, stored_names
from dray.data.kept_rows import MOST_BYTES as MOST_KEPT_BYTES
from dray.data.kept_rows import Joined, KeptRows
from dray.data.parquet import Dataset
from dray.data.parquet_rows import joined, read_slices, rows_of_batch
from dray.data.shards import Slice
from dray.data.time_text import Times

LEAST_ROWS, MOST_ROWS = 10_000, 200_000
MOST_BYTES = 256 * 2**20
MOST_ROWS_READ = 400_000
BLOCKS = 64
"""In larger data, rows are read in so many places. A row group is decoded from its beginning: at most this many are."""


def sample_columns(
    dataset: Dataset, features: Sequence[Column], more: Sequence[Column] = (), kept: KeptRows | None = None
) -> list[npt.NDArray[np.float32]]:
    """Return a sample of every numeric feature, spread evenly over the positions of the rows.

    Empty for a category: its cuts are its categories. Memory is bounded whatever the data's size.

    `kept` gets all rows, with `more` columns, where they are so few that memory holds them.
    """
    numeric = [feature for feature in features if feature.kind != "category"]
    if not numeric:
        return [np.empty(0, np.float32) for _ in features]
    blocks = blocks_of(dataset.rows)
    wanted = max(LEAST_ROWS, min(MOST_ROWS, MOST_BYTES // (4 * len(numeric))))
    stride = max(1, sum(map(len, blocks)) // wanted)
    encoder = Encoder(numeric)
    sampled: list[list[npt.NDArray[np.float32]]] = [[] for _ in numeric]
    for pieces, batch in _read(dataset, blocks, encoder) if kept is None else _kept(dataset, [*features, *more], kept):
        times: dict[str, Times] = {}
        positions = np.concatenate([np.arange(piece.position, piece.position + piece.rows) for piece in pieces])
        rows = (positions % stride == 0) & _are_in(positions, blocks)
        for column, batches in zip(encoder.columns, sampled, strict=True):
            batches.append(encoder.column(batch.column(column.stored), column, times)[rows])
    columns = iter([np.concatenate(batches) for batches in sampled])
    pa.default_memory_pool().release_unused()  # the allocator would keep the decoded row groups
    return [np.empty(0, np.float32) if feature.kind == "category" else next(columns) for feature in features]


def is_small(dataset: Dataset, columns: int) -> bool:
    """Whether memory holds the rows of so many columns, as far as that is known before they are read."""
    return max(dataset.bytes, 4 * columns * dataset.rows) <= MOST_KEPT_BYTES


def _read(dataset: Dataset, blocks: Sequence[range], encoder: Encoder) -> Iterator[Joined]:
    read = read_slices(within(dataset.row_groups, blocks), encoder.stored, [], dataset.storage)
    return joined(read, rows_of_batch(len(encoder.stored)))


def _kept(dataset: Dataset, columns: Sequence[Column], kept: KeptRows) -> Iterator[Joined]:
    names = stored_names(columns)
    categories = [column.name for column in columns if column.kind == "category"]
    read = read_slices(dataset.row_groups, names, categories, dataset.storage)
    return kept.keep(joined(read, rows_of_batch(len(names))))


def _are_in(positions: npt.NDArray[np.int64], blocks: Sequence[range]) -> npt.NDArray[np.bool_]:
    found = np.searchsorted([block.start for block in blocks], positions, side="right") - 1
    are: npt.NDArray[np.bool_] = (found >= 0) & (positions < np.array([block.stop for block in blocks])[found])
    return are


def blocks_of(rows: int) -> list[range]:
    """Return the positions that are read: all of them, or evenly spaced blocks. Pure."""
    if rows <= MOST_ROWS_READ:
        return [range(rows)]
    blocks = min(BLOCKS, MOST_ROWS_READ)
    length = MOST_ROWS_READ // blocks
    starts = [(2 * index + 1) * rows // (2 * blocks) - length // 2 for index in range(blocks)]
    return [range(start, start + length) for start in starts]


def within(row_groups: Sequence[Slice], blocks: Sequence[range]) -> list[Slice]:
    """Return the parts of the row groups whose positions are in the blocks; both are in order. Pure."""
    assert all(one.stop <= other.start for one, other in pairwise(blocks))
    found: list[Slice] = []
    waiting = iter(blocks)
    block = next(waiting, None)
    for group in row_groups:
        end = group.position + group.rows
        while block is not None and block.start < end:
            first, last = max(block.start, group.position), min(block.stop, end)
            if first < last:
                skipped = first - group.position
                start = group.start + skipped
                found.append(replace(group, start=start, stop=start + last - first, position=first))
            if block.stop > end:
                break
            block = next(waiting, None)
    return found
