"""Fields of JSON objects that their columns do not have: how many rows have a value in each. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.sources.json_types import read_objects

_BLANKS = re.compile(r"\s*")
_Rows = npt.NDArray[np.int64]


def count_extra(data: bytes, shape: pa.Schema) -> Counter[str]:
    """Return the rows of a text of objects by extra field, named as its column would be."""
    try:
        table = read_objects(data, shape, "infer").combine_chunks()
    except pa.ArrowInvalid:  # such as one field that is a number here and text there
        return _count_values(data.decode(), pa.struct(list(shape)))
    found: Counter[str] = Counter()
    rows = np.arange(table.num_rows)
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)
        known = shape.field(name).type if name in shape.names else None
        _count(values, rows, known, name, found)
    return found


def _count(values: pa.Array, rows: _Rows, known: pa.DataType | None, path: str, found: Counter[str]) -> None:
    """`rows`: that of each value; `known`: the type that the shape has for them, None for an extra field."""
    type_ = values.type
    if pt.is_struct(type_) and len(type_):
        inside = {child.name: child.type for child in known} if known is not None else {}
        for child, inner in zip(type_, values.flatten(), strict=True):
            _count(inner, rows, inside.get(child.name), f"{path}.{child.name}", found)
    elif known is not None and pt.is_list(type_):
        parents = pc.list_parent_indices(values).to_numpy()
        _count(pc.list_flatten(values), rows[parents], known.value_type, f"{path}[]", found)
    elif known is None:
        there = len(np.unique(rows[values.is_valid().to_numpy(zero_copy_only=False)]))
        if there:
            found[path] += there


def _count_values(text: str, shape: pa.DataType) -> Counter[str]:
    found: Counter[str] = Counter()
    for value in _objects(text):
        found.update(set(_extra(value, shape, "")))
    return found


def _objects(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    try:
        while (at := _after_blanks(text, at)) < len(text):
            value, at = decoder.raw_decode(text, at)
            yield value
    except (ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(str(error)) from error


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _extra(value: Any, known: pa.DataType | None, path: str) -> Iterator[str]:
    if isinstance(value, dict) and (value or known is not None):
        inside = {child.name: child.type for child in known} if known is not None and pt.is_struct(known) else {}
        for name, inner in value.items():
            yield from _extra(inner, inside.get(name), f"{path}.{name}" if path else name)
    elif isinstance(value, list) and known is not None and pt.is_list(known):
        for inner in value:
            yield from _extra(inner, known.value_type, f"{path}[]")
    elif known is None and value is not None:
        yield path
