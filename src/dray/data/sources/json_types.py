"""The schema of JSON objects: guessed from a sample, and where an object does not fit it.

| JSON                                     | becomes                                                                  |
|------------------------------------------|--------------------------------------------------------------------------|
| `{"a": {"b": 1}}`                        | a column `a.b`, at any depth; missing where an object on the way is      |
| `[1, 2]`                                 | a list, which stays a list; objects in it stay objects                   |
| whole numbers; any with a point or `e`   | int64; double. Where those would change one: uint64 or decimal           |
|                                          | (`numbers.py`)                                                           |
| strings                                  | string; timestamp[us] where every one in the sample is a time (ISO 8601) |
| strings and whole numbers                | string: 17 becomes "17". Later numbers and booleans too (`json_texts.py`)|
| `null`, or no such name                  | missing                                                                  |
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.json as pajson
import pyarrow.types as pt

from dray.data.sources.numbers import Numbers, exact_as_double, fits_decimal
from dray.data.sources.types import asked_types, flag_of_type
from dray.errors import DataError

ExtraFields = Literal["reject", "ignore"]
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.(?P<fraction>\d{1,9}))?)?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?)?"
)
_UNREAD = re.compile(r"couldn't parse:(.*)|: (\S+) requires (?:scale|precision)")
_TEXT = pa.string()
DECIMAL_DIGITS = (38, 76)


class Float(float):
    """A number with a point or an exponent, with the text that it was."""

    literal: str


def load(text: bytes | str) -> Any:
    """Parse a text with Python's parser, keeping the digits of numbers; raises its errors."""
    return json.loads(text, parse_float=_float)


def _float(literal: str) -> Float:
    number = Float(literal)
    number.literal = literal
    return number


def literal_of(number: float) -> str:
    """Return a number as it is written in the text."""
    return number.literal if isinstance(number, Float) else repr(number)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was seen."""

    location: str
    line: int | None

    def __str__(self) -> str:
        return self.location if self.line is None else f"{self.location} (line {self.line})"


@dataclass(slots=True)
class Seen:
    """All values seen under one name."""

    kinds: dict[str, Origin] = field(default_factory=dict)
    fields: dict[str, Seen] = field(default_factory=dict)
    items: Seen | None = None
    numbers: Numbers = field(default_factory=Numbers)

    def add(self, value: Any, origin: Origin) -> None:
        kind = _kind(value)
        if kind != "null":
            self.kinds.setdefault(kind, origin)
        if kind in _NUMBERS:
            self.numbers.add(literal_of(value))
        if isinstance(value, dict):
            for name, inner in value.items():
                self.fields.setdefault(name, Seen()).add(inner, origin)
        elif isinstance(value, list):
            self.items = self.items or Seen()
            for inner in value:
                self.items.add(inner, origin)

    def has_values(self, path: str) -> bool:
        """Whether a column has single values, or nothing but nulls: not lists and objects alone."""
        for name, inner in self.fields.items():
            if name == path:
                return not inner.kinds or bool(inner.kinds.keys() - {"object", "list"})
            if path.startswith(f"{name}.") and inner.has_values(path[len(name) + 1 :]):
                return True
        return False

    def arrow(self, path: str, asked: Mapping[str, pa.DataType], unknown: pa.DataType = _TEXT) -> pa.DataType:
        """Return the type that holds all values; raise if two kinds do not fit one type.

        `unknown`: the type where all values were null.
        """
        if path in asked:
            return asked[path]
        kinds = dict(self.kinds)
        if "float" in kinds:
            kinds.pop("integer", None)
        times = [kind for kind in kinds if kind.startswith("time")]
        if "string" in kinds or len({"zone" in kind for kind in times}) > 1:
            for kind in times:
                kinds.setdefault("string", kinds.pop(kind))
        elif len(times) == 2:
            kinds.pop(next(kind for kind in times if "ns" not in kind))
        if "string" in kinds:
            kinds.pop("integer", None)  # an id that is 17 in some places and "x17" in others
        if len(kinds) > 1:
            (one, first), (other, second) = list(kinds.items())[:2]
            named = _NAMES.get(one, "string")
            text = "numbers, true and false are text there, and " if named == "string" else ""
            raise DataError(
                f'"{path}" has values of two types: {_PLAIN[one]} in {first} but {_PLAIN[other]} in {second}.',
                fix=f"Give its type, {flag_of_type(path, named)}: {text}rows with anything else are then rejected.",
            )
        return self._one_kind(next(iter(kinds)), path, asked, unknown) if kinds else unknown

    def _one_kind(self, kind: str, path: str, asked: Mapping[str, pa.DataType], unknown: pa.DataType) -> pa.DataType:
        if kind == "object":
            dot = f"{path}." if path else ""
            return pa.struct([(name, seen.arrow(f"{dot}{name}", asked, unknown)) for name, seen in self.fields.items()])
        if kind == "list":
            return pa.list_((self.items or Seen()).arrow(f"{path}[]", asked, unknown))
        if kind in _NUMBERS:
            return self._number(path)
        return _TYPES[kind]

    def _number(self, path: str) -> pa.DataType:
        found = self.numbers.arrow(DECIMAL_DIGITS)
        if found is None:
            large = self.numbers.inexact or str(max(self.numbers.low, self.numbers.high, key=abs))
            raise DataError(
                f'Column "{path}" holds the number {_cut(large)}, which no type holds with its other numbers.',
                fix=f"Use {flag_of_type(path, 'double')} to read the nearest double, or write the numbers as strings.",
            )
        return found


_TYPES = {
    "bool": pa.bool_(),
    "string": pa.string(),
    "time us": pa.timestamp("us"),
    "time ns": pa.timestamp("ns"),
    "time us zone": pa.timestamp("us", "UTC"),
    "time ns zone": pa.timestamp("ns", "UTC"),
}
_NUMBERS = ("integer", "float")
_NAMES = {"bool": "bool", "integer": "int64", "float": "double"}
_PLAIN = {kind: kind for kind in ("object", "list", "integer", "float", "string")} | {"bool": "true or false"}
_PLAIN |= {kind: "a time" for kind in _TYPES if kind.startswith("time")}


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "integer"
        case float():
            return "float"
        case str():
            found = _TIME.fullmatch(value)
            if found is None:
                return "string"
            unit = "ns" if len(found["fraction"] or "") > 6 else "us"
            return f"time {unit} zone" if found["zone"] else f"time {unit}"
        case dict():
            return "object"
        case _:
            return "list"


def shape_of(seen: Seen, asked: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the nested schema of all objects seen."""
    return pa.schema(list(seen.arrow("", asked) if seen.fields else pa.struct([])))


