"""One way to open everything; Parquet, Arrow, Delta Lake and tables in memory."""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from reading import read_all, rows

from dray.data.open_source import open_source
from dray.data.source import Source
from dray.data.sources.beside import beside
from dray.errors import ConfigError, DataError, DrayError, StorageError

TABLE = pa.table({"x": range(100), "s": [f"t{i}" for i in range(100)]})
ROWS = TABLE.to_pylist()


def stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=30)


def arrow_file(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=30)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "write", "pieces"),
        [
            ("a.parquet", lambda path: pq.write_table(TABLE, path, row_group_size=30), 4),
            ("a", lambda path: pq.write_table(TABLE, path, row_group_size=30), 4),
            ("a.arrow", arrow_file, 4),
            ("a.arrows", stream, 1),
            ("a.feather", lambda path: feather.write_feather(TABLE, str(path), chunksize=30), 4),
        ],
    )
    def test_files_with_types_are_read_by_their_own_parts(
        self, tmp_path: Path, name: str, write: object, pieces: int
    ) -> None:
        write(tmp_path / name)  # type: ignore[operator]
        source = open_source(str(tmp_path))
        assert isinstance(source, Source)
        assert len(source.pieces(1)) == pieces
        assert len(source.pieces()) == 1
        assert rows(source, 1) == ROWS
        assert read_all(source, ["s"], 1)[0].column_names == ["s"]

    def test_parquet_tells_its_rows(self, tmp_path: Path) -> None:
        pq.write_table(TABLE, tmp_path / "a.parquet")
        assert open_source(str(tmp_path)).rows == 100

    def test_a_dictionary_in_one_file_and_text_in_another_are_one_column(self, tmp_path: Path) -> None:
        pq.write_table(TABLE, tmp_path / "a.parquet")
        pq.write_table(TABLE.set_column(1, "s", TABLE["s"].dictionary_encode()), tmp_path / "b.parquet")
        assert rows(open_source(str(tmp_path))) == ROWS * 2

    @pytest.mark.parametrize("ending", ["parquet", "arrow"])
    def test_other_types_in_another_file_are_told_with_both_names(self, tmp_path: Path, ending: str) -> None:
        for name, table in (("a", pa.table({"x": [1]})), ("b", pa.table({"x": ["many"]}))):
            path = tmp_path / f"{name}.{ending}"
            pq.write_table(table, path) if ending == "parquet" else feather.write_feather(table, str(path))
        with pytest.raises(DataError, match=r'column "x" is int64 in .*a\.\w+ but string in .*b\.'):
            open_source(str(tmp_path))

    @pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
    @pytest.mark.parametrize("content", [b"", b"PAR1 is not all", b"ARROW1 is not all"])
    def test_a_damaged_or_empty_file_is_told_by_name(self, tmp_path: Path, name: str, content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"Cannot read .*{name}"):
            open_source(str(tmp_path))

    def test_several_formats_at_once_are_refused_with_their_files(self, tmp_path: Path) -> None:
        pq.write_table(TABLE, tmp_path / "a.parquet")
        (tmp_path / "b.csv").write_text("x,s\n1,t\n")
        (tmp_path / "c.csv.gz").write_bytes(b"")
        with pytest.raises(DataError, match=r"several formats: 2 csv \(.*b\.csv\), 1 parquet \(.*a\.parquet\)"):
            open_source(str(tmp_path))
        assert rows(open_source(str(tmp_path / "*.csv"))) == [{"x": 1, "s": "t"}]

    def test_a_name_that_tells_nothing_needs_the_format(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("x\n1\n")
        with pytest.raises(DataError, match="is not known from its name"):
            open_source(str(tmp_path))
        assert len(rows(open_source(str(tmp_path), format="csv"))) == 1
        (tmp_path / "data").write_text("x,s\n1,t\n")
        assert rows(open_source(str(tmp_path))) == [{"x": 1, "s": "t"}]
        with pytest.raises(ConfigError, match=r'no format "cvs". Did you mean "csv"'):
            open_source(str(tmp_path), format="cvs")

    def test_the_file_of_a_database_is_told_with_its_address(self, tmp_path: Path) -> None:
        database = tmp_path / "shop.db"
        with sqlite3.connect(database) as connection:
            connection.execute("CREATE TABLE orders (x INTEGER)")
            connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(DataError, match="is a database of sqlite") as raised:
            open_source(str(database))
        address = re.search(r"sqlite:///\S+", raised.value.fix)
        assert address is not None
        assert rows(open_source(address[0], table="orders")) == [{"x": 1}]
        (tmp_path / "shop.duckdb").write_bytes(bytes(8) + b"DUCK" + bytes(100))
        with pytest.raises(DataError, match="is a database of duckdb"):
            open_source(str(tmp_path / "shop.duckdb"))

    def test_a_file_of_another_format_than_its_name_says_is_told(self, tmp_path: Path) -> None:
        pq.write_table(TABLE, tmp_path / "a.csv")
        with pytest.raises(DataError, match=r"a\.csv holds parquet, not CSV.*--format parquet"):
            open_source(str(tmp_path / "a.csv"))
        assert rows(open_source(str(tmp_path / "a.csv"), format="parquet")) == ROWS

    def test_a_location_that_is_not_supported_is_told_as_it_was_given(self) -> None:
        with pytest.raises(StorageError, match=r"not supported: https://host/a\.csv\."):
            open_source("https://host/a.csv")


class TestDelta:
    def make(self, path: Path, **options: object) -> str:
        write_deltalake(path, pa.table({"x": [1, 2], "p": ["a é", "b"]}), partition_by=["p"], **options)
        write_deltalake(path, pa.table({"x": [3], "p": ["b"]}), mode="append")
        return str(path)

    def test_a_table_is_read_by_files_at_one_version(self, tmp_path: Path) -> None:
        location = self.make(tmp_path / "t")
        source = open_source(location)
        assert (source.format, source.rows, len(source.pieces())) == ("delta", 3, 3)
        write_deltalake(location, pa.table({"x": [4], "p": ["b"]}), mode="overwrite")
        found = sorted(rows(source), key=lambda row: row["x"])
        assert found == [{"x": 1, "p": "a é"}, {"x": 2, "p": "b"}, {"x": 3, "p": "b"}]
        assert {row["x"] for row in rows(open_source(location, version=0))} == {1, 2}
        assert read_all(open_source(location), ["p"])[0].to_pydict() == {"p": ["b"]}

    def test_a_column_that_came_later_is_missing_before(self, tmp_path: Path) -> None:
        location = self.make(tmp_path / "t")
        write_deltalake(location, pa.table({"x": [5], "p": ["b"], "new": [1.5]}), mode="append", schema_mode="merge")
        found = {row["x"]: row["new"] for row in rows(open_source(location))}
        assert found == {1: None, 2: None, 3: None, 5: 1.5}

    @pytest.mark.parametrize(
        "configuration", [{"delta.columnMapping.mode": "name"}, {"delta.enableDeletionVectors": "true"}]
    )
    def test_tables_whose_files_do_not_tell_are_read_by_the_engine(
        self, tmp_path: Path, configuration: dict[str, str]
    ) -> None:
        location = self.make(tmp_path / "t", configuration=configuration)
        DeltaTable(location).delete("x = 2")
        source = open_source(location)
        assert len(source.pieces(1)) == 1
        table, _ = read_all(source, ["p", "x"])
        assert sorted(table.to_pylist(), key=lambda row: row["x"]) == [{"p": "a é", "x": 1}, {"p": "b", "x": 3}]

    def test_what_is_not_there_is_told(self, tmp_path: Path) -> None:
        location = self.make(tmp_path / "t")
        with pytest.raises(DataError, match="Cannot read version 7 of"):
            open_source(location, version=7)
        with pytest.raises(DataError, match="no Delta Lake table at"):
            open_source(str(tmp_path / "u"), format="delta")
        source = open_source(location)
        for file in (tmp_path / "t").rglob("*.parquet"):
            file.unlink()
        with pytest.raises(DrayError, match=r"does not exist|Cannot read"):
            read_all(source)

    def test_without_the_library_the_extra_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        location = self.make(tmp_path / "t")
        monkeypatch.setitem(sys.modules, "deltalake", None)
        with pytest.raises(ConfigError, match=r"pip install 'dray\[delta\]'"):
            open_source(location)


class TestTables:
    @pytest.mark.parametrize(
        "table", [TABLE, TABLE.to_batches()[0], TABLE.to_pandas(), pl.DataFrame(ROWS), pl.DataFrame(ROWS).lazy()]
    )
    def test_a_table_of_any_library_is_a_source(self, table: object) -> None:
        source = open_source(table)
        assert source.rows == 100
        assert source.schema == TABLE.schema
        assert len(source.pieces(source.bytes // 4)) == 4
        assert rows(source, source.bytes // 4) == ROWS

    def test_categories_and_missing_values_come_along(self) -> None:
        frame = pd.DataFrame({"c": pd.Categorical(["a", None, "a"]), "f": [1.0, None, 2.0]}, index=[5, 6, 7])
        assert [row["c"] for row in rows(open_source(frame))] == ["a", None, "a"]
        assert [row["f"] for row in rows(open_source(frame))] == [1.0, None, 2.0]
        polars = pl.DataFrame({"c": ["a", None, "a"]}, schema={"c": pl.Categorical})
        assert [row["c"] for row in rows(open_source(polars))] == ["a", None, "a"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (pd.cut(pd.Series([1, 4]), [0, 2, 4]), ["(0, 2]", "(2, 4]"]),
            (
                pd.Series(pd.arrays.IntervalArray.from_tuples([(0, 1), None, (1, 2)])),
                ["(0.0, 1.0]", None, "(1.0, 2.0]"],
            ),
            (pd.Series(pd.PeriodIndex(["2024-01", None, "2024-03"], freq="M")), ["2024-01", None, "2024-03"]),
            (pd.Series([UUID(int=1), None, UUID(int=2)]), [str(UUID(int=1)), None, str(UUID(int=2))]),
            (pd.Series(pd.arrays.SparseArray([0, 1, 0])), [0, 1, 0]),
            (pd.Series(pd.arrays.SparseArray([0.5, None, 0.0])), [0.5, None, 0.0]),
        ],
    )
    def test_types_of_pandas_own_are_text_or_what_they_hold(self, values: pd.Series, expected: list[object]) -> None:
        assert [row["x"] for row in rows(open_source(pd.DataFrame({"x": values})))] == expected

    @pytest.mark.parametrize(
        ("table", "error"),
        [
            (pd.DataFrame({"x": [1, "a"]}), 'Column "x" of the pandas frame has values of several kinds'),
            (pd.DataFrame({"x": [1, 10**25]}), 'Column "x" of the pandas frame has whole numbers beyond 64 bits'),
            (pd.DataFrame([[1]], columns=[["a"], ["b"]]), r"several parts, such as \('a', 'b'\)"),
            (pd.DataFrame([[1, 2]], columns=["x", "x"]), 'two columns "x"'),
            (TABLE.slice(0, 0), "no rows"),
        ],
    )
    def test_a_table_that_cannot_be_used_is_told(self, table: object, error: str) -> None:
        with pytest.raises(DataError, match=error):
            open_source(table)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (np.zeros((2, 2)), "Data of the type ndarray cannot be read"),
        ({"x": [1, 2]}, "Data of the type dict"),
        ([pd.DataFrame(ROWS)] * 2, "An item of the type DataFrame"),
        (None, "Data of the type NoneType"),
        (pd.Series([1]), "Data of the type Series"),
        ([{"x": 1}], "Data of the type dict"),
        (pa.table({"x": [1]}).to_reader(), "Data of the type RecordBatchReader"),
    ],
)
def test_what_is_no_data_is_told_by_its_type(data: object, error: str) -> None:
    with pytest.raises(DataError, match=error) as raised:
        open_source(data)
    assert "a table of pandas, polars or Arrow" in raised.value.fix


class TestFilesBesideTheData:
    @pytest.mark.parametrize("ending", ["csv", "json", "parquet", "arrow"])
    def test_a_readme_and_checksums_are_passed_over_with_a_note(self, tmp_path: Path, ending: str) -> None:
        table = pa.table({"x": [1, 2]})
        for name in ("a", "b"):
            path = tmp_path / f"{name}.{ending}"
            if ending == "parquet":
                pq.write_table(table, path)
            elif ending == "arrow":
                feather.write_feather(table, path)
            else:
                path.write_text("x\n1\n2\n" if ending == "csv" else '{"x": 1}\n{"x": 2}\n')
        for name in ("README.txt", f"a.{ending}.md5", "_SUCCESS", ".DS_Store", "load.log", "LICENSE"):
            (tmp_path / name).write_text("these are no rows")
        for location in (str(tmp_path), f"{tmp_path}/*"):
            source = open_source(location)
            assert sum(len(batch) for piece in source.pieces() for batch in source.read(piece, None, print)) == 4
            [note] = source.notes
            assert note.what == f"4 files beside the data passed over: LICENSE, README.txt, a.{ending}.md5, load.log."

    @pytest.mark.parametrize("name", ["license_plates.csv", "notice-2024.csv.gz", "changelog.csv", "readme.v2.tsv"])
    def test_a_file_with_the_ending_of_data_is_never_passed_over(self, tmp_path: Path, name: str) -> None:
        assert beside(["a.csv", name], []) == []
        assert beside(["a.csv", f"{name}.md5"], []) == [f"{name}.md5"]

    def test_a_file_that_is_named_is_never_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("x\n1\n")
        (tmp_path / "b.log").write_text("x\n2\n")
        source = open_source([str(tmp_path / "a.csv"), str(tmp_path / "b.log")], format="csv")
        assert len(source.pieces()) == 2 and source.notes == ()

    def test_a_directory_of_nothing_else_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "a.log").write_text('{"x": 1}\n')
        assert open_source(str(tmp_path)).format == "json"

    def test_a_file_of_0_bytes_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("x\n1\n")
        (tmp_path / "b.csv").write_text("")
        [note] = open_source(str(tmp_path)).notes
        assert note.what == f"1 file has 0 bytes, and no rows (first: {tmp_path}/b.csv)."


def test_one_table_in_a_list_is_that_table() -> None:
    assert open_source([pd.DataFrame({"x": [1, 2]})]).rows == 2
