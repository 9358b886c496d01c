"""One type for every column of text files: guessed from samples of all files, then fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pt

from dray.data.sources.columns import require_distinct
from dray.data.sources.numbers import Numbers
from dray.errors import ConfigError, DataError, nearest


@dataclass(frozen=True, slots=True)
class Found:
    """What a sample of a file shows, or all samples of it together."""

    location: str
    schema: pa.Schema
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    """Of text: what the numbers look like, by column. The type in the schema is only integer or double."""


def widest(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both without loss, or None.

    | types                        | hold        |
    |------------------------------|-------------|
    | nothing but missing, and any | any         |
    | integer, float               | float       |
    | date, timestamp              | timestamp   |
    | timestamps of two precisions | the finer   |
    """
    if one == other or pt.is_null(other):
        return one
    if pt.is_null(one):
        return other
    kinds = {_kind(one), _kind(other)}
    if kinds == {"integer", "float"}:
        return pa.float64()
    if kinds == {"date", "timestamp"}:
        return one if pt.is_timestamp(one) else other
    if kinds == {"timestamp"} and one.tz == other.tz:
        units = ("s", "ms", "us", "ns")
        return max(one, other, key=lambda unit: units.index(unit.unit))
    return None


def text_where_mixed(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the schema of one text file from those of its samples: a column that fits no other type is text."""
    common = schemas[0]
    for schema in schemas[1:]:
        for index, column in enumerate(schema):
            wide = widest(common.field(index).type, column.type)
            common = common.set(index, column.with_type(pa.string() if wide is None else wide))
    return common


def agree(found: Sequence[Found], types: Mapping[str, str | pa.DataType] | None) -> pa.Schema:
    """Return the schema of all files: columns in the first one's order, the types that were asked for, else the widest.

    A column that is missing somewhere, or whose types do not fit together, is an error that names both files.
    """
    first = found[0]
    asked = asked_types(types, first.schema.names)
    fields = []
    for name in first.schema.names:
        type_, by = asked.get(name, first.schema.field(name).type), first.location
        numbers = merged_numbers(found, name)
        for other in found[1:]:
            index = other.schema.get_field_index(name)
            if index < 0:
                raise _missing(name, first.location, other.location)
            if name in asked:
                continue
            wide = widest(type_, other.schema.field(index).type)
            if wide is None and numbers.code is not None and {type_, other.schema.field(index).type} <= _TEXT_OR_NUMBER:
                wide = pa.string()  # 007 in one file and 7 or X7 in another are codes
            if wide is None:
                raise DataError(
                    f'The files differ: column "{name}" is {type_} in {by} but {other.schema.field(index).type} '
                    f"in {other.location}.",
                    fix=f'Give its type: types={{"{name}": "string"}} reads it as text, another type leaves out the '
                    "rows that do not fit. Or leave the file out.",
                )
            if wide != type_:
                type_, by = wide, other.location
        if name not in asked and is_number(type_) and any(name in one.numbers for one in found):
            type_ = numbers.arrow() or pa.string()
        fields.append(pa.field(name, pa.string() if pt.is_null(type_) else type_))
    for other in found[1:]:
        for name in other.schema.names:
            if first.schema.get_field_index(name) < 0:
                raise _missing(name, other.location, first.location)
    return pa.schema(fields)


_TEXT_OR_NUMBER = {pa.string(), pa.int64(), pa.float64()}


def merged_numbers(found: Sequence[Found], name: str) -> Numbers:
    """Return what the numbers of a column look like in all files."""
    merged = Numbers()
    for one in found:
        if name in one.numbers:
            merged.merge(one.numbers[name])
    return merged


def is_number(type_: pa.DataType) -> bool:
    return bool(pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_))


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
    try:
        return pa.type_for_alias(type_)
    except ValueError:
        raise ConfigError(
            f'types has "{type_}" for column "{name}".',
            fix="Use an Arrow type, such as int64, double, string, bool, date32, timestamp[us].",
        ) from None


def _missing(name: str, having: str, lacking: str) -> DataError:
    return DataError(
        f'The files differ: column "{name}" is in {having} but not in {lacking}.',
        fix="Write all files with the same columns, or leave the file out.",
    )


def _kind(type_: pa.DataType) -> str:
    if pt.is_integer(type_):
        return "integer"
    if pt.is_floating(type_):
        return "float"
    if pt.is_date(type_):
        return "date"
    return "timestamp" if pt.is_timestamp(type_) else str(type_)


def require_same(found: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return the schema of files that store their types; text in dictionaries counts as text.

    An integer in one and a float in another is a float, as in `widest`; anything else is an error that names both.
    """
    plain = [
        Found(
            location, pa.schema([(f.name, f.type.value_type if pt.is_dictionary(f.type) else f.type) for f in schema])
        )
        for location, schema in found
    ]
    for one in plain:
        require_distinct(one.schema.names, one.location, fix="Write the file with distinct names.")
    first = found[0][1]
    if all(schema.equals(first) for _, schema in found):
        return first
    return agree(plain, None)