def with_unseen(shape: pa.Schema, asked: Mapping[str, pa.DataType]) -> tuple[pa.Schema, list[str]]:
    """Return a shape with the columns of `asked` that no object of the sample had, and their names."""
    there = flat_schema(shape).names
    unseen = [name for name in asked if name not in there and not _is_within(name, there)]
    for name in unseen:
        shape = pa.schema(_with_field(list(shape), name.split("."), asked[name]))
    asked_types(asked, flat_schema(shape).names)
    return shape, unseen


def _is_within(name: str, there: Sequence[str]) -> bool:
    """Whether a name is that of objects with columns, or within a list: it is no column of its own."""
    return "[]" in name or any(other.startswith(f"{name}.") or name.startswith(f"{other}.") for other in there)


def _with_field(fields: list[pa.Field], path: Sequence[str], type_: pa.DataType) -> list[pa.Field]:
    first, *rest = path
    inner = next((field for field in fields if field.name == first), None)
    if rest:
        inside = list(inner.type) if inner is not None else []
        type_ = pa.struct(_with_field(inside, rest, type_))
    made = pa.field(first, type_)
    return [made if field is inner else field for field in fields] if inner is not None else [*fields, made]


def flat_schema(shape: pa.Schema) -> pa.Schema:
    """Return the columns that objects of a shape become."""
    fields: list[pa.Field] = []

    def add(inner: pa.Field, prefix: str) -> None:
        if pt.is_struct(inner.type):
            for child in inner.type:
                add(child, f"{prefix}{inner.name}.")
        else:
            fields.append(pa.field(prefix + inner.name, inner.type))

    for top in shape:
        add(top, "")
    names = [found.name for found in fields]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(
            f'Two fields become the column "{twice}": one has a dot in its name.', fix="Rename one of them."
        )
    return pa.schema(fields)


