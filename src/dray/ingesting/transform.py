"""The user's transform of a batch; all its results must have one schema."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from dray.data.source import ExtraField, Piece, Reject, Source
from dray.errors import DataError, DrayError, ItemError
from dray.ingesting.plan import Task, where
from dray.mapping.results_files import as_table

Function = Callable[[Any], Any]

_LOOKED_AT = 8
"""Batches to read until every column has a value that shows its type."""


@dataclass(frozen=True, slots=True)
class Transform:
    """Calls the function; an error names the rows that it was called with."""

    name: str
    function: Function

    def table(self, batch: pa.RecordBatch, piece: Piece) -> pa.Table:
        """Return the function's result for a batch."""
        try:
            made = self.function(batch)
        except DrayError:
            raise
        except Exception as error:
            frames = error.__traceback__.tb_next if error.__traceback__ else None
            trace = "".join(traceback.format_exception(type(error), error, frames))
            place = where(piece.name, piece.start, piece.stop)
            reason = (f"{type(error).__name__}: {error}".splitlines() or [""])[0]
            raise ItemError(
                f"The transform {self.name} failed at {place}: {reason}",
                "Correct it and run the same command again: it continues after the finished tasks.",
                piece.index,
                place,
                "raised",
                trace,
            ) from None
        try:
            table = as_table(made)
        except (pa.ArrowException, ValueError, TypeError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise self._wrong(piece, f"returned a {type(made).__name__} that Arrow cannot hold: {first}") from None
        if table is None:
            raise self._wrong(piece, f"returned {_kind(made)}")
        twice = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
        if twice is not None:
            raise self._wrong(piece, f'returned two columns "{twice}"')
        return table.replace_schema_metadata()

    def batches(self, batch: pa.RecordBatch, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the results with the columns and types that the first one had."""
        table = self.table(batch, piece)
        if not table.schema.equals(schema):
            table = self._cast(table, piece, schema)
        yield from (found for found in table.to_batches() if found.num_rows)

    def _cast(self, table: pa.Table, piece: Piece, schema: pa.Schema) -> pa.Table:
        for name in dict.fromkeys((*schema.names, *table.column_names)):
            if name not in table.column_names or schema.get_field_index(name) < 0:
                has, lacks = ("has", "lacked") if name in table.column_names else ("lacks", "had")
                raise self._wrong(piece, f'returned a table that {has} column "{name}", which the first one {lacks}')
        columns = []
        for field in schema:
            column = table.column(field.name)
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                first = (str(error).splitlines() or [""])[0]
                raise self._wrong(
                    piece,
                    f'returned column "{field.name}" as {column.type}, which was {field.type} in the first batch, '
                    f"and not all values fit: {first}",
                ) from None
        return pa.table(columns, schema=schema)

    def _wrong(self, piece: Piece, what: str) -> DataError:
        return DataError(
            f"The transform {self.name} {what} (at {where(piece.name, piece.start, piece.stop)}).",
            fix="Return a table (Arrow, pandas, polars) with the same columns and types for every batch: give a column "
            "that may be empty its type by hand.",
        )


def find_schema(source: Source, transform: Transform, tasks: Sequence[Task]) -> pa.Schema | None:
    """Return the schema of the transform's results for the first batches; None if there is no row to read."""
    found: pa.Schema | None = None
    looked_at = 0
    for task in tasks:
        for piece in task.pieces:
            for batch in source.read(piece, None, _ignore):
                made = transform.table(batch, piece).schema
                found = made if found is None else _with_types(found, made)
                looked_at += 1
                if looked_at >= _LOOKED_AT or not any(pt.is_null(field.type) for field in found):
                    return found
    return found


def _with_types(known: pa.Schema, more: pa.Schema) -> pa.Schema:
    fields = []
    for field in known:
        index = more.get_field_index(field.name)
        fields.append(more.field(index) if index >= 0 and pt.is_null(field.type) else field)
    return pa.schema(fields)


def _ignore(_reject: Reject | ExtraField) -> None:
    """Ignore the reject: the task that reads the row again reports it."""


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}, not a table"
