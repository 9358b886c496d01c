"""Rows of databases: PostgreSQL for real, SQLite as any DB-API driver, Databricks by a stand-in."""

from __future__ import annotations

import datetime as dt
import pickle
import sqlite3
import sys
import types
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postgres_server import PASSWORD, PostgresServer
from reading import read_all, rows

from dray.data.open_source import open_source
from dray.data.sources.sql_database import Database
from dray.data.sources.sql_ranges import KeyRange
from dray.errors import ConfigError, DataError, DrayError, StorageError


@pytest.fixture
def filled(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    def execute(*statements: str) -> None:
        with closing(Database(postgres.address).connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    execute(
        'CREATE TABLE sales (id bigint, day date, at timestamptz, price numeric(12,2), "Kind" text, ok boolean)',
        "INSERT INTO sales SELECT i, DATE '2024-01-01' + (i / 10), TIMESTAMPTZ '2024-01-01 00:00+00' + i * INTERVAL "
        "'1 hour', i * 1.25, CASE WHEN i % 3 = 0 THEN NULL ELSE 'k' || (i % 3) END, i % 2 = 0 "
        "FROM generate_series(1, 1000) AS i",
        "INSERT INTO sales VALUES (NULL, NULL, NULL, NULL, 'no key', NULL)",
    )
    yield postgres
    monkeypatch.setenv("DRAY_TEST_PASSWORD", PASSWORD)
    execute("DROP TABLE sales")


class TestPostgres:
    def test_a_table_is_read_with_its_types(self, filled: PostgresServer) -> None:
        source = open_source(filled.address, table="sales")
        assert [str(type_) for type_ in source.schema.types] == [
            "int64", "date32[day]", "timestamp[us, tz=UTC]", "double", "string", "bool",
        ]  # fmt: skip
        table, rejects = read_all(source)
        assert (table.num_rows, rejects) == (1001, [])
        assert table.slice(1, 1).to_pylist() == [
            {
                "id": 2, "day": dt.date(2024, 1, 1), "at": dt.datetime(2024, 1, 1, 2, tzinfo=dt.UTC), "price": 2.5,
                "Kind": "k2", "ok": True,
            }
        ]  # fmt: skip

    @pytest.mark.parametrize("key", ["id", "day", "at", "price"])
    def test_ranges_of_a_key_hold_every_row_once_also_that_without_a_key(
        self, filled: PostgresServer, key: str
    ) -> None:
        source = open_source(filled.address, query="SELECT * FROM sales;", key=key)
        assert source.rows == 1001
        pieces = source.pieces(4_000)
        assert len(pieces) > 5
        table, _ = read_all(source, ["id", "Kind"], target_bytes=4_000)
        assert sorted(table["id"].to_pylist(), key=lambda i: i or 0) == [None, *range(1, 1001)]
        per_piece = [sum(b.num_rows for b in source.read(piece, ["id"], print)) for piece in pieces]
        assert max(per_piece) < 2 * min(per_piece) + 10

    def test_rows_that_come_beyond_the_ends_are_in_the_first_and_last_range(self, filled: PostgresServer) -> None:
        source = open_source(filled.address, query="SELECT * FROM sales", key="id")
        beyond = source.__class__(
            source.name, source.database, source.query, source.schema, source.rows, source.bytes,
            KeyRange('"id"', 100, 200),
        )  # fmt: skip
        assert read_all(beyond, ["id"], target_bytes=4_000)[0].num_rows == 1001

    def test_no_password_is_in_a_source_an_error_or_a_pickle(
        self, filled: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = open_source(filled.address, table="sales")
        assert PASSWORD not in repr(source) + source.name
        assert PASSWORD.encode() not in pickle.dumps(source)
        monkeypatch.setenv("DRAY_TEST_PASSWORD", "another secret")
        with pytest.raises(StorageError, match="password authentication failed") as refused:
            read_all(source)
        assert "another secret" not in str(refused.value)
        assert refused.value.__cause__ is None

    def test_a_worker_without_the_variable_says_which_it_lacks(
        self, filled: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = open_source(filled.address, table="sales")
        monkeypatch.delenv("DRAY_TEST_PASSWORD")
        with pytest.raises(ConfigError, match="The variable DRAY_TEST_PASSWORD is not set here"):
            read_all(source)

    def test_an_address_may_be_a_variable_as_a_whole(
        self, filled: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from urllib.parse import quote

        address = filled.address.replace("${DRAY_TEST_PASSWORD}", quote(PASSWORD, safe=""))
        monkeypatch.setenv("DATABASE_URL", address)
        source = open_source("${DATABASE_URL}", table="sales")
        assert read_all(source)[0].num_rows == 1001
        assert source.name == "${DATABASE_URL}: sales"

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"table": "sails"}, 'relation "sails" does not exist'),
            ({"query": "SELEKT 1"}, "syntax error"),
            ({"table": "sales", "key": "Kind"}, 'The key "Kind" is str'),
            ({"table": "sales; DROP TABLE sales"}, "is not the name of a table"),
            ({}, "needs a query or a table"),
            ({"query": "SELECT * FROM sales WHERE id < 0"}, "There are no rows"),
        ],
    )
    def test_what_cannot_be_asked_is_told(self, filled: PostgresServer, options: dict[str, str], error: str) -> None:
        with pytest.raises(DrayError, match=error):
            open_source(filled.address, **options)

    def test_a_database_that_is_not_there_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DB_PASSWORD", "hunter22")
        with pytest.raises(StorageError, match="Cannot connect to postgresql://me:") as raised:
            open_source("postgresql://me:${DB_PASSWORD}@127.0.0.1:1/db", table="t")
        assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize(
    "address", ["postgresql://me:hunter22@host/db", "postgresql://host/db?user=me&password=hunter22"]
)
def test_a_password_in_the_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(StorageError, match="holds a password") as raised:
        open_source(address, table="t")
    assert "hunter22" not in str(raised.value)


class TestDbApi:
    def test_rows_of_any_driver_are_read_by_ranges(self) -> None:
        source = open_source(connect_to_numbers, query="SELECT * FROM numbers", key="id")
        assert source.name.endswith("test_sql.connect_to_numbers: SELECT * FROM numbers")
        assert [str(type_) for type_ in source.schema.types] == ["int64", "double", "string"]
        table, rejects = read_all(source, ["name", "id"], target_bytes=1_000)
        assert not rejects and len(source.pieces(1_000)) > 5
        assert table["id"].to_pylist() == [None, *range(2_000)]

    def test_a_value_of_another_kind_is_a_reject_with_its_row(self) -> None:
        source = open_source(connect_to_mixed, table="mixed")
        table, rejects = read_all(source)
        assert table["x"].to_pylist() == [*range(1_500)]
        [reject] = rejects
        assert (reject.line, reject.reason, reject.text) == (None, "column \"x\": 'many' is not int64", "('many',)")

    def test_values_of_several_kinds_in_the_first_rows_need_a_word(self) -> None:
        with pytest.raises(DataError, match='Column "x" holds values of several kinds: int, str'):
            open_source(connect_to_mixed, query="SELECT x FROM mixed ORDER BY rowid DESC")
        source = open_source(connect_to_mixed, query="SELECT x FROM mixed ORDER BY rowid DESC", types={"x": "int64"})
        assert len(read_all(source)[1]) == 1

    def test_a_partial_would_carry_a_password_and_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="partial would carry"):
            open_source(partial(sqlite3.connect, "x"), table="t")

    def test_the_error_of_a_driver_is_told(self) -> None:
        with pytest.raises(DataError, match="refuses the query: no such table: missing"):
            open_source(connect_to_mixed, table="missing")


