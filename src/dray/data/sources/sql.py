"""The rows of a query: by ADBC, by Databricks' connector, or by any DB-API connection.

With a `key` (a number, a date or a time) the rows are divided into ranges of it, which many workers read at once;
without one, they are one piece. Every piece is its own query: rows that change meanwhile may appear in their old
or their new state, unless the query itself names a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dray.data.source import PIECE_BYTES, Note, OnReject, Piece
from dray.data.sources.columns import chosen
from dray.data.sources.sql_database import Database
from dray.data.sources.sql_ranges import KeyRange, key_value
from dray.data.sources.sql_rows import as_batches, plain_schema
from dray.data.sources.types import is_number
from dray.errors import ConfigError, DataError, DrayError

SAMPLE_ROWS = 1000
COUNTED_AT_ONCE = 100
"""Ranges whose rows one query counts: databases refuse a query with thousands."""
_AFFINITIES = (
    (("REAL", "FLOA", "DOUB"), pa.float64()),
    (("CHAR", "CLOB", "TEXT"), pa.string()),
    (("INT",), pa.int64()),
)
"""What SQLite makes of the name of a type; the last one that is found counts."""
_TABLE = re.compile(r"[\w$.\"`-]+")


@dataclass(frozen=True, slots=True)
class SqlSource:
    """Rows of a query."""

    name: str
    database: Database
    query: str
    schema: pa.Schema
    rows: int | None
    bytes: int
    """Estimated from the first rows; 0 without a key, as rows are not counted then."""
    key: KeyRange | None = None
    format: str = "sql"
    notes: tuple[Note, ...] = ()
    asked: frozenset[str] = frozenset()
    """Columns whose type was asked for."""

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        """Return a piece for each range of the key: `start` is its number, `stop` how many there are."""
        count = 1
        if self.key is not None:
            count = min(self.key.most_ranges(), max(1, round(self.bytes / max(1, target_bytes))))
        return [Piece(self.name, index, index, count, self.bytes // count) for index in range(count)]

    def read(
        self, piece: Piece, columns: Sequence[str] | None, on_reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        schema = chosen(columns, self.schema)
        query = select(self.query, _columns(schema.names, self.database), self._condition(piece))
        with _executed(self.database, query) as cursor:
            yield from as_batches(cursor, schema, self.name, on_reject, in_place=in_place, asked=self.asked)

    def rows_now(self, pieces: Sequence[Piece]) -> tuple[list[int], int]:
        """Count the rows of each piece as they are now, and those beyond the key's bounds, which were added later."""
        counted: list[int] = []
        conditions = [self._condition(piece) or "1 = 1" for piece in pieces]
        conditions.append(self.key.beyond() if self.key is not None else "1 = 0")
        for start in range(0, len(conditions), COUNTED_AT_ONCE):
            sums = [
                f"SUM(CASE WHEN {condition} THEN 1 ELSE 0 END)"
                for condition in conditions[start : start + COUNTED_AT_ONCE]
            ]
            with _executed(self.database, select(self.query, ", ".join(sums))) as cursor:
                counted += [int(count or 0) for count in cursor.fetchone()]
        return counted[:-1], counted[-1]

    def _condition(self, piece: Piece) -> str:
        return self.key.condition(piece.start, piece.stop) if self.key is not None else ""


def open_sql(
    database: Database,
    *,
    query: str | None = None,
    table: str | None = None,
    key: str | None = None,
    types: Mapping[str, str | pa.DataType] | None = None,
) -> SqlSource:
    """Read the first rows, and the key's least and greatest value if there is a key."""
    database.check()
    query = _query(query, table)
    declared = _declared(database, table) if database.dialect == "sqlite" and table is not None else {}
    schema, sample = _sample(database, query, types, declared)
    if not sample.num_rows:
        raise DataError(f"There are no rows in {database.name}: {query}", fix="Use a query that returns rows.")
    name = f"{database.name}: {table or query}"
    asked = frozenset(types or ())
    if key is None:
        return SqlSource(name, database, query, schema, None, 0, asked=asked)
    written = _quoted(key, database) if key in schema.names and database.dialect != "unknown" else key
    rows, low, high = _extent(database, query, written)
    bytes_ = rows * sample.nbytes // sample.num_rows
    if low is None and high is None:  # no row has a key
        return SqlSource(name, database, query, schema, rows, bytes_, asked=asked)
    text = key in schema.names and not is_number(schema.field(key).type) and isinstance(low, str)
    least, greatest = (None, None) if text else (key_value(low), key_value(high))
    if least is None or greatest is None:
        raise ConfigError(
            f'The key "{key}" is {type(low).__name__} ({low!r}), which cannot be divided into ranges.',
            fix="Name a column of numbers, dates or times, or leave the key out.",
        )
    zoned = "TIMESTAMP" if database.dialect == "databricks" else "TIMESTAMP WITH TIME ZONE"
    range_ = KeyRange(written, least, greatest, zoned)
    return SqlSource(name, database, query, schema, rows, bytes_, range_, asked=asked)


