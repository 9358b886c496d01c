from __future__ import annotations

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
    for file in range(10):
        write(tmp_path / f"{file}.parquet", {"x": [file] * 200}, 100)
    [x] = sampled(opened(tmp_path))
    assert len(x) == 400
    assert set(x.tolist()) == {1, 3, 6, 8}


def test_one_row_group_larger_than_the_budget_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS_READ", 10)
    [x] = sampled(opened(write(tmp_path / "a.parquet", {"x": range(1000)})))
    assert len(x) == 1000


def test_data_of_categories_only_needs_no_reading(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": ["a"], "y": pa.array(["b"]).dictionary_encode()}))
    (tmp_path / "a.parquet").unlink()
    assert [len(column) for column in sampled(dataset)] == [0, 0]
