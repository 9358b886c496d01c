from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.data import parquet_rows
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.errors import DataError, StorageError
from dray.storage import DEFAULT
from living import open_files
from small_data import opened, small_batches, write


def test_the_footers_tell_rows_row_groups_and_positions_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", {"x": range(5)}, 3)
    write(tmp_path / "a.parquet", {"x": range(4)}, 4)
    dataset = opened(tmp_path)
    a, b = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    assert dataset.row_groups == (Slice(a, 0, 0, 4, 0), Slice(b, 0, 0, 3, 4), Slice(b, 1, 0, 2, 7))
    assert (dataset.rows, dataset.files) == (9, [a, b])
    assert dataset.bytes > 0


def test_empty_row_groups_and_files_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"x": pa.array([], pa.int64())}))
    write(tmp_path / "b.parquet", {"x": [1, 2]})
    with pq.ParquetWriter(tmp_path / "c.parquet", pa.schema({"x": pa.int64()})) as writer:
        writer.write_table(pa.table({"x": pa.array([], pa.int64())}))
        writer.write_table(pa.table({"x": [3]}))
    dataset = opened(tmp_path)
    assert [piece.rows for piece in dataset.row_groups] == [2, 1]
    [(_, batch)] = read_slices(dataset.row_groups[1:], ["x"], [], DEFAULT)
    assert batch.column("x").to_pylist() == [3]


def test_data_without_rows_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"x": pa.array([], pa.int64())}))
    with pytest.raises(DataError, match="There are no rows in"):
        opened(tmp_path)


@pytest.mark.parametrize("content", [b"", b"id,label\n1,0\n", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"Cannot read .*bad\.parquet as Parquet"):
        opened(tmp_path / "bad.parquet")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    whole = Path(write(tmp_path / "whole.parquet", {"x": range(1000)}))
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"Cannot read .*cut\.parquet as Parquet") as raised:
        opened(tmp_path)
    assert "complete" in raised.value.fix


def test_damage_that_only_shows_when_rows_are_read_names_the_file(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "damaged.parquet", {"x": [float(i) * 1.7 for i in range(5000)]}, 5000))
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)
    dataset = opened(path)
    with pytest.raises(DataError, match=r"Cannot read .*damaged\.parquet as Parquet"):
        list(read_slices(dataset.row_groups, ["x"], [], DEFAULT))


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": [1]}))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(StorageError, match=r"a\.parquet does not exist"):
        list(read_slices(dataset.row_groups, ["x"], [], DEFAULT))


def test_files_may_order_their_columns_differently(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": [1], "y": [2]})
    write(tmp_path / "b.parquet", {"y": [4], "x": [3]})
    dataset = opened(tmp_path)
    rows = [
        batch.select(["x", "y"]).to_pylist() for _, batch in read_slices(dataset.row_groups, ["x", "y"], [], DEFAULT)
    ]
    assert rows == [[{"x": 1, "y": 2}], [{"x": 3, "y": 4}]]


def test_text_may_be_plain_in_one_file_and_a_dictionary_in_another(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": ["u"]})
    write(tmp_path / "b.parquet", {"x": pa.array(["v"]).dictionary_encode()})
    write(tmp_path / "c.parquet", {"x": pa.array(["w"], pa.large_string())})
    dataset = opened(tmp_path)
    found = [batch.column("x") for _, batch in read_slices(dataset.row_groups, ["x"], ["x"], DEFAULT)]
    assert [column.to_pylist() for column in found] == [["u"], ["v"], ["w"]]
    assert all(pa.types.is_dictionary(column.type) for column in found)


def test_a_column_that_is_all_null_in_one_file_has_the_type_of_the_others(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"text": pa.nulls(1), "number": pa.nulls(1), "nothing": pa.nulls(1)})
    write(tmp_path / "b.parquet", {"text": ["u"], "number": [1.5], "nothing": pa.nulls(1)})
    dataset = opened(tmp_path)
    assert [str(field.type) for field in dataset.schema] == ["string", "double", "null"]
    names = dataset.schema.names
    rows = [batch.to_pylist() for _, batch in read_slices(dataset.row_groups, names, ["text"], DEFAULT)]
    assert [row["text"] for [row] in rows] == [None, "u"]


def test_a_type_that_comes_from_a_later_file_is_blamed_on_that_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"x": pa.nulls(1)})
    write(tmp_path / "b.parquet", {"x": [1]})
    write(tmp_path / "c.parquet", {"x": ["u"]})
    with pytest.raises(DataError) as raised:
        opened(tmp_path)
    assert f"int64 in {tmp_path / 'b.parquet'} but string in {tmp_path / 'c.parquet'}" in raised.value.what


