"""Files, row groups and directories."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dray
from dray.errors import DataError
from dray.ingesting import plan, writing
from dray.ingesting.recipe import HashSplit, Recipe
from dray.ingesting.writing import NO_VALUE, Layout, divide, repeating
from dray.ingesting.written import Written
from dray.storage import DEFAULT


def layout(out: Path, columns: tuple[str, ...], group_bytes: int = 1 << 20, **recipe: Any) -> Layout:
    return Layout(str(out), DEFAULT, str(out / "_ingest" / "scratch"), Recipe(**recipe), columns, group_bytes)


@pytest.fixture
def hundred_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least rows of a row group."""
    monkeypatch.setattr(plan, "LEAST_GROUP_ROWS", 100)


@pytest.mark.usefixtures("hundred_rows")
def test_row_groups_have_an_even_size_whatever_the_batches(tmp_path: Path) -> None:
    batches = [pa.record_batch({"x": pa.array(range(start, start + rows))}) for start, rows in ((0, 10), (10, 990))]
    with layout(tmp_path, ("x",), group_bytes=800).open("part.parquet") as parts:
        for batch in batches:
            parts.add(batch)
        (written,) = parts.finish()
    assert groups_of(tmp_path / "part.parquet") == [100] * 10
    assert written == Written("part.parquet", 1000, (tmp_path / "part.parquet").stat().st_size)
    assert pq.read_table(tmp_path / "part.parquet")["x"].to_pylist() == list(range(1000))


@pytest.mark.usefixtures("hundred_rows")
def test_the_rest_goes_along_with_the_last_row_group(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(range(240))})
    layout(tmp_path, ("x",), group_bytes=800).write("part.parquet", table)
    assert groups_of(tmp_path / "part.parquet") == [100, 140]


def test_a_small_file_is_one_row_group_whatever_its_first_rows_are(tmp_path: Path) -> None:
    long = pa.record_batch({"x": pa.array(["a" * 1_000_000])})
    short = pa.record_batch({"x": pa.array(["a"] * 60_000)})
    with layout(tmp_path, ("x",), group_bytes=1).open("part.parquet") as parts:
        parts.add(long)
        parts.add(short)
        parts.finish()
    assert groups_of(tmp_path / "part.parquet") == [60_001]


def test_wide_rows_are_written_before_they_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "WIDE_GROUP_BYTES", 40_000)
    wide = pa.record_batch({"x": pa.array(["a" * 1_000] * 100)})
    with layout(tmp_path, ("x",), group_bytes=1).open("part.parquet") as parts:
        parts.add(pa.record_batch({"x": pa.array(["a"] * 20)}))
        for _ in range(3):
            parts.add(wide)
        parts.finish()
    assert all(30 <= rows <= 70 for rows in groups_of(tmp_path / "part.parquet"))


def test_a_dictionary_that_batches_share_does_not_count_for_each(tmp_path: Path) -> None:
    colours = pa.array([f"colour {index}" for index in range(100_000)])
    with layout(tmp_path, ("x",), group_bytes=1).open("part.parquet") as parts:
        for start in range(100):
            codes = pa.array(range(start * 10, start * 10 + 10), pa.int32())
            parts.add(pa.record_batch({"x": pa.DictionaryArray.from_arrays(codes, colours)}))
        parts.finish()
    assert groups_of(tmp_path / "part.parquet") == [1000]


def groups_of(file: Path) -> list[int]:
    footer = pq.read_metadata(file)
    return [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]


def test_a_file_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyError), layout(tmp_path, ("x",)).open("part.parquet") as parts:
        parts.add(pa.record_batch({"x": [1, 2]}))
        raise KeyError
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_only_columns_whose_values_come_again_get_a_dictionary() -> None:
    batch = pa.record_batch(
        {
            "id": pa.array(range(1000)),
            "colour": pa.array(["red", "blue"] * 500),
            "price": pa.array([float(i) for i in range(1000)]),
            "grade": pa.array([float(i % 5) for i in range(1000)]),
            "list": pa.array([[1]] * 1000),
            "nothing": pa.nulls(1000),
            "level": pa.array(["a", "b"] * 500).dictionary_encode(),
        }
    )
    assert repeating(batch) == ["colour", "grade", "level"]


