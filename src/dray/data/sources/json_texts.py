"""Numbers and booleans in text columns: read as they are written, 17 as "17" and 18.50 as "18.50".

pyarrow refuses them. So the text of a block that it refused is rewritten with quotes around them: at once where the
name of the column is that of no other, else object by object. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from dray.data.sources.json_types import literal_of, load

_BARE = rb"\s*:\s*)(-?[0-9][0-9.eE+-]*|true|false)(?=[\s,}])"


def make_quoting(shape: pa.Schema) -> re.Pattern[bytes] | None:
    """Return what finds bare values of text columns; None if no column can be told by its name alone."""
    found = list(_leaves(shape))
    other = {name for name, type_ in found if not pt.is_string(type_)}
    names = sorted({name for name, type_ in found if pt.is_string(type_)} - other)
    # A quote within a string has a backslash before it, so that this matches nothing but names.
    written = b"|".join(re.escape(json.dumps(name, ensure_ascii=False).encode()) for name in names)
    return re.compile(rb"(?<!\\)((?:" + written + rb")" + _BARE) if names else None


def quoted(data: bytes, quoting: re.Pattern[bytes] | None) -> bytes:
    """Return the text with quotes around the bare values of text columns."""
    return data if quoting is None else quoting.sub(rb'\1"\2"', data)


def quoted_record(text: bytes, shape: pa.Schema) -> bytes:
    """Return one object with quotes around the bare values of its text columns; raises the errors of Python's parser.

    An object without such a value stays as it is written.
    """
    value = load(text)
    made = _as_text(value, pa.struct(list(shape)))
    return text if made == value else _written(made).encode()


def _as_text(value: Any, type_: pa.DataType) -> Any:
    if pt.is_string(type_) and isinstance(value, bool | int | float):
        return json.dumps(value) if isinstance(value, bool) else literal_of(value)
    if pt.is_struct(type_) and isinstance(value, dict):
        known = {child.name: child.type for child in type_}
        return {name: _as_text(inner, known.get(name, pa.null())) for name, inner in value.items()}
    if pt.is_list(type_) and isinstance(value, list):
        return [_as_text(inner, type_.value_type) for inner in value]
    return value


def _written(value: Any) -> str:
    """Return a value as JSON, numbers as they were written."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_written(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return literal_of(value) if isinstance(value, float) else json.dumps(value)


def _leaves(fields: Any) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the names of all fields with their types, those within objects and lists too."""
    for field in fields:
        yield field.name, field.type
        type_ = field.type
        while pt.is_list(type_):
            type_ = type_.value_type
        if pt.is_struct(type_):
            yield from _leaves(type_)
