from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dray.data import sample as sampling
from dray.data.features import choose_features
from dray.data.parquet import Dataset
from dray.data.sample import sample_columns
from small_data import opened, small_batches, write


def sampled(dataset: Dataset) -> list[np.ndarray]:
    return sample_columns(dataset, choose_features(dataset.schema, taken=[], ignore=[]))


def test_small_data_is_taken_whole(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(2500), "text": ["a"] * 2500, "flag": [True] * 2500}))
    x, text, flag = sampled(dataset)
    assert x.tolist() == list(range(2500))
    assert len(text) == 0
    assert flag.tolist() == [1] * 2500


def test_large_data_is_thinned_evenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS", 10_000)
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(100_000)}, 9_999))
    [x] = sampled(dataset)
    assert 9_900 <= len(x) <= 10_100
    assert np.diff(np.sort(x)).max() <= 20


def test_the_batch_size_does_not_change_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS", 10_000)
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(45_000)}, 7_000))
    [before] = sampled(dataset)
    small_batches(monkeypatch, 333)
    [after] = sampled(dataset)
    assert np.array_equal(before, after)


def test_reading_is_bounded_and_spread_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS_READ", 400)
    monkeypatch.setattr(sampling, "BLOCKS", 4)
    for file in range(10):
        write(tmp_path / f"{file}.parquet", {"x": [file] * 200}, 100)
    [x] = sampled(opened(tmp_path))
    assert len(x) == 400
    assert set(x.tolist()) == {1, 3, 6, 8}


LAYOUTS = {"one group": (4_000, 4_000), "files of groups": (700, 99), "small files": (13, 13), "odd": (1_999, 501)}


@pytest.mark.parametrize(("most_rows_read", "stride"), [(10_000, 1), (10_000, 7), (1_920, 1), (1_920, 3), (3, 1)])
def test_the_layout_of_files_and_row_groups_does_not_change_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_rows_read: int, stride: int
) -> None:
    """Whether all rows are read, some of them, or hardly any."""
    read = min(4_000, most_rows_read)
    monkeypatch.setattr(sampling, "MOST_ROWS_READ", most_rows_read)
    monkeypatch.setattr(sampling, "LEAST_ROWS", read // stride)
    monkeypatch.setattr(sampling, "MOST_BYTES", 0)
    rows = np.arange(4_000)
    found = {}
    for name, (file_rows, group_rows) in LAYOUTS.items():
        for first in range(0, len(rows), file_rows):
            write(tmp_path / name / f"{first:05}.parquet", {"x": rows[first : first + file_rows]}, group_rows)
        [found[name]] = sampled(opened(tmp_path / name))
    assert len(found["one group"]) == pytest.approx(read / stride, rel=0.02)
    for sample in found.values():
        assert sample.tolist() == found["one group"].tolist()


@pytest.mark.parametrize("rows", [1, 400_000, 400_001, 10**6, 10**9 + 7])
def test_blocks_of_positions_are_apart_and_within_the_data(rows: int) -> None:
    blocks = sampling.blocks_of(rows)
    assert all(one.stop <= other.start for one, other in pairwise(blocks))
    assert blocks[0].start >= 0
    assert blocks[-1].stop <= rows
    assert sum(map(len, blocks)) == min(rows, 400_000)


def test_data_of_categories_only_needs_no_reading(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": ["a"], "y": pa.array(["b"]).dictionary_encode()}))
    (tmp_path / "a.parquet").unlink()
    assert [len(column) for column in sampled(dataset)] == [0, 0]
