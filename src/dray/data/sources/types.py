"""One type for every column of text files: guessed from samples of all files, then fixed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

import pyarrow as pa
import pyarrow.types as pt

from dray.data.common_schema import Columns, Common, common_schema, common_type
from dray.data.sources.numbers import Numbers
from dray.data.sources.time_forms import form_of, type_of_form
from dray.errors import ConfigError, nearest


@dataclass(frozen=True, slots=True)
class Found:
    """What a sample of a file shows, or all samples of it together."""

    location: str
    schema: pa.Schema
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    """Of text: what the numbers look like, by column. The type in the schema is only integer or double."""


def text_where_mixed(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the schema of one text file from those of its samples: a column that fits no other type is text."""
    types = schemas[0].types
    for schema in schemas[1:]:
        wide = (common_type(both) for both in zip(types, schema.types, strict=True))
        types = [pa.string() if type_ is None else type_ for type_ in wide]
    return pa.schema(zip(schemas[0].names, types, strict=True))


def agree(found: Sequence[Found], types: Mapping[str, str | pa.DataType] | None, columns: Columns = "union") -> Common:
    """Return the schema of all files: the types that were asked for, else those that hold the values of all files."""
    asked = asked_types(types, list(dict.fromkeys(name for one in found for name in one.schema.names)))

    def choose(name: str, stored: Sequence[pa.DataType]) -> pa.DataType | None:
        if name in asked:
            return asked[name]
        type_ = common_type(stored)
        numbers = merged_numbers(found, name)
        if type_ is None:  # 007 in one file and 7 or X7 in another are codes
            codes = numbers.code is not None and {*stored} <= _TEXT_OR_NUMBER
            return pa.string() if codes else None
        if is_number(type_) and any(name in one.numbers for one in found):
            return numbers.arrow() or pa.string()
        return pa.string() if pt.is_null(type_) else type_

    return common_schema([(one.location, one.schema) for one in found], columns, choose=choose, fix=_GIVE_TYPE)


_GIVE_TYPE = (
    "Give its type: --read 'types={NAME: string}' reads it as text, another type leaves out the rows that do not fit"
)
_TEXT_OR_NUMBER = {pa.null(), pa.string(), pa.int64(), pa.float64()}


def merged_numbers(found: Sequence[Found], name: str) -> Numbers:
    """Return what the numbers of a column look like in all files."""
    merged = Numbers()
    for one in found:
        if name in one.numbers:
            merged.merge(one.numbers[name])
    return merged


def is_number(type_: pa.DataType) -> bool:
    return bool(pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_))


def flag_of_type(name: str, type_: str = "string") -> str:
    """Return the flag that gives a column its type, as a shell takes it: --read 'types={"zip": "string"}'."""
    return f"--read {quote(f'types={json.dumps({name: type_}, ensure_ascii=False)}')}"


def asked_types(
    types: Mapping[str, str | pa.DataType] | None, names: Sequence[str] | None = None
) -> dict[str, pa.DataType]:
    """Return the types that the user asked for, checked; refuse a column that is not among the names, if those are
    known."""
    asked = {name: _as_type(name, type_) for name, type_ in (types or {}).items()}
    for name in asked:
        if names is not None and name not in names:
            raise ConfigError(
                f'types has a column "{name}", which is not in the data.{nearest(name, names)}',
                fix=f"The columns are {', '.join(list(names)[:20])}.",
            )
    return asked


def _as_type(name: str, type_: str | pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.DataType):
        return type_
    form = form_of(type_)
    if form is not None:
        return type_of_form(form)
    try:
        return pa.type_for_alias(type_)
    except ValueError:
        raise ConfigError(
            f'types has "{type_}" for column "{name}".',
            fix="Use an Arrow type, such as int64, double, string, bool, date32, timestamp[us], or the form of a time, "
            "such as timestamp(%d.%m.%Y %H:%M).",
        ) from None
