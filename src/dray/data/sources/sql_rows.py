"""From a cursor to Arrow batches: directly where the database driver has them, else built from rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID
from warnings import catch_warnings, simplefilter

import pyarrow as pa
import pyarrow.types as pt

from dray.data.source import OnReject, all_kept, make_reject
from dray.data.sources.record_blocks import BadRow, Parsed, in_their_places
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
        _, bad = _columns(rows, schema)
        columns, _ = _columns([row for index, row in enumerate(rows) if index not in bad], schema)
        return schema, pa.Table.from_arrays(columns, schema=schema)
    batches, rows_seen = [], 0
    for batch in _arrow(cursor):
        batches.append(batch)
        rows_seen += batch.num_rows
        if rows_seen >= most:
            break
    found = pa.Table.from_batches(batches) if batches else pa.table({})
    asked = asked_types(types, found.schema.names)
    schema = pa.schema([(f.name, asked.get(f.name, _plain(f.type))) for f in found.schema])
    return schema, found


def as_batches(
    cursor: Any, schema: pa.Schema, name: str, on_reject: OnReject, *, in_place: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cursor with these columns; DB-API rows that do not fit are rejected."""
    if _has_arrow(cursor):
        for batch in _arrow(cursor):
            if batch.num_rows:
                cast = _cast(batch, schema, name)
                yield all_kept(cast) if in_place else cast
        return
    indices = [[str(column[0]) for column in cursor.description].index(column) for column in schema.names]
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        chosen = [[row[index] for index in indices] for row in rows]
        columns, reasons = _columns(chosen, schema)
        bad = [BadRow(0, reason, repr(tuple(rows[index])), index) for index, reason in sorted(reasons.items())]
        for row in bad:
            on_reject(make_reject(name, None, row.reason, row.text))
        if bad:
            columns, _ = _columns([row for index, row in enumerate(chosen) if index not in reasons], schema)
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


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return dray's type for a database column: decimals in text are numbers, other unknown types are text."""
    if isinstance(type_, pa.BaseExtensionType):
        numeric = getattr(type_, "type_name", "") in _NUMERIC
        return pa.float64() if numeric else _plain(type_.storage_type)
    return pa.string() if pt.is_null(type_) else type_


def _cast(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f'{name}: column "{field.name}" is {column.type}, but was {field.type} in the first rows: '
                f"{(str(error).splitlines() or [''])[0]}",
                fix=f"Cast the column in the query, or give its type: {flag_of_type(field.name)}.",
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
        values = [row[index] for row in rows]
        if rows and name not in asked and all(value is None for value in values):
            values = list(later(name))
        number = _number_of(values)
        values = [_simple(value, number) for value in values]
        try:
            type_ = asked.get(name) or _type_of(values)
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


def _columns(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> tuple[list[pa.Array], dict[int, str]]:
    """Return the columns of rows, and which rows do not fit, with the reason."""
    columns: list[pa.Array] = []
    bad: dict[int, str] = {}
    for at, field in enumerate(schema):
        values = [_simple(row[at], field.type) for row in rows]
        try:
            columns.append(_array(values, field.type))
        except _UNFIT:
            for index, value in enumerate(values):
                try:
                    _array([value], field.type)
                except _UNFIT:
                    bad.setdefault(index, f'column "{field.name}": {str(value)[:100]!r} is not {field.type}')
    return columns, bad


def _type_of(values: Sequence[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except OverflowError:  # whole numbers beyond int64
        return pa.array(values, pa.uint64()).type


def _array(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return the values; raise where one does not fit. pyarrow makes 1 of 1.5 in a column of whole numbers."""
    if not pt.is_floating(type_) and any(isinstance(value, float) and not value.is_integer() for value in values):
        raise ValueError
    return pa.array(values, type_)


def _number_of(values: Sequence[Any]) -> pa.DataType:
    """Return what the exact decimals among values become: doubles, unless these would change whole numbers."""
    decimals = [value for value in values if isinstance(value, Decimal)]
    whole = all(value.is_finite() and value.as_tuple().exponent == 0 for value in decimals)
    if whole and any(Decimal(float(value)) != value for value in decimals):
        low, high = min(decimals), max(decimals)
        if low >= -(2**63) and high < 2**63:
            return pa.int64()
        if low >= 0 and high < 2**64:
            return pa.uint64()
    return pa.float64()


def _simple(value: Any, type_: pa.DataType) -> Any:
    """Return a value of a driver as pyarrow takes it for a type."""
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, Decimal) or pt.is_decimal(type_):
        return value
    whole = pt.is_integer(type_) and value.is_finite() and value == value.to_integral_value()
    return int(value) if whole else float(value)
