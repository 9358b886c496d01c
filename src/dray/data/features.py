"""What each column means to a model, and the numbers it becomes.

| column                         | becomes                                                       |
|--------------------------------|---------------------------------------------------------------|
| float, integer, decimal        | its value as float32                                          |
| boolean                        | 0 or 1                                                        |
| date                           | days since 1970-01-01                                         |
| timestamp                      | seconds since 1970-01-01, UTC (without a zone: read as UTC)   |
| time of day, duration          | seconds                                                       |
| string, dictionary             | the number of its category in one dictionary for all the data |
| string that holds times        | as a timestamp; or parts of it, each a column of its own      |
| null, NaN                      | missing, and stays missing                                    |

A dictionary of whole numbers, booleans or dates is a category as well: its names are the texts of its values.
Lists, structs, maps and binary are refused by name.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.conflicts import conflicts_of, refuse_conflicts
from dray.data.fitting import as_kind, as_type, means_missing
from dray.data.time_text import PER_SECOND, Times
from dray.data.times import Part, has_text, is_of_digits, part_of, times_of
from dray.errors import DataError, nearest

Kind = Literal["number", "boolean", "date", "timestamp", "seconds", "category"]
Floats = npt.NDArray[np.float32]

TEXT = "string"
_WHOLE_NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_PLAIN_NUMBERS = _WHOLE_NUMBERS | {str(arrow) for arrow in (pa.float16(), pa.float32(), pa.float64())}
_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its meaning; `categories` is the global dictionary of a category column."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    """As text, for values of any type."""
    values: str = TEXT
    """Arrow's name of the type of a category's values, such as int64; text of any size is "string"."""
    of: str = ""
    """The stored column that it is made of, if that has another name."""
    part: Part | None = None
    """Which part of a time it is."""
    form: str = ""
    """How text holds the times (`time_text.py`); empty where the column is not read as times, or never was text."""

    @property
    def stored(self) -> str:
        """The column of the data to read."""
        return self.of or self.name

    @property
    def holds_times(self) -> bool:
        """Whether it is made of times, whatever type they are stored with."""
        return self.part is not None or self.form != ""

    @property
    def holds_numbers(self) -> bool:
        """Whether it is read from numbers, also where each is a category."""
        is_number = self.kind in ("number", "boolean") or (self.kind == "category" and self.values in _PLAIN_NUMBERS)
        return is_number and not self.holds_times

    @property
    def holds_moments(self) -> bool:
        """Whether it is read from dates and times that are no numbers, nor written as one."""
        is_number = self.form in PER_SECOND or is_of_digits(self.form)
        return self.kind in ("date", "timestamp") or (self.holds_times and not is_number)

    @property
    def category_count(self) -> int | None:
        """None if the column is not a category."""
        return len(self.categories) if self.kind == "category" else None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "category":
            document["categories"] = list(self.categories)
        if self.values != TEXT:
            document["values"] = self.values
        return document | {key: value for key in ("of", "part", "form") if (value := getattr(self, key))}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Column:
        return Column(
            document["name"],
            document["kind"],
            tuple(document.get("categories", ())),
            document.get("values", TEXT),
            document.get("of", ""),
            document.get("part"),
            document.get("form", ""),
        )

    def takes(self, arrow: pa.DataType) -> bool:
        """Whether this column takes values of a type: only where they mean the same.

        A dictionary equals its plain values, and the other way round: 1 is the category "1" of whole numbers.
        """
        found = column_of(self.name, arrow)
        if pt.is_null(arrow):
            return True
        plain = arrow.value_type if pt.is_dictionary(arrow) else arrow
        if self.holds_times:
            return is_text(plain) or pt.is_timestamp(plain) or pt.is_date(plain)
        if self.kind != "category":
            return fits(kind_of(self.name, plain), self.kind)
        values = found.values if found.kind == "category" else str(plain)
        return values == self.values or {values, self.values} <= _PLAIN_NUMBERS

    def with_more(self, categories: Iterable[str]) -> Column:
        """Return the column with the categories that it does not have yet, after those that it has."""
        known = set(self.categories)
        new = tuple(category for category in categories if category not in known)
        if self.values in _WHOLE_NUMBERS:
            for category in new:
                if not category.removeprefix("-").isdecimal():
                    raise DataError(
                        f'Column "{self.name}" has categories of whole numbers ({self.values}), but holds {category}.',
                        fix="Write the column with the type it had before.",
                    )
        return replace(self, categories=self.categories + new)


def column_of(name: str, arrow: pa.DataType) -> Column:
    """Return a column with the meaning of its type; its categories, if it has any, are not known yet."""
    values = arrow.value_type if pt.is_dictionary(arrow) else pa.string()
    return Column(name, kind_of(name, arrow), values=TEXT if is_text(values) or pt.is_null(values) else str(values))


def kind_of(name: str, arrow: pa.DataType) -> Kind:
    """Return the meaning of a column; raise if it has none."""
    if pt.is_floating(arrow) or pt.is_integer(arrow) or pt.is_decimal(arrow) or pt.is_null(arrow):
        return "number"
    if pt.is_boolean(arrow):
        return "boolean"
    if pt.is_date(arrow):
        return "date"
    if pt.is_timestamp(arrow):
        return "timestamp"
    if pt.is_time(arrow) or pt.is_duration(arrow):
        return "seconds"
    if is_text(arrow) or (pt.is_dictionary(arrow) and _can_be_text(arrow.value_type)):
        return "category"
    raise DataError(
        f'Column "{name}" has type {arrow}, which has no meaning as a feature.',
        fix=f"Leave it out with --ignore {shlex.quote(name)}, or write it as a number or a string.",
    )


def require_weight(name: str, arrow: pa.DataType) -> None:
    """Raise unless a column can be the weight of rows."""
    if (kind := kind_of(name, arrow)) not in ("number", "boolean"):
        found = "text" if kind == "category" else arrow
        raise DataError(f'The weight column "{name}" is {found}.', fix="Weights are numbers.")


def is_text(arrow: pa.DataType) -> bool:
    return bool(pt.is_string(arrow) or pt.is_large_string(arrow) or pt.is_string_view(arrow))


def fits(found: Kind, known: Kind) -> bool:
    """Whether a column of one kind may be used where another is known: only where their numbers mean the same."""
    return found == known or {found, known} == {"number", "boolean"}


def _can_be_text(arrow: pa.DataType) -> bool:
    binary = pt.is_binary(arrow) or pt.is_large_binary(arrow) or pt.is_binary_view(arrow)
    return not (binary or pt.is_fixed_size_binary(arrow) or pt.is_nested(arrow))


def choose_features(schema: pa.Schema, *, taken: Iterable[str], ignore: Sequence[str]) -> list[Column]:
    """Return the features in the order of the schema: every column that has no other role."""
    for name in ignore:
        if name not in conflicts_of(schema).found:
            require_column(schema, name, role="--ignore")
    left_out = {*taken, *ignore}
    refuse_conflicts(schema, ignore=ignore, or_else=_leaving_out)
    features = [column_of(field.name, field.type) for field in schema if field.name not in left_out]
    if not features:
        raise DataError("No column is left to be a feature.", fix="Give data with more columns, or --ignore fewer.")
    return features


def _leaving_out(names: Sequence[str]) -> str:
    return (
        f"Or leave {'it' if len(names) == 1 else 'them'} out: {' '.join(f'--ignore {shlex.quote(n)}' for n in names)}"
    )


def require_column(schema: pa.Schema, name: str, *, role: str) -> pa.DataType:
    refuse_conflicts(schema, [name])
    if name not in schema.names:
        names = schema.names
        some = ", ".join(names if len(names) <= 13 else [*names[:12], "...", names[-1]])
        if names == [f"f{index}" for index in range(len(names))]:  # as they are called where there is no header
            some += f"; the last is {names[-1]}"
        raise DataError(
            f'There is no column "{name}" ({role}) in the data.{nearest(name, schema.names)}', fix=f"Columns: {some}."
        )
    return schema.field(name).type


class Encoder:
    """Turns record batches into the float32 matrix of the given columns, matched by name.

    `unseen` counts, by column, the values that have no category: they become missing. With `any_type` a column may
    hold any type, as new data does: its values are read one by one (`fitting.py`), and `unreadable` counts those that
    became missing. One thread at a time.
    """

    def __init__(self, columns: Sequence[Column], *, any_type: bool = False) -> None:
        self.columns = list(columns)
        self.unseen: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        """Texts that are not times of the form that a column has, and other values that it cannot hold: they become
        missing."""
        self._any_type = any_type
        self._categories = {c.name: pa.array(c.categories, pa.string()) for c in columns if c.kind == "category"}

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def stored(self) -> list[str]:
        """The columns of the data to read."""
        return stored_names(self.columns)

    def matrix(self, batch: pa.RecordBatch) -> Floats:
        read: dict[str, Times] = {}
        return np.stack([self.column(batch.column(column.stored), column, read) for column in self.columns], axis=1)

    def column(self, values: pa.Array, column: Column, read: dict[str, Times] | None = None) -> Floats:
        """Return the values of a column. `read`: the times of these rows by stored column, read once for all parts."""
        if column.holds_times:
            if self._any_type:
                values, lost = as_kind(values, "category")  # times are made of all that has a text
                if lost:
                    self.unreadable[column.stored] += lost
            return self._of_times(values, column, {} if read is None else read)
        if self._any_type:
            values, lost = as_kind(values, column.kind)
            if lost:
                self.unreadable[column.name] += lost
        if column.kind == "category":
            return self._codes(values, column)
        if pt.is_dictionary(values.type):
            values = values.dictionary_decode()
        return _numbers(values, column)

    def _of_times(self, values: pa.Array, column: Column, read: dict[str, Times]) -> Floats:
        times = read.get(column.stored)
        if times is None:
            times = read[column.stored] = times_of(values, column.form)
            unread = values.filter(pa.array(has_text(values) & ~times.valid))
            if lost := len(unread) - (pc.sum(means_missing(unread)).as_py() or 0):
                self.unreadable[column.stored] += lost
        return times.float_seconds().astype(np.float32) if column.part is None else part_of(times, column.part)

    def _codes(self, values: pa.Array, column: Column) -> Floats:
        local, indices = dictionary_of(values)
        known = self._categories[column.name]
        code_of = pc.index_in(local, value_set=known)
        unknown = pc.and_(pc.is_null(code_of), pc.is_valid(local))
        if self._any_type and pc.any(unknown).as_py():
            meant = texts_of(as_type(pc.if_else(unknown, local, None), _type_of_categories(column))[0])
            code_of = pc.coalesce(code_of, pc.index_in(_without_zeros(meant), value_set=known))
            unknown = pc.and_(pc.is_null(code_of), pc.is_valid(local))
        is_unknown = unknown.to_numpy(zero_copy_only=False)
        if is_unknown.any() and (count := int(is_unknown[indices[indices < len(local)]].sum())):
            self.unseen[column.name] += count
        codes = np.append(code_of.to_numpy(zero_copy_only=False).astype(np.float32), np.float32(np.nan))
        found: Floats = codes[indices]
        return found


def stored_names(columns: Iterable[Column]) -> list[str]:
    """Return the columns of the data that some columns are made of, each once."""
    return list(dict.fromkeys(column.stored for column in columns))


def _type_of_categories(column: Column) -> pa.DataType:
    """Return the type of a category's values: 007 is 7 where they are whole numbers, and another text elsewhere."""
    if column.values in _WHOLE_NUMBERS:
        return pa.float64()  # 7.0 is 7 too; ids that it does not hold are the texts that are known
    try:
        return pa.type_for_alias(column.values)
    except ValueError:  # a decimal
        return pa.string()


