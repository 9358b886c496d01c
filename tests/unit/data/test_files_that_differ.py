"""Files with other columns and types than the first, as data that grew over months has them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.data.parquet import open_dataset
from dray.data.parquet_rows import read_slices
from dray.errors import DataError
from dray.storage import DEFAULT
from small_data import opened, write


def read(dataset: Any, names: list[str], categories: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows as a worker reads them, from pickled slices."""
    slices = pickle.loads(pickle.dumps(dataset.row_groups))
    return [row for _, batch in read_slices(slices, names, categories or [], DEFAULT) for row in batch.to_pylist()]


def test_a_column_that_september_added_is_null_before(tmp_path: Path) -> None:
    for day in range(300):
        new = {"promo": [f"p{day}"]} if day >= 212 else {}
        write(tmp_path / f"{day:03}.parquet", {"x": [day], **new})
    dataset = opened(tmp_path)
    assert dataset.schema == pa.schema({"x": pa.int64(), "promo": pa.string()})
    assert [note.what for note in dataset.notes] == [
        f'Column "promo" is missing in 212 of 300 files (first: {tmp_path}/000.parquet): null there.'
    ]
    expected = [{"promo": f"p{day}" if day >= 212 else None, "x": day} for day in range(300)]
    assert read(dataset, ["promo", "x"]) == expected
    assert read(dataset, ["promo", "x"], ["promo"]) == expected
    assert read(dataset, ["promo"]) == [{"promo": row["promo"]} for row in expected]
    with pytest.raises(DataError, match='column "promo" is missing in 212 of 300 files'):
        open_dataset([str(tmp_path)], DEFAULT, "same")


def test_the_first_file_decides_nothing(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [1]})
    write(tmp_path / "b.parquet", {"x": [2], "new": [0.5]})
    write(tmp_path / "c.parquet", {"new": [1.5], "x": [3.5]})
    assert read(opened(tmp_path), ["new", "x"]) == [
        {"new": None, "x": 1.0}, {"new": 0.5, "x": 2.0}, {"new": 1.5, "x": 3.5}
    ]  # fmt: skip


def test_types_are_cast_in_every_batch(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"t": pa.array([0], pa.date32()), "n": pa.array([1], pa.int8())})
    write(tmp_path / "b.parquet", {"t": pa.array([1], pa.timestamp("ms")), "n": pa.array([None], pa.null())})
    write(tmp_path / "c.parquet", {"t": pa.array([1], pa.timestamp("us")), "n": pa.array([2**40], pa.int64())})
    dataset = opened(tmp_path)
    types = [batch.schema.types for _, batch in read_slices(dataset.row_groups, ["t", "n"], [], DEFAULT)]
    assert types == [[pa.timestamp("us"), pa.int64()]] * 3
    assert [row["n"] for row in read(dataset, ["n"])] == [1, None, 2**40]


def test_slices_of_files_that_differ_alike_share_what_differs(tmp_path: Path) -> None:
    wide = {f"c{i}": [1] for i in range(200)}
    for index in range(40):
        write(tmp_path / f"{index:02}.parquet", {"x": [1]} if index % 2 else {"x": [1], **wide})
    dataset = opened(tmp_path)
    slices = [group for group in dataset.row_groups if group.given]
    assert len(slices) == 20 and len({id(group.given) for group in slices}) == 1
    assert len(pickle.dumps(tuple(slices))) < 30_000


def test_a_column_of_a_directory_may_be_missing_in_its_files(tmp_path: Path) -> None:
    write(tmp_path / "m=1" / "a.parquet", {"x": [1]})
    write(tmp_path / "m=2" / "b.parquet", {"x": [2], "m": [2], "new": ["a"]})
    assert read(opened(tmp_path), ["new", "m", "x"]) == [
        {"new": None, "m": 1, "x": 1}, {"new": "a", "m": 2, "x": 2}
    ]  # fmt: skip


def test_columns_without_a_common_type_can_be_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [1], "zip": [1]})
    write(tmp_path / "b.parquet", {"x": [2], "zip": ["b"]})
    dataset = opened(tmp_path)
    assert dataset.schema.names == ["x"]
    assert read(dataset, ["x"]) == [{"x": 1}, {"x": 2}]


def test_a_file_without_row_groups_gives_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.int64()), "y": pa.array([], pa.string())}), tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", {"x": [1]})
    assert read(opened(tmp_path), ["x", "y"]) == [{"x": 1, "y": None}]


def test_a_number_that_the_common_type_would_change_is_told_with_the_flags_of_both_commands(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [2**53 + 1]})
    write(tmp_path / "b.parquet", {"x": [1.5]})
    dataset = open_dataset([str(tmp_path)], DEFAULT)
    with pytest.raises(DataError, match="int64, and double in all files together") as raised:
        list(read_slices(list(dataset.row_groups), ["x"], [], DEFAULT))
    assert "ignore" in raised.value.fix and "columns" in raised.value.fix
