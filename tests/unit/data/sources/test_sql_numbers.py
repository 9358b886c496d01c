"""NUMERIC of databases: no digit is lost, by DB-API (Decimal) as by ADBC (text)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from postgres_server import PostgresServer
from reading import read_all

from dray.data.open_source import open_source
from dray.data.sources.sql_database import Database
from dray.data.sources.sql_numbers import array_of, type_of
from dray.errors import DataError

ODD, EVEN, BIG = 2**53 + 1, 2**53, 12345678901234567890

Connect = Callable[..., Callable[[], Any]]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Makes a DB-API driver that returns such values as the column `id`, whatever the query."""

    def connect_to(*values: object) -> Callable[[], Any]:
        monkeypatch.setattr(f"{__name__}.VALUES", values)
        return connect

    return connect_to


VALUES: tuple[object, ...] = ()


def connect() -> Any:
    class Cursor:
        description = (("id",),)

        def execute(self, _query: str) -> None:
            self._rest = [(value,) for value in VALUES]

        def fetchmany(self, most: int) -> list[tuple[object]]:
            taken, self._rest = self._rest[:most], self._rest[most:]
            return taken

        def close(self) -> None:
            pass

    return SimpleNamespace(cursor=Cursor, close=lambda: None)


IDS = (Decimal(ODD), Decimal(EVEN), Decimal(BIG))


@pytest.mark.parametrize(
    ("types", "found", "rejected"),
    [
        (None, [ODD, EVEN, BIG], []),
        ({"id": "int64"}, [ODD, EVEN], [f"column \"id\": '{BIG}' is not int64"]),
        ({"id": "string"}, [str(ODD), str(EVEN), str(BIG)], []),
        ({"id": pa.decimal128(20, 0)}, list(IDS), []),
        ({"id": "double"}, [float(EVEN), float(EVEN), float(BIG)], []),  # the nearest: it was asked for
    ],
)
def test_decimals_of_a_driver_keep_their_digits(
    driver: Connect, types: Any, found: list[object], rejected: list[str]
) -> None:
    table, rejects = read_all(open_source(driver(*IDS), query="SELECT id FROM t", types=types))
    assert table["id"].to_pylist() == found
    assert [reject.reason for reject in rejects] == rejected


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["12.50", "12.00", None], pa.float64()),
        (["1.5", 2, 2.5], pa.float64()),
        (["5", None, 7], pa.int64()),
        ([str(-BIG)], pa.decimal128(38, 0)),
        ([str(ODD), "0.5"], pa.decimal128(38, 18)),
        (["1" * 39], pa.string()),
        (["NaN", "1"], pa.float64()),
    ],
)
def test_a_type_is_guessed_that_keeps_decimals_as_they_are(values: list[Any], type_: pa.DataType) -> None:
    decimals = [Decimal(value) if isinstance(value, str) else value for value in values]
    assert type_of(decimals) == type_
    assert array_of(decimals, type_, nearest=False).null_count == values.count(None)


def test_a_decimal_beyond_the_first_rows_that_its_type_would_change_is_rejected(driver: Connect) -> None:
    first = [Decimal("0.5")] * 1000
    table, rejects = read_all(open_source(driver(*first, Decimal(ODD), Decimal(EVEN)), query="SELECT id FROM t"))
    assert table["id"].to_pylist()[1000:] == [EVEN]
    assert [reject.reason for reject in rejects] == [f"column \"id\": '{ODD}' is not double"]


def test_whole_numbers_are_text_where_text_is_wanted(driver: Connect) -> None:
    source = open_source(driver(1, True, Decimal("1E+3")), query="SELECT id FROM t", types={"id": "string"})
    table, rejects = read_all(source)
    assert table["id"].to_pylist() == ["1", "1000"] and len(rejects) == 1


def test_rows_that_are_all_rejected_are_told_as_such(driver: Connect) -> None:
    with pytest.raises(DataError, match=r"None of the first 2 rows of the query can be read: column \"id\": '1\.5'"):
        open_source(driver(Decimal("1.5"), Decimal("2.5")), query="SELECT id FROM t", types={"id": "int64"})


@pytest.fixture
def ids(postgres: PostgresServer) -> Iterator[PostgresServer]:
    def execute(*statements: str) -> None:
        with closing(Database(postgres.address).connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    execute(
        "CREATE TABLE ids (n int, id numeric, price numeric(12,2), late numeric)",
        f"INSERT INTO ids VALUES (0, {ODD}, 12.5, NULL), (1, {EVEN}, 3, NULL), (2, {BIG}, NULL, NULL)",
        "INSERT INTO ids SELECT i, i, i, NULL FROM generate_series(3, 1000) AS i",
        f"INSERT INTO ids VALUES (1001, 1001, 1, {ODD})",
    )
    yield postgres
    execute("DROP TABLE ids")


class TestPostgres:
    def test_numeric_keeps_its_digits(self, ids: PostgresServer) -> None:
        source = open_source(ids.address, query="SELECT * FROM ids ORDER BY n", key="id")
        assert source.schema.types == [pa.int32(), pa.uint64(), pa.float64(), pa.int64()]
        table, rejects = read_all(source, target_bytes=2_000)
        known = {row["n"]: row for row in table.to_pylist()}
        assert len(known) == table.num_rows == 1002 and not rejects
        assert [known[n]["id"] for n in range(3)] == [ODD, EVEN, BIG]
        assert [known[n]["price"] for n in range(3)] == [12.5, 3.0, None]
        assert known[1001]["late"] == ODD

    def test_a_later_number_that_its_type_would_change_is_told(self, ids: PostgresServer) -> None:
        query = "SELECT n, CASE WHEN n < 1000 THEN 0.5 ELSE late END AS late FROM ids ORDER BY n"
        with pytest.raises(DataError, match=f"a double cannot hold {ODD}"):
            read_all(open_source(ids.address, query=query))
        table, _ = read_all(open_source(ids.address, query=query, types={"late": "double"}))
        assert table["late"].to_pylist()[-1] == EVEN
        with pytest.raises(DataError, match=r"""is numeric, but was int64 .*types={"q": "double"}"""):
            read_all(
                open_source(
                    ids.address, query="SELECT CASE WHEN n < 1001 THEN n::numeric ELSE 0.5 END AS q FROM ids ORDER BY n"
                )
            )
