"""Divide rows into train and test: by a hash of their values (`data/value_hashes.py`), or by time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.moments import as_moment, is_moment
from dray.data.value_hashes import hash_rows
from dray.errors import ConfigError
from dray.ingesting.recipe import Split, TimeSplit


def require_splittable(split: Split | None, schema: pa.Schema) -> None:
    """Refuse a split by a column that is not a time, before any row is read."""
    if isinstance(split, TimeSplit):
        type_ = schema.field(split.column).type
        if not is_moment(type_):
            raise ConfigError(
                f'The split is by time, but column "{split.column}" is {type_}.',
                fix="Name a column of dates or times, or read it as one: --read 'types={COLUMN: \"timestamp[us]\"}'.",
            )
        as_moment(split.moment, split.column, type_)


def for_test(batch: pa.RecordBatch, split: Split, whole_row: Sequence[str]) -> pa.Array:
    """Return true for test rows, false for train rows."""
    if isinstance(split, TimeSplit):
        column = batch.column(split.column)
        return pc.fill_null(pc.greater_equal(column, as_moment(split.moment, split.column, column.type)), False)
    chosen = hash_rows(batch, split.columns or whole_row, split.seed) < np.uint64(int(split.share * 2**64))
    return pa.array(chosen)
