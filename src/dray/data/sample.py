"""The row sample that the shared cuts are made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.data.features import Column, Encoder
from dray.data.parquet import Dataset, read_slices
from dray.data.shards import Slice

MOST_ROWS = 200_000
MOST_BYTES = 256 * 2**20
MOST_ROWS_READ = 1_000_000


def sample_columns(dataset: Dataset, features: Sequence[Column]) -> list[npt.NDArray[np.float32]]:
    """Return a sample of every numeric feature, spread evenly over the row groups and within them.

    Empty for a category: its cuts are its categories. Memory and reading are bounded whatever the data's size.
    """
    numeric = [feature for feature in features if feature.kind != "category"]
    if not numeric:
        return [np.empty(0, np.float32) for _ in features]
    chosen = _spread(dataset.row_groups)
    wanted = max(10_000, min(MOST_ROWS, MOST_BYTES // (4 * len(numeric))))
    stride = max(1, sum(slice_.rows for slice_ in chosen) // wanted)
    encoder = Encoder(numeric)
    sampled: list[list[npt.NDArray[np.float32]]] = [[] for _ in numeric]
    for slice_, batch in read_slices(chosen, encoder.names, [], dataset.storage):
        rows = slice(-slice_.start % stride, None, stride)
        for column, batches in zip(encoder.columns, sampled, strict=True):
            batches.append(encoder.column(batch.column(column.name), column)[rows])
    columns = iter([np.concatenate(batches) for batches in sampled])
    pa.default_memory_pool().release_unused()  # the allocator would keep the decoded row groups
    return [np.empty(0, np.float32) if feature.kind == "category" else next(columns) for feature in features]


def _spread(row_groups: Sequence[Slice]) -> list[Slice]:
    """Evenly spaced row groups, as many as the budget of rows allows, at least one."""
    mean_rows = sum(group.rows for group in row_groups) / len(row_groups)
    count = min(len(row_groups), max(1, int(MOST_ROWS_READ / mean_rows)))
    return [row_groups[int((index + 0.5) * len(row_groups) / count)] for index in range(count)]
