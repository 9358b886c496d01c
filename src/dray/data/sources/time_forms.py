"""Columns of text files that the user says hold times of a form: `types={"t": "timestamp(%d.%m.%Y %H:%M)"}`."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.time_text import PER_SECOND, compile_form, has_zone
from dray.data.times import times_of

_ASKED = re.compile(r"\s*timestamp\s*\((.+)\)\s*", re.DOTALL)


class UnfitTimeError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """A text is not a time of the form that was asked for."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row, self.reason = row, reason

    def __str__(self) -> str:
        return self.reason


def form_of(type_: str | pa.DataType) -> str | None:
    """Return the form in the name of a type; None if it is another type. A form that is none is refused."""
    found = _ASKED.fullmatch(type_) if isinstance(type_, str) else None
    if found is None:
        return None
    if found[1] not in PER_SECOND:
        compile_form(found[1])
    return found[1]


def forms_in(types: Mapping[str, str | pa.DataType] | None) -> dict[str, str]:
    """Return the forms of times that were asked for, by column."""
    found = {name: form_of(type_) for name, type_ in (types or {}).items()}
    return {name: form for name, form in found.items() if form is not None}


def type_of_form(form: str) -> pa.DataType:
    """Return the type of the column: with a zone, UTC, if its texts say when they were written."""
    return pa.timestamp("us", "UTC" if has_zone(form) else None)


def written_type(form: str) -> pa.DataType:
    """Return the type that such values have in JSON."""
    return pa.int64() if form in PER_SECOND else pa.string()


def with_times(table: pa.Table, forms: Mapping[str, str], nulls: Container[str] = ()) -> pa.Table:
    """Return the table with timestamps for the texts of these columns; raise for a text that does not fit."""
    for name, form in forms.items():
        index = table.schema.get_field_index(name)
        if index < 0:
            continue
        texts = table.column(index).combine_chunks()
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        moments = times_of(texts, form).microseconds()
        unfit = pc.and_(pc.is_null(moments), pc.is_valid(texts)).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(unfit).tolist():
            value = str(texts[row].as_py())
            if value.strip() and value.strip() not in nulls:
                raise UnfitTimeError(row, f'column "{name}": {value[:100]!r} is not a time of the form {form}')
        table = table.set_column(index, name, moments.cast(type_of_form(form)))
    return table


def as_written(schema: pa.Schema, forms: Mapping[str, str]) -> pa.Schema:
    """Return a schema with text in place of the times of these forms."""
    return pa.schema([field.with_type(pa.string()) if field.name in forms else field for field in schema])


def as_asked(schema: pa.Schema, forms: Mapping[str, str]) -> pa.Schema:
    """Return a schema with timestamps for the columns of these forms."""
    return pa.schema([f.with_type(type_of_form(forms[f.name])) if f.name in forms else f for f in schema])
