"""The rows of a file with the columns and types of all the data: what the file lacks is null. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import pyarrow as pa
import pyarrow.types as pt

from dray.data.conflicts import refuse_conflicts
from dray.data.source import REJECTED
from dray.errors import DataError

Given = tuple[pa.Field, ...]
"""Columns that a file lacks or stores with another type, as all the data has them (`common_schema.differing`). Pickled
with every slice of the file."""


def fitted(batch: pa.RecordBatch, names: Sequence[str], given: Given, file: str) -> pa.RecordBatch:
    """Return these columns of a file's rows, in this order.

    Values are cast without loss; one that does not fit raises.
    """
    types = {field.name: field.type for field in given}
    arrays = []
    for name in names:
        index = batch.schema.get_field_index(name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, types[name]))
        elif name in types:
            arrays.append(_cast(batch.column(index), types[name], name, file))
        else:
            arrays.append(batch.column(index))
    return pa.RecordBatch.from_arrays(arrays, names=list(names)) if names else batch.select([])


def with_given(schema: pa.Schema, given: Given) -> pa.Schema:
    """Return a file's schema as its rows are read."""
    for field in given:
        index = schema.get_field_index(field.name)
        schema = schema.append(field) if index < 0 else schema.set(index, field)
    return schema


def held(wanted: pa.Schema, schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the wanted columns that a file with these names has; if none, one that gives the number of its rows.

    `schema`: that of all files.
    """
    there = set(names)
    own = [field for field in schema if field.name in there]
    if not own:
        refuse_conflicts(schema, names)
    return pa.schema([field for field in wanted if field.name in there] or own[:1])


def completed(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return the wanted columns of a batch, null where it lacks them, and the marks of rejected rows."""
    if batch.schema.names in (wanted.names, [*wanted.names, REJECTED]):
        return batch
    there = set(batch.schema.names)
    lacking = tuple(field for field in wanted if field.name not in there)
    more = [REJECTED] if REJECTED in there else []
    return fitted(batch, [*wanted.names, *more], lacking, "")


def _cast(values: pa.Array, type_: pa.DataType, name: str, file: str) -> pa.Array:
    plain = values.dictionary_decode() if pt.is_dictionary(values.type) else values
    try:
        if not pt.is_dictionary(type_):
            return plain.cast(type_)
        return plain.cast(type_.value_type).dictionary_encode().cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f'Column "{name}" of {file} is {values.type}, and {type_} in all files together, which cannot hold every '
            f"value: {(str(error).splitlines() or [''])[0]}",
            fix=f"Write the column with one type in all files, or leave it out: --ignore {quote(name)} of train, or "
            "--columns of ingest with the others.",
        ) from error