@pytest.mark.parametrize(
    ("values", "folders"),
    [
        ([1, None, 2], ["v=1", f"v={NO_VALUE}", "v=2"]),
        (["a/b", "x=y", "50%", "ü", "..", " "], ["v=a%2Fb", "v=x%3Dy", "v=50%25", "v=%C3%BC", "v=..", "v= "]),
        ([True, False], ["v=true", "v=false"]),
        ([date(2026, 1, 2)], ["v=2026-01-02"]),
        ([datetime(2026, 1, 2, 3)], ["v=2026-01-02 03%3A00%3A00"]),
        ([NO_VALUE, None], [f"v={NO_VALUE.replace('_', '%5F')}", f"v={NO_VALUE}"]),
        ([1.5], ["v=1.5"]),
    ],
)
def test_values_as_names_of_directories(values: list[Any], folders: list[str]) -> None:
    assert sorted(folder for folder, _ in divide(pa.record_batch({"v": pa.array(values)}), ["v"])) == sorted(folders)


def test_rows_of_a_directory_stay_in_their_order(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [2, 1, None, 2, 1, None], "b": pa.array(list("xyxxyx")), "row": range(6)})
    found = {folder: rows["row"].to_pylist() for folder, rows in divide(batch, ["a", "b"])}
    assert found == {"a=2/b=x": [0, 3], "a=1/b=y": [1, 4], f"a={NO_VALUE}/b=x": [2, 5]}
    encoded = batch.set_column(1, "b", batch["b"].dictionary_encode())
    assert {folder: rows["row"].to_pylist() for folder, rows in divide(encoded, ["a", "b"])} == found


def test_directories_are_read_back_by_others(tmp_path: Path) -> None:
    table = pa.table({"day": ["a/b", None, "ü", "a/b"], "x": [1, 2, 3, 4]})
    layout(tmp_path, ("x",), partition_by=("day",)).write("part.parquet", table)
    read = ds.dataset(tmp_path, partitioning="hive", format="parquet").to_table().sort_by("x")
    assert read.to_pydict() == {"x": [1, 2, 3, 4], "day": ["a/b", None, "ü", "a/b"]}


def test_too_many_directories_are_refused(tmp_path: Path) -> None:
    table = pa.table({"user": range(1002)})
    with pytest.raises(DataError, match="user has more than 1,000 values"):
        layout(tmp_path, ("user",), partition_by=("user",)).write("part.parquet", table)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_many_directories_share_the_memory_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BUFFER_BYTES", 1000)
    with layout(tmp_path, ("k", "x"), partition_by=("k",)).open("part.parquet") as parts:
        for start in range(0, 1000, 50):
            parts.add(pa.record_batch({"k": [i % 5 for i in range(start, start + 50)], "x": range(start, start + 50)}))
        written = parts.finish()
    assert [(file.name, file.rows) for file in written] == [(f"k={k}/part.parquet", 200) for k in range(5)]
    assert pq.read_table(tmp_path / "k=2", partitioning=None)["x"].to_pylist() == list(range(2, 1000, 5))


def test_parts_and_directories_go_together(tmp_path: Path) -> None:
    table = pa.table({"k": [i % 2 for i in range(100)], "x": range(100)})
    split = HashSplit(share=0.3)
    written = layout(tmp_path, ("x",), partition_by=("k",), split=split).write("part.parquet", table)
    assert {file.name for file in written} == {f"{p}/k={k}/part.parquet" for p in ("train", "test") for k in (0, 1)}
    assert sum(file.rows for file in written) == 100
    assert {file.part for file in written} == {"train", "test"}


def test_a_column_that_parquet_cannot_hold_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    spans = pa.array([pa.MonthDayNano([1, 2, 3])] * 2)
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), pa.schema([("x", pa.int64()), ("span", spans.type)])) as writer:
        writer.write_batch(pa.record_batch([pa.array([1, 2]), spans], ["x", "span"]))
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r'"span" is of a type that Parquet does not have'):
        dray.ingest(str(tmp_path / "rows.arrow"), str(out))
    assert not out.exists()
    assert dray.ingest(str(tmp_path / "rows.arrow"), str(out), columns=["x"]).rows_kept == 2


def test_uuids_and_other_types_upon_types_are_kept(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([bytes([i % 3]) * 16 for i in range(30)], pa.uuid()),
            "of_list": pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int64(), [2]), pa.array([[i, i] for i in range(30)], pa.list_(pa.int64(), 2))
            ),
        }
    )
    assert repeating(table.to_batches()[0]) == ["id"]
    pq.write_table(table, tmp_path / "rows.parquet")
    for number, source in enumerate([table, str(tmp_path / "rows.parquet")]):
        out = tmp_path / str(number)
        assert dray.ingest(source, str(out)).rows_kept == 30
        assert pq.read_table(out).equals(table)