def connect_to_numbers() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE numbers (id, half, name)")
    connection.execute("INSERT INTO numbers VALUES (NULL, NULL, NULL)")
    connection.executemany("INSERT INTO numbers VALUES (?, ?, ?)", [(i, i / 2, f"n{i}") for i in range(2_000)])
    return connection


def connect_to_mixed() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE mixed (x)")
    connection.executemany("INSERT INTO mixed VALUES (?)", [*((i,) for i in range(1_500)), ("many",)])
    return connection


class FakeDatabricks:
    """Stands in for databricks-sql-connector: there is no warehouse here. It answers the queries from SQLite."""

    def __init__(self) -> None:
        self.connections: list[dict[str, str]] = []
        self.queries: list[str] = []

    def connect(self, **how: str) -> Any:
        self.connections.append(how)
        fake = self

        class Cursor:
            def __init__(self) -> None:
                self._cursor = connect_to_numbers().cursor()

            def execute(self, query: str) -> None:
                fake.queries.append(query)
                self._cursor.execute(query)

            def fetchone(self) -> Any:
                return self._cursor.fetchone()

            def fetchmany_arrow(self, most: int) -> pa.Table:
                names = [column[0] for column in self._cursor.description]
                found = self._cursor.fetchmany(min(most, 700))
                return pa.table({name: [row[i] for row in found] for i, name in enumerate(names)})

            def close(self) -> None:
                self._cursor.close()

        return types.SimpleNamespace(cursor=Cursor, close=lambda: None)


@pytest.fixture
def databricks(monkeypatch: pytest.MonkeyPatch) -> FakeDatabricks:
    fake = FakeDatabricks()
    module = types.ModuleType("databricks.sql")
    module.connect = fake.connect  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "databricks", types.ModuleType("databricks"))
    monkeypatch.setitem(sys.modules, "databricks.sql", module)
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-very-secret")
    return fake