def read_objects(data: bytes, shape: pa.Schema, unexpected: Literal["error", "ignore", "infer"]) -> pa.Table:
    """Return the objects of a text, nested; raises pyarrow's error if one does not fit.

    `unexpected`: what is done with fields that the shape does not have.
    """
    if not data.isascii():
        data.decode()  # pyarrow does not check
    return pajson.read_json(
        pa.BufferReader(data),
        pajson.ReadOptions(use_threads=False, block_size=len(data) + 64),
        pajson.ParseOptions(explicit_schema=shape, unexpected_field_behavior=unexpected),
    )


def flatten(table: pa.Table) -> pa.Table:
    """Return the table with a column for every value within objects."""
    while any(pt.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


@dataclass(frozen=True, slots=True)
class Demands:
    """What objects must fit."""

    shape: pa.Schema
    extra_fields: ExtraFields = "ignore"
    asked: Container[str] = ()
    """The columns whose type the user gave: there the nearest number is accepted."""

    def changed(self, text: bytes) -> str | None:
        """Return which value of a record pyarrow would change; None if none."""
        return _misfit(load(text), pa.struct(list(self.shape)), "", None, self)


def misfit(text: bytes, demands: Demands, error: Exception) -> str:
    """Return why a record was rejected, for the user."""
    try:
        value = load(text.decode())
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except json.JSONDecodeError as reason:
        cut = reason.msg.startswith("Unterminated") or reason.pos >= len(reason.doc.rstrip()) - 1
        return f"not JSON: {reason.msg}{' (cut off?)' if cut else ''}"
    except (ValueError, RecursionError) as reason:
        return f"not JSON: {reason}"
    if not isinstance(value, dict):
        return f"{_article(value)} instead of an object"
    first_line = (str(error).splitlines() or [""])[0]
    found = _UNREAD.search(first_line)
    unread = found[1] or found[2] if found else None
    return _misfit(value, pa.struct(list(demands.shape)), "", unread, demands) or first_line


def _misfit(value: Any, type_: pa.DataType, path: str, unread: str | None, demands: Demands) -> str | None:
    if value is None:
        return None
    asked = path in demands.asked
    wanted = () if pt.is_decimal(type_) and asked else _wanted(type_)
    boolean = isinstance(value, bool) and not (pt.is_boolean(type_) or pt.is_string(type_))
    if (wanted and not isinstance(value, wanted)) or boolean:
        return f'column "{path}": {_article(value)} is not {type_}'
    if isinstance(value, dict) and pt.is_struct(type_):
        known = {child.name: child.type for child in type_}
        for name, inner in value.items():
            inner_path = f"{path}.{name}" if path else name
            if name not in known and demands.extra_fields == "ignore":
                continue
            if name not in known:
                return f'"{inner_path}" is a field that the sample did not have'
            if found := _misfit(inner, known[name], inner_path, unread, demands):
                return found
        return None
    if isinstance(value, list) and pt.is_list(type_):
        if asked:
            demands = replace(demands, asked={f"{path}[]"})
        inside = (_misfit(inner, type_.value_type, f"{path}[]", unread, demands) for inner in value)
        return next(filter(None, inside), None)
    written = literal_of(value) if isinstance(value, float) else str(value)
    if unread is not None and unread in (written, json.dumps(value).strip('"')):
        return f'column "{path}": {unread[:100]!r} is not {type_}'
    changed = (pt.is_floating(type_) and not asked and not exact_as_double(literal_of(value))) or (
        pt.is_decimal(type_) and not isinstance(value, str) and not fits_decimal(literal_of(value), type_)
    )
    return f'column "{path}": {_cut(literal_of(value))} has more digits than {type_} can hold' if changed else None


def _wanted(type_: pa.DataType) -> tuple[type, ...]:
    if pt.is_struct(type_):
        return (dict,)
    if pt.is_list(type_):
        return (list,)
    if pt.is_boolean(type_):
        return (bool,)
    if pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_):
        return (int, float)
    if pt.is_string(type_):
        return (str, bool, int, float)
    return (str,) if pt.is_timestamp(type_) else ()


def _cut(literal: str) -> str:
    return literal if len(literal) <= 100 else f"{literal[:100]}..."


def _article(value: Any) -> str:
    kind = _kind(value)
    shown = json.dumps(value, ensure_ascii=False)[:100]
    return {"object": "an object", "list": "a list"}.get(kind, shown)
