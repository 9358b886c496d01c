"""From a cursor to Arrow batches: directly where the database driver has them, else built from rows."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID
from warnings import catch_warnings, simplefilter

import pyarrow as pa
import pyarrow.types as pt

from dray.data.source import OnReject, all_kept, make_reject
from dray.data.sources.record_blocks import BadRow, Parsed, in_their_places
from dray.data.sources.sql_numbers import array_of, array_of_texts, type_of, type_of_texts
from dray.data.sources.time_forms import forms_in
from dray.data.sources.types import asked_types, flag_of_type
from dray.errors import ConfigError, DataError

ROWS_AT_ONCE = 10_000
_NUMERIC = ("numeric", "decimal")


Later = Callable[[str], Sequence[Any]]
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)
"""What pyarrow raises for a value that a type cannot hold."""


def _nothing(_name: str) -> Sequence[Any]:
    return ()


def plain_schema(
    cursor: Any,
    most: int,
    types: Mapping[str, str | pa.DataType] | None,
    declared: Mapping[str, pa.DataType],
    later: Later = _nothing,
) -> tuple[pa.Schema, pa.Table]:
    """Return the schema for the rows of a cursor, and the first rows.

    `declared`: the type of a column whose values are of several kinds, or all missing. `later`: values of a column that
    the first rows do not have.
    """
    if forms := forms_in(types):
        name, form = next(iter(forms.items()))
        raise ConfigError(
            f'types has the form of a time, "{form}", for column "{name}": it is for text files, not for databases.',
            fix=f"Make a timestamp of {name} in the query.",
        )
    if not _has_arrow(cursor):
        names = [str(column[0]) for column in cursor.description]
        rows = cursor.fetchmany(most)
        schema = _guess(names, rows, asked_types(types, names), declared, later)
        _, bad = _columns(rows, schema, types or ())
        if rows and len(bad) == len(rows):
            raise DataError(
                f"None of the first {len(rows):,} rows of the query can be read: {bad[0]}.",
                fix="Give the column a type that holds its values, or cast it in the query.",
            )
        columns, _ = _columns([row for index, row in enumerate(rows) if index not in bad], schema, types or ())
        return schema, pa.Table.from_arrays(columns, schema=schema)
    batches, rows_seen = [], 0
    for batch in _arrow(cursor):
        batches.append(batch)
        rows_seen += batch.num_rows
        if rows_seen >= most:
            break
    found = pa.Table.from_batches(batches) if batches else pa.table({})
    asked = asked_types(types, found.schema.names)
    schema = pa.schema([(f.name, asked.get(f.name) or _plain(found[f.name], f.name, later)) for f in found.schema])
    return schema, found


def as_batches(
    cursor: Any, schema: pa.Schema, name: str, on_reject: OnReject, *, in_place: bool, asked: Container[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cursor with these columns; DB-API rows that do not fit are rejected.

    `asked`: columns whose type was asked for; a double is the nearest one there.
    """
    if _has_arrow(cursor):
        for batch in _arrow(cursor):
            if batch.num_rows:
                cast = _cast(batch, schema, name, asked)
                yield all_kept(cast) if in_place else cast
        return
    indices = [[str(column[0]) for column in cursor.description].index(column) for column in schema.names]
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        chosen = [[row[index] for index in indices] for row in rows]
        columns, reasons = _columns(chosen, schema, asked)
        bad = [BadRow(0, reason, repr(tuple(rows[index])), index) for index, reason in sorted(reasons.items())]
        for row in bad:
            on_reject(make_reject(name, None, row.reason, row.text))
        if bad:
            columns, _ = _columns([row for index, row in enumerate(chosen) if index not in reasons], schema, asked)
        batch = _batch(columns, schema, len(rows) - len(bad))
        if in_place:
            yield from in_their_places(Parsed([batch], bad), schema)
        elif batch.num_rows:
            yield batch


def _batch(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["rows"]).select([])


def _has_arrow(cursor: Any) -> bool:
    return any(hasattr(cursor, name) for name in ("fetch_record_batch", "fetchmany_arrow", "to_arrow_reader"))


