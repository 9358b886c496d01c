"""How data that is new to a model is read: as the data of its run was, unless the user says something else.

What a run was told of its data (`read:`, `format:`) holds for new data of the same format. An option that is given
wins, each by itself. Only text files inherit: the options of others (the version of a table, a query) name the data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from dray.batch.engine import Emit
from dray.data.conflicts import conflicts_of
from dray.data.fitting import may_be_read_as_text
from dray.data.open_source import ENDINGS, format_of, open_source
from dray.data.read_options import OPTIONS, as_options
from dray.data.source import Source
from dray.data.sources.csv import first_rows
from dray.data.sources.files import find_files, plain_name
from dray.data.sources.tables import is_table
from dray.data.sources.time_forms import as_asked, forms_in
from dray.data.sources.types import asked_types, is_number
from dray.errors import DataError
from dray.events.kinds import Warned
from dray.ingesting.cache import Reading, is_query
from dray.runs.files import MANIFEST, RunFiles
from dray.storage import StorageOptions, open_storage, translate_errors

TEXT_FORMATS = ("csv", "json")
"""Formats whose columns have no types of their own."""
_ROLES = ("label", "weight", "group", "ignore")


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """How a run read its data."""

    format: str | None = None
    """None: as the files' suffixes say, and they say several things or nothing."""
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    columns: tuple[str, ...] = ()
    """Those that the run names, whatever for."""

    @property
    def types(self) -> dict[str, Any]:
        """The types that the run was told."""
        return dict(self.options.get("types") or {})


def trained_on(model: Any, storage: StorageOptions) -> TrainedOn:
    """Return how the run of a model read its data; of what is not a run, nothing is known."""
    if not isinstance(model, str):
        return TrainedOn()
    filesystem, path = open_storage(model, storage)
    with translate_errors(model):
        if filesystem.get_file_info(path).type == pafs.FileType.File:
            return TrainedOn()
    files = RunFiles(model, storage)
    document = files.read_json(MANIFEST) if files.exists(MANIFEST) else None
    config = document.get("config") if isinstance(document, dict) else None
    return _of_config(config) if isinstance(config, dict) else TrainedOn()


def _of_config(config: Mapping[str, Any]) -> TrainedOn:
    named: list[str] = []
    for role in _ROLES:
        value = config.get(role)
        named += value if isinstance(value, list) else [value] if isinstance(value, str) else []
    label = config.get("label")
    return TrainedOn(
        config.get("format") or _by_suffix(config.get("data") or ()),
        config.get("read") or {},
        label if isinstance(label, str) else None,
        tuple(named),
    )


def _by_suffix(names: Sequence[str]) -> str | None:
    found = {ENDINGS[end] for name in names for end in ENDINGS if plain_name(name).endswith(end)}
    return found.pop() if len(found) == 1 else None


def as_trained(
    data: Any, columns: Sequence[str], before: TrainedOn, reading: Reading, storage: StorageOptions, emit: Emit
) -> Reading:
    """Return how new data is read. `columns`: those that the model reads."""
    names = locations(data)
    if names is None:
        return reading
    format = reading.format or _format_of(names, before, storage)
    given = dict(reading.options or {})
    if not _inherits(format, before):
        return replace(reading, format=format)
    options = {name: value for name, value in before.options.items() if name != "types"} | given
    if format == "csv":
        options = _with_its_header(names, options, given, columns, storage, emit)
        options = _without_label(names, options, given, columns, before, storage, emit)
    return replace(reading, format=format, options=options)


def locations(data: Any) -> list[str] | None:
    """Return the names of files; None for what is no files: a table, a function."""
    names = [data] if isinstance(data, str) else data
    plain = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    return list(names) if plain else None


def _format_of(names: Sequence[str], before: TrainedOn, storage: StorageOptions) -> str:
    try:
        return format_of(names, storage)
    except DataError:
        if before.format is None or any(_has_ending(file.location) for file in find_files(names, storage)):
            raise
        return before.format


def _has_ending(name: str) -> bool:
    """Whether a name says its format."""
    return plain_name(name).endswith(tuple(ENDINGS))


def _inherits(format: str, before: TrainedOn) -> bool:
    return format in TEXT_FORMATS and before.format in (None, format) and set(before.options) <= set(OPTIONS[format])


