"""Small Parquet data sets, and the few steps from one to what a learner is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.data import parquet_rows
from dray.data.cuts import cut_points, cut_table
from dray.data.features import Column, choose_features, kind_of
from dray.data.parquet import Dataset, open_dataset
from dray.data.sample import sample_columns
from dray.data.scan import merge_categories, require_groups_together, scan
from dray.data.shards import Unit, keep_groups_whole
from dray.data.split import Split
from dray.learners.xgboost.matrix import BinnedPreparation
from dray.storage import DEFAULT, StorageOptions


def write(path: Path, columns: dict[str, Any] | pa.Table, row_group_rows: int = 1000) -> str:
    """Write one Parquet file and return its location."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_rows)
    return str(path)


def mixed_rows(rows: int, seed: int = 0, classes: int = 2) -> dict[str, Any]:
    """Numbers with gaps, a flag and a category; a label (0, 1, ...) and a value that depend on them; weights."""
    random = np.random.default_rng(seed)
    one, two = random.normal(size=rows), random.exponential(size=rows)
    colour = random.integers(0, 5, rows)
    signal = one + 0.5 * two + 0.4 * colour + random.normal(size=rows)
    edges = np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1])
    gaps = random.random(rows) < 0.1
    return {
        "one": pa.array(np.where(gaps, np.nan, one).astype(np.float32)),
        "two": pa.array(two.astype(np.float32)),
        "flag": pa.array(two > 1),
        "colour": pa.array(np.array(["blue", "green", "grey", "red", "white"])[colour]),
        "label": pa.array(np.searchsorted(edges, signal)),
        "value": pa.array(signal),
        "weight": pa.array(random.uniform(0.5, 2, rows).astype(np.float32)),
    }


def query_ids(rows: int, seed: int = 0, largest: int = 30) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Ranking groups of 1 to `largest` rows, one after another."""
    sizes = np.random.default_rng(seed).integers(1, largest + 1, rows)
    return np.repeat(np.arange(rows), sizes)[:rows]


def prepare(
    dataset: Dataset,
    *,
    label: str,
    weight: str | None = None,
    group: str | None = None,
    ignore: Sequence[str] = (),
    bins: int = 256,
    split: Split | None = None,
) -> BinnedPreparation:
    """What the driver decides, done by one process."""
    storage = dataset.storage
    taken = [name for name in (label, weight, group) if name]
    features = choose_features(dataset.schema, taken=taken, ignore=ignore)
    target = Column(label, kind_of(label, dataset.schema.field(label).type))
    texts = [column.name for column in (*features, target) if column.kind == "category"]
    found = scan(dataset.row_groups, texts, None, storage) if texts else None

    def complete(column: Column) -> Column:
        return replace(column, categories=merge_categories([found], column.name)) if column.name in texts else column

    features = [complete(feature) for feature in features]
    points = [cut_points(column, bins) for column in sample_columns(dataset, features)]
    cuts = cut_table(points, [feature.category_count for feature in features])
    return BinnedPreparation(
        tuple(features), complete(target), weight, group, split, Split(1.0, 0), storage, cuts=cuts, bins=bins
    )


def units(dataset: Dataset, group: str | None = None) -> list[Unit]:
    """What can be assigned."""
    if group is None:
        return [(piece,) for piece in dataset.row_groups]
    found = scan(dataset.row_groups, [], group, dataset.storage)
    return keep_groups_whole(dataset.row_groups, require_groups_together(dataset.row_groups, [found], group))


def small_batches(patch: pytest.MonkeyPatch, rows: int) -> None:
    """Let Parquet be read in batches of so many rows."""
    patch.setattr(parquet_rows, "BATCH_BYTES", 0)
    patch.setattr(parquet_rows, "LEAST_BATCH_ROWS", rows)


def opened(*locations: str | Path, storage: StorageOptions = DEFAULT) -> Dataset:
    return open_dataset([str(location) for location in locations], storage)