def _arrow(cursor: Any) -> Iterator[pa.RecordBatch]:
    if hasattr(cursor, "fetch_record_batch"):  # ADBC
        yield from cursor.fetch_record_batch()
        return
    if hasattr(cursor, "to_arrow_reader"):  # DuckDB
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # that a cursor of its own kind would save a copy
            reader = cursor.to_arrow_reader(ROWS_AT_ONCE)
        yield from reader
        return
    while (table := cursor.fetchmany_arrow(ROWS_AT_ONCE)).num_rows:  # Databricks
        yield from table.to_batches()


def _plain(column: pa.ChunkedArray, name: str, later: Later) -> pa.DataType:
    """Return dray's type for a database column: decimals in text are numbers, other unknown types are text."""
    type_ = column.type
    if _is_numeric(type_):
        texts = [text for chunk in column.chunks for text in chunk.storage.drop_null().to_pylist()]
        return type_of_texts(texts or [str(value) for value in later(name)])
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return pa.string() if pt.is_null(type_) else type_


def _is_numeric(type_: pa.DataType) -> bool:
    return isinstance(type_, pa.BaseExtensionType) and getattr(type_, "type_name", "") in _NUMERIC


def _cast(batch: pa.RecordBatch, schema: pa.Schema, name: str, asked: Container[str]) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = batch.column(field.name)
        numeric = _is_numeric(column.type)
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        try:
            if numeric:
                columns.append(array_of_texts(column, field.type, nearest=field.name in asked))
            else:
                columns.append(column if column.type == field.type else column.cast(field.type))
        except (*_UNFIT, pa.ArrowNotImplementedError) as error:
            kind = "numeric" if numeric else column.type
            raise DataError(
                f'{name}: column "{field.name}" is {kind}, but was {field.type} in the first rows: '
                f"{(str(error).splitlines() or [''])[0]}",
                fix="Cast the column in the query, or give its type: "
                f"{flag_of_type(field.name, 'double' if numeric else 'string')}.",
            ) from error
    return _batch(columns, schema, batch.num_rows)


def _guess(
    names: list[str],
    rows: Sequence[Sequence[Any]],
    asked: Mapping[str, pa.DataType],
    declared: Mapping[str, pa.DataType],
    later: Later = _nothing,
) -> pa.Schema:
    fields = []
    for index, name in enumerate(names):
        values: Sequence[Any] = [_stored(row[index]) for row in rows]
        if rows and name not in asked and all(value is None for value in values):
            values = [_stored(value) for value in later(name)]
        try:
            type_ = asked.get(name) or type_of(values)
        except _UNFIT:
            if name in declared:
                fields.append(pa.field(name, declared[name]))
                continue
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise DataError(
                f'Column "{name}" holds values of several kinds: {", ".join(kinds)}.',
                fix=f"Cast it in the query, or give its type: {flag_of_type(name)}; other rows are rejected.",
            ) from None
        fields.append(pa.field(name, declared.get(name, pa.string()) if pt.is_null(type_) else type_))
    return pa.schema(fields)


def _columns(
    rows: Sequence[Sequence[Any]], schema: pa.Schema, asked: Container[str] = ()
) -> tuple[list[pa.Array], dict[int, str]]:
    """Return the columns of rows, and which rows do not fit, with the reason."""
    columns: list[pa.Array] = []
    bad: dict[int, str] = {}
    for at, field in enumerate(schema):
        values, nearest = [_stored(row[at]) for row in rows], field.name in asked
        try:
            columns.append(array_of(values, field.type, nearest=nearest))
        except _UNFIT:
            for index, value in enumerate(values):
                try:
                    array_of([value], field.type, nearest=nearest)
                except _UNFIT:
                    bad.setdefault(index, f'column "{field.name}": {str(value)[:100]!r} is not {field.type}')
    return columns, bad


def _stored(value: Any) -> Any:
    """Return a value of a driver as pyarrow takes it."""
    return str(value) if isinstance(value, UUID) else value