@pytest.mark.parametrize("damaged", ["a", "b"])
def test_a_name_that_stands_twice_in_a_file_is_refused(tmp_path: Path, damaged: str) -> None:
    for name in "ab":
        names = ["x", "x"] if name == damaged else ["x", "y"]
        write(tmp_path / f"{name}.parquet", pa.table([pa.array([1]), pa.array([2])], names=names))
    with pytest.raises(DataError, match=rf'{damaged}\.parquet has two columns "x"'):
        opened(tmp_path)


def test_names_with_dots_are_plain_names(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"a": [1], "a.b": ["u"]}))
    [(_, batch)] = read_slices(dataset.row_groups, ["a.b"], ["a.b"], DEFAULT)
    assert batch.column("a.b").to_pylist() == ["u"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 20)), min_size=1, max_size=6), st.integers(1, 25))
def test_slices_are_read_as_they_stand_whatever_the_batch_size(
    cut_file: Slice, borders: list[tuple[int, int]], batch_rows: int
) -> None:
    slices = [
        Slice(cut_file.file, index % 2, start, min(20, start + rows), 1000 * index)
        for index, (start, rows) in enumerate(borders)
    ]
    with pytest.MonkeyPatch.context() as patch:
        small_batches(patch, batch_rows)
        parts = list(read_slices(slices, ["x"], [], DEFAULT))
    read = [value for _, batch in parts for value in batch.column("x").to_pylist()]
    assert read == [20 * piece.row_group + row for piece in slices for row in range(piece.start, piece.stop)]
    for part, batch in parts:
        assert part.rows == batch.num_rows
        origin = slices[part.position // 1000]
        assert part.position - origin.position == part.start - origin.start


@pytest.fixture(scope="module")
def cut_file(tmp_path_factory: pytest.TempPathFactory) -> Slice:
    """A file with two row groups of 20 rows."""
    dataset = opened(write(tmp_path_factory.mktemp("cut") / "a.parquet", {"x": range(40)}, 20))
    return dataset.row_groups[0]


def test_reading_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "SMALL_ROWS", 1)
    monkeypatch.setattr(parquet_rows, "WHOLE_FILE_BYTES", 0)
    dataset = opened(*(write(tmp_path / f"{index}.parquet", {"x": range(3)}) for index in range(5)))
    batches = read_slices(dataset.row_groups, ["x"], [], DEFAULT)
    for _ in range(3):
        next(batches)
    assert files_open(tmp_path) == 1
    batches.close()
    assert files_open(tmp_path) == 0


def test_small_files_that_are_read_ahead_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(parquet_rows, "MOST_FILES", 2)
    dataset = opened(*(write(tmp_path / f"{index:02}.parquet", {"x": [index]}) for index in range(30)))
    batches = read_slices(dataset.row_groups, ["x"], [], DEFAULT)
    next(batches)
    batches.close()
    for thread in threading.enumerate():
        if thread.name.startswith("dray-read"):
            thread.join(10)
    assert files_open(tmp_path) == 0


def files_open(below: Path) -> int:
    return sum(str(below) in name for name in open_files())
