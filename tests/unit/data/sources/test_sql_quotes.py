"""How columns are named in a query: a wrong mark makes text of them, and every row would hold the column's name."""

from __future__ import annotations

import sqlite3
import types
from typing import Any

import pytest

from dray.data.open_source import open_source
from dray.data.sources import sql
from dray.data.sources.sql_database import Database

QUERIES: list[str] = []


def connect_to_mysql() -> Any:
    """Stands in for MySQL, in which "x" is text and `x` a column. The answers come from SQLite."""

    class Cursor:
        def __init__(self) -> None:
            connection = sqlite3.connect(":memory:")
            connection.execute("CREATE TABLE sales (id, price)")
            connection.executemany("INSERT INTO sales VALUES (?, ?)", [(i, i / 2) for i in range(100)])
            self._cursor = connection.cursor()

        def execute(self, query: str) -> None:
            QUERIES.append(query)
            self._cursor.execute(query.replace('"', "'"))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cursor, name)

    return types.SimpleNamespace(cursor=Cursor, close=lambda: None)


@pytest.mark.parametrize("key", [None, "id"])
def test_an_unknown_database_is_not_asked_for_quoted_columns(key: str | None) -> None:
    QUERIES.clear()
    source = open_source(connect_to_mysql, table="sales", key=key)
    pieces = source.pieces(500)
    assert len(pieces) > 1 or key is None
    found = [row for piece in pieces for batch in source.read(piece, ["price"], print) for row in batch.to_pylist()]
    assert found == [{"price": i / 2} for i in range(100)]
    assert QUERIES and not [query for query in QUERIES if '"' in query or "`" in query]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://u@h/d", '"a ""b""", "`c`"'),
        ("postgres://u@h/d", '"a ""b""", "`c`"'),
        ("databricks://h/p", '`a "b"`, ```c```'),
    ],
)
def test_columns_have_the_marks_of_their_database(address: str, expected: str) -> None:
    assert sql._columns(['a "b"', "`c`"], Database(address)) == expected


def test_no_columns_are_all_of_them() -> None:
    """SELECT without a column is an error in every database; how many rows there are is still to be known."""
    assert sql._columns([], Database("postgresql://u@h/d")) == "*"
