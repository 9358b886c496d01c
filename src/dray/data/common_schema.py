"""One schema for files that differ.

| difference                            | what happens                                                      |
|---------------------------------------|-------------------------------------------------------------------|
| a column is missing in some files     | it is null there, and a note says so; `columns="same"` refuses it |
| its types hold each other's values    | it gets the type that holds them all: see `common_type`           |
| its types do not                      | it is left out, and is an error where it is used: `conflicts.py`  |
| a file has no column of the others    | an error: it is of another kind, or lacks its header              |

Columns have the order in which they first appear. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.types as pt

from dray.data.conflicts import Conflicts, refuse_conflicts, with_conflicts
from dray.data.features import dictionary_type, is_text
from dray.data.fitted import Given
from dray.data.source import Note
from dray.errors import DataError

Columns = Literal["union", "same"]
Choose = Callable[[str, Sequence[pa.DataType]], pa.DataType | None]
"""Returns the type that holds the values of a column with these types, or None."""

_UNITS = ("s", "ms", "us", "ns")
_DOUBLE_DIGITS = 15
"""A decimal of so many digits is the same after it was a double."""
_MOST_TOLD = 10


@dataclass(frozen=True, slots=True)
class Alike:
    """Files with the same columns and types."""

    schema: pa.Schema
    types: dict[str, pa.DataType]
    files: list[str]


@dataclass(frozen=True, slots=True)
class Common:
    """What all files together have."""

    schema: pa.Schema
    notes: tuple[Note, ...] = ()


def common_schema(
    found: Sequence[tuple[str, pa.Schema]],
    columns: Columns = "union",
    *,
    choose: Choose | None = None,
    fix: str = "Write the column with one type in all files",
) -> Common:
    """Return the schema of the files that are found, each with its own; what differs is told in notes.

    `fix`: what to do with a column whose types do not fit together, besides leaving it out; NAME is the column.
    """
    kinds = _alike(found)
    if len(kinds) == 1 and choose is None:
        return Common(kinds[0].schema)
    choose = choose or (lambda _name, types: common_type(types))
    fields, conflicts = [], {}
    for name in dict.fromkeys(name for kind in kinds for name in kind.schema.names):
        having = [kind for kind in kinds if name in kind.types]
        types = [kind.types[name] for kind in having]
        type_ = choose(name, types)
        if type_ is None:
            conflicts[name] = _told_types(having, types)
        else:
            fields.append(pa.field(name, type_))
    _require_related(kinds)
    lacking = _told_lacking(kinds, len(found))
    if lacking and columns == "same":
        raise DataError(
            f"The files differ: {lacking}.",
            fix="Write all files with the same columns, or use --read columns=union: what is missing is null.",
        )
    schema = with_conflicts(pa.schema(fields), conflicts, fix)
    notes = []
    if lacking:
        notes.append(Note(f"{lacking[0].upper()}{lacking[1:]}: null there.", "--read columns=same refuses that."))
    if conflicts:
        told = "; ".join(f'column "{name}" {what}' for name, what in conflicts.items())
        advice = Conflicts(conflicts, fix).fix_of(next(iter(conflicts)))
        notes.append(Note(f"Types of columns do not fit together: {told}. They cannot be used.", advice))
    if not fields:
        refuse_conflicts(schema)
    return Common(schema, tuple(notes))


def differing(own: pa.Schema, common: pa.Schema) -> Given:
    """Return the fields of the common schema that a file lacks, or stores with another type.

    Text is text in whatever way it is stored, and a dictionary has the meaning of its values.
    """
    found = []
    for field in common:
        index = own.get_field_index(field.name)
        if index < 0 or not _stored_alike(own.field(index).type, field.type):
            found.append(field)
    return tuple(found)


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds the values of all types without loss, or None. The order does not matter, except
    that text stays stored as it first was.

    | types                               | hold                                                                     |
    |-------------------------------------|--------------------------------------------------------------------------|
    | nothing but missing, and any        | any                                                                      |
    | whole numbers                       | the larger; a decimal for uint64 with a signed one                       |
    | whole numbers and floats            | float64 (smaller ones if that is enough); reading refuses a larger number |
    | decimals, whole numbers             | a decimal with enough digits                                             |
    | decimals of 15 digits, and floats   | float64                                                                  |
    | dates, timestamps                   | timestamps of the finest unit; of several zones in UTC, but with a zone  |
    |                                     | and without one do not fit together                                      |
    | times of day; durations             | of the finest unit                                                       |
    | text; dictionaries and their values | text; dictionaries                                                       |
    """
    distinct = list(dict.fromkeys(type_ for type_ in types if not pt.is_null(type_)))
    if len(distinct) < 2:
        return distinct[0] if distinct else pa.null()
    plain = [type_.value_type if pt.is_dictionary(type_) else type_ for type_ in distinct]
    if all(map(is_text, plain)):
        return distinct[0]
    if any(map(pt.is_dictionary, distinct)):
        values = common_type(plain)
        return None if values is None else dictionary_type(values)
    if all(pt.is_integer(t) or pt.is_floating(t) or pt.is_decimal(t) for t in distinct):
        return _common_number(distinct)
    if all(pt.is_date(t) or pt.is_timestamp(t) for t in distinct):
        return _common_time(distinct)
    if all(map(pt.is_time, distinct)):
        unit = _finest(distinct)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    return pa.duration(_finest(distinct)) if all(map(pt.is_duration, distinct)) else None