def select(query: str, columns: str, condition: str = "", end: str = "") -> str:
    """Return a query of a query."""
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT {columns} FROM ({query}) AS dray_rows{where}{end}"  # noqa: S608  (the query is the user's own)


def _query(query: str | None, table: str | None) -> str:
    if (query is None) == (table is None):
        raise ConfigError(
            "A database needs a query or a table.",
            fix="Give one of the two: --read table=NAME, or --read 'query=SELECT ...'.",
        )
    if query is not None:
        return query.strip().rstrip(";")
    if not _TABLE.fullmatch(str(table)):
        raise ConfigError(
            f"{table!r} is not the name of a table.", fix="For anything else, use --read 'query=SELECT ...'."
        )
    return f"SELECT * FROM {table}"  # noqa: S608


def _columns(names: Sequence[str], database: Database) -> str:
    """Return the columns to select. Of an unknown database all: how it quotes names is not known."""
    if database.dialect == "unknown" or not names:
        return "*"
    return ", ".join(_quoted(name, database) for name in names)


def _quoted(name: str, database: Database) -> str:
    mark = "`" if database.dialect == "databricks" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def _extent(database: Database, query: str, key: str) -> tuple[int, Any, Any]:
    with _executed(database, select(query, f"COUNT(*), MIN({key}), MAX({key})")) as cursor:
        rows, low, high = cursor.fetchone()
        return int(rows), low, high


def _sample(
    database: Database,
    query: str,
    types: Mapping[str, str | pa.DataType] | None,
    declared: Mapping[str, pa.DataType],
) -> tuple[pa.Schema, pa.Table]:
    def later(name: str) -> list[Any]:
        column = _quoted(name, database) if database.dialect != "unknown" else name
        try:
            with _executed(database, select(query, column, f"{column} IS NOT NULL")) as cursor:
                return [value for (value,) in cursor.fetchmany(SAMPLE_ROWS)]
        except DataError:
            if database.dialect != "unknown":
                raise
            return []  # how the database writes such a name is not known

    def look(text: str) -> tuple[pa.Schema, pa.Table]:
        with _executed(database, text) as cursor:
            return plain_schema(cursor, SAMPLE_ROWS, types, declared, later)

    try:
        return look(select(query, "*", end=f" LIMIT {SAMPLE_ROWS}"))
    except DataError:
        if database.dialect != "unknown":
            raise
        return look(query)  # not every database has LIMIT


def _declared(database: Database, table: str) -> dict[str, pa.DataType]:
    """Return the types of SQLite's columns as the table declares them; any column may hold values of other types."""
    name = table.rpartition(".")[2].strip('"`')
    with _executed(database, f"SELECT name, upper(type) FROM pragma_table_info('{name}')") as cursor:  # noqa: S608
        rows = cursor.fetchall()
    return {
        column: type_ for column, written in rows for marks, type_ in _AFFINITIES if any(m in written for m in marks)
    }


@contextmanager
def _executed(database: Database, query: str) -> Iterator[Any]:
    """Yield a cursor that has executed a query; errors of the database driver become ours, without secrets."""
    with closing(database.connect()) as connection:
        try:
            cursor = connection.cursor()
            try:
                cursor.execute(query)
                yield cursor
            finally:
                cursor.close()
        except (DrayError, GeneratorExit):
            raise
        except Exception as error:  # database drivers raise anything
            raise database.failed(error) from None