class TestDatabricks:
    def test_a_warehouse_is_read_as_arrow_by_ranges(self, databricks: FakeDatabricks) -> None:
        source = open_source(
            "databricks://adb-1.azuredatabricks.net/sql/1.0/warehouses/ab12", table="numbers", key="id"
        )
        table, rejects = read_all(source, ["id"], target_bytes=5_000)
        assert table["id"].to_pylist() == [None, *range(2_000)] and not rejects
        assert databricks.connections[0] == {
            "server_hostname": "adb-1.azuredatabricks.net",
            "http_path": "/sql/1.0/warehouses/ab12",
            "access_token": "dapi-very-secret",
        }
        assert databricks.queries[-1].startswith(
            "SELECT `id` FROM (SELECT * FROM numbers) AS dray_rows WHERE (`id` >= "
        )
        assert b"dapi-very-secret" not in pickle.dumps(source)

    def test_host_and_path_may_come_from_the_environment(
        self, databricks: FakeDatabricks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DATABRICKS_SERVER_HOSTNAME", "host")
        monkeypatch.setenv("DATABRICKS_HTTP_PATH", "/path")
        assert len(rows(open_source("databricks://", table="numbers"))) == 2_001
        assert databricks.connections[0]["http_path"] == "/path"


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "databricks.sql", None)
    with pytest.raises(ConfigError, match=r"pip install 'dray\[databricks\]'"):
        open_source("databricks://host/path", table="t")


KEYS = st.one_of(
    st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)),
    st.tuples(st.dates(), st.dates()),
    st.tuples(st.datetimes(), st.datetimes()),
)


@given(KEYS, st.integers(1, 50), st.data())
def test_any_key_is_in_exactly_one_range(ends: tuple[Any, Any], wished: int, data: st.DataObject) -> None:
    key = KeyRange("k", min(ends), max(ends))
    count = min(wished, key.most_ranges())
    bounds = [key.bound(i, count) for i in range(1, count)]
    assert bounds == sorted(set(bounds))
    assert all(key.low <= bound <= key.high for bound in bounds)  # type: ignore[operator]


def test_conditions_cover_everything() -> None:
    key = KeyRange("k", 0, 10)
    assert key.condition(0, 1) == ""
    assert [key.condition(i, 3) for i in range(3)] == ["(k < 3 OR k IS NULL)", "(k >= 3 AND k < 6)", "(k >= 6)"]
    time = dt.datetime(2024, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert key.literal(time) == "TIMESTAMP WITH TIME ZONE '2024-01-01 00:00:00+00:00'"


def test_whole_numbers_beyond_int64_are_unsigned() -> None:
    from dray.data.sources.sql_rows import _guess

    assert _guess(["x"], [(2**64 - 1,), (None,), (0,)], {}, {}).field("x").type == pa.uint64()
    with pytest.raises(DataError, match="several kinds: int"):
        _guess(["x"], [(2**64,), (-1,)], {}, {})


def test_decimals_of_a_driver_become_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from dray.data.sources.sql_rows import _guess

    assert _guess(["x"], [(Decimal("1.5"),), (None,)], {}, {}).field("x").type == pa.float64()


class FakeCursor:
    """A driver's cursor that has no Arrow."""

    description = (("x",),)

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def fetchmany(self, most: int) -> list[tuple[Any]]:
        taken, self._values = self._values[:most], self._values[most:]
        return [(value,) for value in taken]


@pytest.mark.parametrize(
    ("values", "types", "expected"),
    [
        ([Decimal(2**60 + 1), None, Decimal(2**60 + 2)], {}, [2**60 + 1, None, 2**60 + 2]),
        ([Decimal(2**64 - 1), Decimal(1)], {}, [2**64 - 1, 1]),
        ([Decimal(2**60), Decimal(5)], {}, [2.0**60, 5.0]),
        ([Decimal("1.10"), None], {"x": "decimal128(10, 2)"}, [Decimal("1.10"), None]),
        ([UUID(int=1), None], {}, [str(UUID(int=1)), None]),
    ],
)
def test_exact_numbers_and_uuids_of_a_driver(values: list[Any], types: dict[str, str], expected: list[Any]) -> None:
    from dray.data.sources.sql_rows import as_batches, plain_schema

    asked = {name: pa.decimal128(10, 2) if "decimal" in type_ else type_ for name, type_ in types.items()}
    schema, _ = plain_schema(FakeCursor(list(values)), 10, asked, {})
    [batch] = as_batches(FakeCursor(list(values)), schema, "x", lambda _: None, in_place=False)
    assert batch.column(0).to_pylist() == expected