def _with_its_header(
    names: Sequence[str],
    options: dict[str, Any],
    given: Mapping[str, Any],
    columns: Sequence[str],
    storage: StorageOptions,
    emit: Emit,
) -> dict[str, Any]:
    """Return the options for files that have a header with the model's columns, though the training data had none.

    So pandas writes them: f0,f1,f2. As data, that line would be a row more.
    """
    if "header" in given or "names" in given or not _is_headerless(as_options("csv", options)):
        return options
    own = {name: value for name, value in options.items() if name not in ("header", "names")}
    how = {name: value for name, value in own.items() if name not in ("types", "columns")} | {"header": False}
    rows = first_rows(names, storage, **as_options("csv", how))
    if not rows or not columns or not all(set(columns) <= set(row) for row in rows):
        return options
    emit(
        Warned(
            "The data begins with the names of the model's columns: that line is read as a header, which the training "
            "data did not have.",
            fix="If it is a row of data, use --read header=false.",
        )
    )
    return own | {"header": True}


def _is_headerless(options: Mapping[str, Any]) -> bool:
    return not options.get("header", "names" not in options)


def _without_label(
    names: Sequence[str],
    options: dict[str, Any],
    given: Mapping[str, Any],
    columns: Sequence[str],
    before: TrainedOn,
    storage: StorageOptions,
    emit: Emit,
) -> dict[str, Any]:
    """Return the options with the names of the columns, of which the label may be missing in new data."""
    found = as_options("csv", {name: value for name, value in options.items() if name in ("header", "names")})
    if found.get("header") and "header" in given and "names" not in given:
        return {name: value for name, value in options.items() if name != "names"}
    if not _is_headerless(found) or "names" in given or before.label is None:
        return options
    expected = list(found.get("names") or _numbered([*columns, *before.columns]))
    if before.label not in expected or _width(names, options, storage) != len(expected) - 1:
        return options
    emit(
        Warned(
            f"The data has {len(expected) - 1} columns, one fewer than the training data had: "
            f'it is read as without the label "{before.label}".',
            fix="If it lacks another column, name those that it has: --read names=a,b,c.",
        )
    )
    return options | {"names": [name for name in expected if name != before.label], "header": False}


def _numbered(columns: Sequence[str]) -> list[str]:
    """Return all columns up to the last one that the run has used, by the names that a file without a header has."""
    numbers = [int(name[1:]) for name in columns if name[:1] == "f" and name[1:].isdecimal()]
    return [f"f{number}" for number in range(max(numbers, default=-1) + 1)]


def _width(names: Sequence[str], options: Mapping[str, Any], storage: StorageOptions) -> int:
    """Return how many columns the files have."""
    how = {name: value for name, value in options.items() if name not in ("names", "types")}
    source = open_source(list(names), storage, format="csv", may_be_empty=True, **{**how, "header": False})
    return len(getattr(source, "inner", source).schema)


def same_format(one: Sequence[str], other: Sequence[str], storage: StorageOptions) -> bool:
    """Whether two sets of files have one format."""
    return format_of(one, storage) == format_of(other, storage)


def with_types(
    data: Any,
    wanted: Mapping[str, pa.DataType],
    told: Mapping[str, Any],
    reading: Reading,
    storage: StorageOptions,
    as_written: Collection[str] = (),
) -> Reading:
    """Return how data is read: text files with the types that are wanted, where they have such a column.

    `told`: the types that a run was told; those that are given stay. `as_written`: columns that are text instead, for a
    reader that takes any type; numbers are only as long as their separators are those that it knows.
    """
    names = locations(data)
    format = reading.format or (None if names is None else format_of(names, storage))
    if format not in TEXT_FORMATS:
        return reading
    reading = replace(reading, format=format)
    shown = _shown(data, tuple(wanted), reading, storage)
    there = [*shown.names, *conflicts_of(shown).found]  # a type ends a conflict
    options = reading.options or {}
    forms = forms_in(told)  # only the reader knows them
    plain = options.get("decimal") in (None, ".") and options.get("thousands") is None
    types = {}
    for name, type_ in wanted.items():
        if name in as_written and (plain or not is_number(type_)):
            type_ = pa.string()
        if (
            name in there
            and may_be_read_as_text(type_)
            and name not in forms
            and not (name in shown.names and _stays_float(shown.field(name).type, type_, format))
            and not (format == "json" and pa.types.is_date(type_))  # no date can be read from its text there
        ):
            types[name] = type_
    return _typed(reading, types, told, there)