def _without_zeros(texts: pa.Array) -> pa.Array:
    """Return 7.0 as 7, which it is where a column of whole numbers has gaps in pandas."""
    return pc.replace_substring_regex(texts, r"^([+-]?[0-9]+)\.0+$", r"\1")


def dictionary_of(values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return a column's distinct values as strings and each row's index into them; their number means missing."""
    if not pt.is_dictionary(values.type):
        values = values.dictionary_encode()
    local = texts_of(values.dictionary)
    return local, pc.fill_null(values.indices.cast(pa.int64()), len(local)).to_numpy(zero_copy_only=False)


def dictionary_type(values: pa.DataType) -> pa.DataType:
    """One type for dictionaries of any size: another file may hold more values than this index type can count."""
    return pa.dictionary(pa.int32(), values)


def plain_field(field: pa.Field) -> pa.Field:
    """Return a field without its dictionary, unless of text: files may store such values either way."""
    arrow = field.type
    return field.with_type(arrow.value_type) if pt.is_dictionary(arrow) and not is_text(arrow.value_type) else field


def as_meant(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the dictionary types of `schema`."""
    for index, field in enumerate(batch.schema):
        meant = schema.field(field.name).type
        if pa.types.is_dictionary(meant) and not pa.types.is_dictionary(field.type):
            values = batch.column(index).dictionary_encode().cast(meant)
            batch = batch.set_column(index, field.with_type(meant), values)
    return batch


def texts_of(values: pa.Array) -> pa.Array:
    """Return values as the names of categories: one text a value, whatever type it is stored with.

    A whole number has the same text as a float (pandas turns integers with gaps into floats), and a timestamp the same
    in seconds and in nanoseconds. NaN is missing.
    """
    if pt.is_floating(values.type):
        floats = values.cast(pa.float64())
        floats = pc.if_else(pc.is_nan(floats), None, floats)
        whole = pc.and_(pc.equal(pc.floor(floats), floats), pc.less(pc.abs(floats), 2.0**53))
        return pc.if_else(
            whole, pc.if_else(whole, floats, 0.0).cast(pa.int64()).cast(pa.string()), values.cast(pa.string())
        )
    texts = values.cast(pa.string())
    if pt.is_timestamp(values.type) or pt.is_time(values.type):
        texts = pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+", r"\1")
        texts = pc.replace_substring_regex(texts, r"\.0+(\D|$)", r"\1")
    return texts


def _numbers(values: pa.Array, column: Column) -> Floats:
    arrow = values.type
    if not pt.is_null(arrow) and not fits(kind_of(column.name, arrow), column.kind):
        raise DataError(
            f'Column "{column.name}" holds {arrow} here, but the model knows it as a {column.kind}.',
            fix="Write the column with the type it had in training.",
        )
    if pt.is_timestamp(arrow) or pt.is_duration(arrow) or pt.is_time(arrow):
        whole = values.cast(pa.int32() if pt.is_time32(arrow) else pa.int64()).cast(pa.float64(), safe=False)
        seconds = pc.divide(whole, float(_UNITS_PER_SECOND[arrow.unit]))
        numbers = seconds.to_numpy(zero_copy_only=False)
    elif pt.is_date(arrow):
        numbers = (
            values.cast(pa.date32()).cast(pa.int32()).cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
        )
    elif pt.is_decimal(arrow):
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    elif pt.is_floating(arrow):
        numbers = values.to_numpy(zero_copy_only=False)
    else:
        numbers = values.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which the learner refuses
        floats: Floats = numbers.astype(np.float32, copy=False)
    return floats
