"""Databases in files, and connections by the name of a function: as they are named on the command line."""

from __future__ import annotations

import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner
from reading import read_all, rows

from dray.cli.describe import describe
from dray.cli.ingest import ingest
from dray.cli.predict import predict
from dray.cli.train import train
from dray.data.open_source import open_source
from dray.data.sources.sql_database import database_of, is_address
from dray.errors import ConfigError, DataError, DrayError


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a database with SQLite's loose types."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE sales (id INTEGER, price REAL, kind TEXT, y INTEGER)")
        loose = [(i, "free" if i == 5 else i / 4, f"k{i % 3}", i % 2) for i in range(2_000)]
        connection.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", loose)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_sqlite_is_named_by_a_relative_or_an_absolute_path(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("sqlite:///shop.db", f"sqlite:///{shop}"):
        source = open_source(address, query="SELECT id, y FROM sales WHERE id < 3")
        monkeypatch.chdir("/")  # as a worker
        assert rows(source) == [{"id": 0, "y": 0}, {"id": 1, "y": 1}, {"id": 2, "y": 0}]
        monkeypatch.chdir(shop.parent)


def test_a_text_in_a_column_of_numbers_is_rejected_with_its_reason(shop: Path) -> None:
    source = open_source("sqlite:///shop.db", table="sales", key="id")
    table, [reject] = read_all(source, target_bytes=10_000)
    assert len(source.pieces(10_000)) > 1 and table.num_rows == 1_999
    assert [str(type_) for type_ in source.schema.types] == ["int64", "double", "string", "int64"]
    assert reject.reason == "column \"price\": 'free' is not double"


@pytest.mark.parametrize("address", ["sqlite:///late.db", "late:connect"])
def test_a_column_that_is_empty_in_the_first_rows_has_the_type_of_its_values(shop: Path, address: str) -> None:
    with closing(sqlite3.connect("late.db")) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER, late, never REAL)")
        values = [(i, None if i < 1_500 else i / 2, None) for i in range(2_000)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", values)
    (shop.parent / "late.py").write_text("import sqlite3\ndef connect():\n    return sqlite3.connect('late.db')\n")
    source = open_source(address, table="t")
    table, rejects = read_all(source)
    assert rejects == [] and table["late"].to_pylist() == [late for _, late, _ in values]
    assert str(source.schema.field("never").type) == ("double" if address.startswith("sqlite") else "string")


def test_a_fraction_in_a_column_of_whole_numbers_is_rejected_and_not_cut_off(shop: Path) -> None:
    with closing(sqlite3.connect("late.db")) as connection, connection:
        connection.execute("CREATE TABLE t (n NUMERIC)")
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(1_500)] + [(7.5,), (8.0,)])
    source = open_source("sqlite:///late.db", table="t")
    table, [reject] = read_all(source)
    assert table["n"].to_pylist() == [*range(1_500), 8] and reject.reason == "column \"n\": '7.5' is not int64"
    assert rows(open_source("sqlite:///late.db", table="t", types={"n": "double"}))[1_500] == {"n": 7.5}


def test_a_function_that_returns_no_connection_is_told(shop: Path) -> None:
    (shop.parent / "no_shop.py").write_text("def connect():\n    return 'shop.db'\n")
    with pytest.raises(ConfigError, match="no_shop:connect returned str, which is not a connection"):
        open_source("no_shop:connect", table="sales")


def test_what_to_read_from_a_database_is_told_in_flags(shop: Path) -> None:
    for table in ((), ("--read", "table=my sales")):
        done = CliRunner().invoke(describe, ["sqlite:///shop.db", *table])
        assert "--read 'query=SELECT ...'" in done.exception.fix  # type: ignore[union-attr]


def test_sqlite_is_only_read(shop: Path) -> None:
    with pytest.raises(DataError, match=r"readonly|syntax"):
        open_source("sqlite:///shop.db", query="DELETE FROM sales")
    connection = database_of("sqlite:///shop.db").connect()
    with closing(connection), pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM sales")
    assert open_source("sqlite:///shop.db", table="sales", key="id").rows == 2_000


@pytest.mark.parametrize("address", ["sqlite:///missing.db", "duckdb:missing.db", "duckdb:///missing.db", "sqlite://"])
def test_a_database_that_is_not_there_is_told_and_not_made(shop: Path, address: str) -> None:
    with pytest.raises(DataError, match=r"There is no (sqlite|duckdb) database"):
        open_source(address, table="t")
    assert {path.name for path in shop.parent.iterdir()} == {"shop.db"}


def test_duckdb_names_its_extra_where_it_is_not_installed(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"DuckDB databases need duckdb.*dray\[duckdb\]"):
        open_source(f"duckdb:{shop}", table="sales")


def test_duckdb_is_opened_by_its_path_to_read(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def connect(path: str, read_only: bool) -> sqlite3.Connection:
        opened.append((path, read_only))
        return sqlite3.connect(path)

    monkeypatch.setitem(sys.modules, "duckdb", types.SimpleNamespace(connect=connect))  # type: ignore[arg-type]
    for address in ("duckdb:shop.db", "duckdb:///shop.db", f"duckdb:{shop}", f"duckdb:///{shop}"):
        assert len(rows(open_source(address, query="SELECT id FROM sales"))) == 2_000
    assert set(opened) == {(str(shop), True)}


def test_a_function_that_connects_is_named_as_module_and_function(shop: Path) -> None:
    (shop.parent / "shop_rows.py").write_text("import sqlite3\ndef connect():\n    return sqlite3.connect('shop.db')\n")
    source = open_source("shop_rows:connect", query="SELECT id, y FROM sales")
    assert len(rows(source)) == 2_000
    with pytest.raises(DrayError, match=r'has no function "conect".*Did you mean "connect"'):
        open_source("shop_rows:conect", table="sales")


def test_a_file_with_a_colon_in_its_name_is_a_file(shop: Path) -> None:
    (shop.parent / "data:train").write_text("x\n1\n")
    assert not is_address("data:train") and is_address("data:other") and not is_address("s3://a/b:c")
    assert rows(open_source("data:train", format="csv")) == [{"x": 1}]


def test_every_command_takes_a_database(shop: Path) -> None:
    def run(command: Command, *arguments: str) -> str:
        done = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    table = ("sqlite:///shop.db", "--read", "query=SELECT id, kind, y FROM sales")
    run(train, *table, "--label", "y", "--ignore", "id", "--workers", "0", "--rounds", "3", "--out", "run")
    run(predict, "run", *table[:1], "out", *table[1:])
    run(ingest, *table[:1], "copy", *table[1:])
    assert "kind" in run(describe, *table)
    assert open_source("copy").rows == open_source("out").rows == 2_000
