from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data import kept_rows, stream
from dray.data.features import choose_features
from dray.data.kept_rows import KeptRows
from dray.data.parquet import Dataset
from dray.data.sample import sample_columns
from dray.data.shards import Slice
from dray.data.split import Split
from dray.data.stream import Stream
from small_data import mixed_rows, opened, prepare, small_batches, units, write

ROWS = 3000


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    table = pa.table(mixed_rows(ROWS) | {"row": pa.array(range(ROWS))})
    for number in range(10):
        write(tmp_path / "data" / f"{number}.parquet", table.slice(300 * number, 300), 130)
    return opened(tmp_path / "data")


def sampled(dataset: Dataset, kept: KeptRows | None = None) -> list[Any]:
    return sample_columns(dataset, choose_features(dataset.schema, taken=[], ignore=[]), kept=kept)


def rows_in(kept: KeptRows, slices: list[Slice]) -> list[int]:
    assert kept.holds(slices, ["row"])
    return [row for _, batch in kept.rows_of(slices, ["row"]) for row in batch.column(0).to_pylist()]


def test_the_sample_is_the_same_whether_all_rows_are_kept_or_not(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.data.sample.MOST_ROWS_READ", 640)
    small_batches(monkeypatch, 250)
    kept = KeptRows()
    for one, other in zip(sampled(dataset), sampled(dataset, kept), strict=True):
        np.testing.assert_array_equal(one, other)
    assert rows_in(kept, list(dataset.row_groups)) == list(range(ROWS))


def test_any_rows_in_order_are_found_with_the_slices_that_they_are_made_of(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 250)
    kept = KeptRows()
    sampled(dataset, kept)
    groups = dataset.row_groups
    part = replace(groups[3], start=7, stop=90, position=groups[3].position + 7)
    chosen = [groups[0], part, *groups[7:12], groups[-1]]
    expected = [row for one in chosen for row in range(one.position, one.position + one.rows)]
    assert rows_in(kept, chosen) == expected
    pieces = [(piece, batch) for found, batch in kept.rows_of(chosen, ["row"]) for piece in [found]]
    assert all(sum(piece.rows for piece in found) == batch.num_rows for found, batch in pieces)
    assert [r for found, _ in pieces for p in found for r in range(p.position, p.position + p.rows)] == expected


@pytest.mark.parametrize("part", ["all", "train", "eval"])
def test_a_stream_takes_kept_rows_without_reading_a_file(
    dataset: Dataset, part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = None if part == "all" else Split(0.3, 1)
    plain = prepare(dataset, label="row", weight="weight", ignore=["label", "value"], split=split)
    shard = tuple(units(dataset))
    expected = list(Stream(shard, plain, part).batches())
    kept = KeptRows()
    sampled(dataset, kept)

    def refuse(*_: Any) -> Iterator[Any]:
        raise AssertionError("A file was read.")

    monkeypatch.setattr(stream, "read_slices", refuse)
    told: list[int] = []
    found = Stream(shard, replace(plain, kept=kept), part, told.append)
    batches = list(found.batches())
    for name in ("features", "label", "weight", "positions"):
        np.testing.assert_array_equal(
            np.concatenate([getattr(batch, name) for batch in batches]),
            np.concatenate([getattr(batch, name) for batch in expected]),
        )
    assert sum(told) == ROWS
    np.testing.assert_array_equal(
        np.concatenate(list(found.matrices())), np.concatenate([batch.features for batch in batches])
    )
    found.close()


def test_too_many_rows_are_not_kept_and_sampled_all_the_same(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 250)
    monkeypatch.setattr(kept_rows, "MOST_BYTES", 20_000)
    kept = KeptRows()
    assert len(sampled(dataset, kept)[0]) == ROWS
    assert not kept.holds([], ["row"])


def test_other_columns_and_rows_are_read_from_files(dataset: Dataset) -> None:
    kept = KeptRows()
    sampled(dataset, kept)
    assert not kept.holds(dataset.row_groups, ["another"])
    assert not kept.holds([replace(dataset.row_groups[-1], position=0)], ["row"])
    assert not kept.holds([replace(dataset.row_groups[0], file="evaluation.parquet")], ["row"])
    kept.clear()
    assert not kept.holds(dataset.row_groups, ["row"])


def test_kept_rows_stay_in_their_process(dataset: Dataset) -> None:
    kept = KeptRows()
    sampled(dataset, kept)
    assert not pickle.loads(pickle.dumps(kept)).holds(dataset.row_groups, ["row"])