def _stays_float(shown: pa.DataType, wanted: pa.DataType, format: str) -> bool:
    """Whether 7.0 becomes 7 later, as text or as a whole number: as text of CSV, it is a word of its own."""
    return pa.types.is_floating(shown) and (format == "json" or pa.types.is_integer(wanted))


def opened(data: Any, reading: Reading, storage: StorageOptions, as_text: Sequence[str] = ()) -> Source:
    """Open new data, of which there may be none today."""
    how = reading.options or {}
    return open_source(data, storage, format=reading.format, as_text=as_text, may_be_empty=True, **how)


def columns_without_rows(data: Any, reading: Reading, storage: StorageOptions) -> pa.Schema | None:
    """Return the columns of files or of a table without rows, none of files without a header; None of other data."""
    names = locations(data)
    if not is_table(data) and (names is None or is_query(names, reading)):
        return None
    source = opened(data, reading, storage)
    return source.schema if source.rows == 0 or not source.pieces() else None


def opened_as_text(
    data: Any,
    columns: Sequence[str],
    kept: Sequence[str],
    told: Mapping[str, Any],
    reading: Reading,
    storage: StorageOptions,
) -> tuple[Source, pa.Schema, dict[str, str]]:
    """Open a source with these columns as they are written, where it has no types of its own.

    Return with it the types that the data itself shows, and the forms of times that are read as text. `kept`: columns
    that are copied; JSON tells numbers from text in them.
    """
    wanted = (*columns, *kept)
    if reading.format in TEXT_FORMATS:
        given = as_options(reading.format, reading.options or {}).get("types") or {}
        forms = {name: form for name, form in forms_in({**told, **given}).items() if name in wanted}
        without = {name: type_ for name, type_ in given.items() if name not in forms}
        reading = replace(reading, options={**(reading.options or {}), "types": without})
    if reading.format == "json":
        source, shown = _json_as_text(data, columns, kept, (*columns, *forms), told, reading, storage)
        return source, as_asked(shown, forms), forms
    source = opened(data, reading, storage, wanted)
    shown = source.schema
    if reading.format != "csv":
        return source, shown, {}
    mixed = [name for name in conflicts_of(shown).found if name in wanted]
    shown = pa.schema([*shown, *(pa.field(name, pa.string()) for name in mixed)])
    types = {
        name: pa.string() for name in wanted if name in shown.names and may_be_read_as_text(shown.field(name).type)
    }
    source = opened(data, _typed(reading, types, told, shown.names), storage, wanted)
    return source, as_asked(_as_meant(shown, source.schema, types, told), forms), forms


def _json_as_text(
    data: Any,
    columns: Sequence[str],
    kept: Sequence[str],
    as_text: Sequence[str],
    told: Mapping[str, Any],
    reading: Reading,
    storage: StorageOptions,
) -> tuple[Source, pa.Schema]:
    there = opened(data, reading, storage, columns).schema.names
    copied = {name: type_ for name, type_ in told.items() if name in kept and name not in as_text}
    reading = _typed(reading, {}, copied, there)
    source, shown = opened(data, reading, storage, as_text), _shown(data, as_text, reading, storage)
    if len(shown):
        return source, shown
    source = opened(data, reading, storage, (*columns, *kept))  # no row: no file names a column
    return source, source.schema


def _shown(data: Any, columns: Sequence[str], reading: Reading, storage: StorageOptions) -> pa.Schema:
    """Return the types that data shows. One of these columns of JSON may hold numbers and text: it is text."""
    try:
        return opened(data, reading, storage).schema
    except DataError:
        return opened(data, reading, storage, columns).schema


def _as_meant(
    shown: pa.Schema, read: pa.Schema, as_text: Mapping[str, pa.DataType], told: Mapping[str, Any]
) -> pa.Schema:
    """Return the types of columns: those that the run was told, else those that the data shows."""
    types = {field.name: field.type for field in read if field.name not in as_text}
    types |= asked_types({name: type_ for name, type_ in told.items() if name in as_text})
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in shown])


def _typed(
    reading: Reading, types: Mapping[str, pa.DataType], told: Mapping[str, Any], there: Sequence[str]
) -> Reading:
    options = dict(reading.options or {})
    known = {name: type_ for name, type_ in told.items() if name in there}
    return replace(reading, options=options | {"types": {**known, **types, **(options.get("types") or {})}})