def may_lose(common: pa.DataType, types: Iterable[pa.DataType]) -> bool:
    """Whether the type that holds several has no room for some of their values: large whole numbers in a double."""
    return bool(pt.is_floating(common)) and any(pt.is_integer(t) and t.bit_width > 32 for t in types)


def _common_number(types: Sequence[pa.DataType]) -> pa.DataType | None:
    whole = [t for t in types if pt.is_integer(t)]
    floats = [t for t in types if pt.is_floating(t)]
    decimals = [t for t in types if pt.is_decimal(t)]
    if floats and decimals:
        return pa.float64() if all(t.precision <= _DOUBLE_DIGITS for t in decimals) else None
    if floats:
        bits = max([t.bit_width for t in floats] + [2 * t.bit_width for t in whole])
        return {16: pa.float16(), 32: pa.float32()}.get(bits, pa.float64())
    integer = _common_integer(whole) if whole else None
    if not decimals and integer is not None:
        return integer
    scale = max((t.scale for t in decimals), default=0)
    digits = max([t.precision - t.scale for t in decimals] + [len(str(2**t.bit_width)) for t in whole])
    if digits + scale > 76:
        return None
    return pa.decimal128(digits + scale, scale) if digits + scale <= 38 else pa.decimal256(digits + scale, scale)


def _common_integer(types: Sequence[pa.DataType]) -> pa.DataType | None:
    signed = any(map(pt.is_signed_integer, types))
    bits = max(t.bit_width * (2 if signed and pt.is_unsigned_integer(t) else 1) for t in types)
    return None if bits > 64 else pa.type_for_alias(f"{'' if signed else 'u'}int{bits}")


def _common_time(types: Sequence[pa.DataType]) -> pa.DataType | None:
    times = [t for t in types if pt.is_timestamp(t)]
    if not times:
        return pa.date32()
    zones = {t.tz for t in times}
    if len(zones) == 1:
        return pa.timestamp(_finest(times), zones.pop())
    return None if None in zones else pa.timestamp(_finest(times), "UTC")


def _finest(types: Sequence[pa.DataType]) -> str:
    return max((str(t.unit) for t in types), key=_UNITS.index)


def _stored_alike(own: pa.DataType, common: pa.DataType) -> bool:
    one, other = (t.value_type if pt.is_dictionary(t) else t for t in (own, common))
    return bool(one == other or (is_text(one) and is_text(other)))


def _alike(found: Sequence[tuple[str, pa.Schema]]) -> list[Alike]:
    """Return the distinct schemas, in order of appearance, with their files."""
    kinds: list[Alike] = []
    latest: Alike | None = None
    for file, schema in found:
        if latest is None or not schema.equals(latest.schema):
            latest = next((kind for kind in kinds if schema.equals(kind.schema)), None)
        if latest is None:
            types = dict(zip(schema.names, schema.types, strict=True))
            latest = Alike(schema.remove_metadata(), types, [])
            kinds.append(latest)
        latest.files.append(file)
    return kinds


def _require_related(kinds: Sequence[Alike]) -> None:
    """Refuse a file that has no column of the others."""
    most = max(kinds, key=lambda kind: len(kind.files))
    for kind in sorted(kinds, key=lambda kind: len(kind.files)):
        others = {name for other in kinds if other is not kind for name in other.schema.names}
        if kind is not most and kind.schema.names and others.isdisjoint(kind.schema.names):
            raise DataError(
                f"The files differ: {kind.files[0]} has no column of {most.files[0]}; its columns are "
                f"{_listed(kind.schema.names)}, the other's {_listed(most.schema.names)}.",
                fix="Leave the file out if it is of another kind; if it is text without a header, give its columns "
                "with names.",
            )


def _told_lacking(kinds: Sequence[Alike], count: int) -> str:
    """Return which columns are missing in which files; "" if none."""
    by_files: dict[tuple[int, ...], list[str]] = {}
    for name in dict.fromkeys(name for kind in kinds for name in kind.schema.names):
        lacking = tuple(index for index, kind in enumerate(kinds) if name not in kind.types)
        if lacking:
            by_files.setdefault(lacking, []).append(name)
    told = []
    for lacking, names in by_files.items():
        files = sorted(file for index in lacking for file in kinds[index].files)
        said = f'column "{names[0]}" is' if len(names) == 1 else f"columns {_listed(names)} are"
        told.append(f"{said} missing in {len(files):,} of {count:,} files (first: {files[0]})")
    more = [f"and so on for {len(told) - _MOST_TOLD:,} further groups of columns"] if len(told) > _MOST_TOLD else []
    return "; ".join(told[:_MOST_TOLD] + more)


def _told_types(kinds: Sequence[Alike], types: Sequence[pa.DataType]) -> str:
    """Return the types of a column and where they are."""
    by_type: dict[pa.DataType, list[str]] = {}
    for kind, type_ in zip(kinds, types, strict=True):
        if not pt.is_null(type_):
            by_type.setdefault(type_, []).extend(kind.files)
    told = []
    for type_, files in by_type.items():
        where = min(files) if len(files) == 1 else f"{len(files):,} files (first: {min(files)})"
        told.append(f"{type_} in {where}")
    return f"is {', '.join(told[:-1])} but {told[-1]}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_MOST_TOLD])
    return f"{shown} and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else shown
