from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.data import statistics
from dray.data.parquet import open_dataset
from dray.data.statistics import UNKNOWN, Statistics
from dray.storage import DEFAULT
from small_data import opened, write


def known(*locations: Path) -> Statistics:
    return open_dataset([str(location) for location in locations], DEFAULT, statistics=lambda _: True).statistics


def test_nulls_are_known_by_row_group_and_ranges_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [None, 2, None, None], "t": ["a", None, "b", "c"]}, 2)
    write(tmp_path / "b.parquet", {"x": [7, -3], "t": pa.nulls(2, pa.string())}, 2)
    found = known(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert dict(found.nulls) == {"x": (1, 2, 0), "t": (1, 0, 2)}
    assert dict(found.ranges) == {"x": (-3, 7)}


def test_a_column_without_statistics_is_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "y": [1, None]}), tmp_path / "a.parquet", write_statistics=["x"])
    write(tmp_path / "b.parquet", {"x": [1, 2], "y": [1, 2]})
    found = known(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert list(found.nulls) == ["x"] and list(found.ranges) == ["x"]


def test_nan_is_no_null_and_no_end_of_a_range(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [float("nan"), 2.5, 1.0], "n": pa.nulls(3, pa.int64())})
    found = known(tmp_path / "a.parquet")
    assert found.nulls["x"] == (0,) and found.ranges["x"] == (1.0, 2.5)
    assert found.nulls["n"] == (3,) and "n" not in found.ranges


def test_columns_of_directories_have_none(tmp_path: Path) -> None:
    write(tmp_path / "day=20240101" / "a.parquet", {"x": [1]})
    write(tmp_path / "day=20240102" / "a.parquet", {"x": [1]})
    assert list(known(tmp_path).nulls) == ["x"]


def test_statistics_are_read_only_where_they_are_asked_for_and_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(tmp_path / "a.parquet", {"x": [1], "y": [2]})
    assert opened(place).statistics is UNKNOWN
    monkeypatch.setattr(statistics, "MOST_CHUNKS", 1)
    assert known(tmp_path / "a.parquet") is UNKNOWN
