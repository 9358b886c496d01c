"""One way to open any source of rows: files, databases, tables in memory.

| locations                                            | source                                           |
|------------------------------------------------------|--------------------------------------------------|
| files, directories, globs; local or `s3://`          | by their suffixes, or by `format`                |
| a directory with `_delta_log`                        | a Delta Lake table                               |
| `postgresql://`, `databricks://`, `sqlite:///`,      | a query: see `sources/sql_database.py`           |
| `duckdb:`, `${DATABASE_URL}`                         |                                                  |
| a function that returns a connection, or its name    | a query                                          |
| (`module:function`)                                  |                                                  |
| a pandas or polars frame, an Arrow table             | its rows                                         |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from pyarrow import fs as pafs

from dray.data.read_options import as_options
from dray.data.source import Source
from dray.data.sources.beside import notes_of
from dray.data.sources.files import (
    DataFile,
    FileSource,
    expand_data,
    find_files,
    head,
    members,
    passed_over_in,
    plain_name,
)
from dray.data.sources.linked import notes_of_links
from dray.data.sources.sql_database import Database, database_of, is_address
from dray.data.sources.tables import is_table
from dray.errors import ConfigError, DataError, nearest
from dray.storage import DEFAULT, StorageOptions, join, open_storage, paths_as_text, translate_errors

ENDINGS = {
    ".parquet": "parquet", ".pq": "parquet", ".parq": "parquet",
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods")
_DATABASES = {"sqlite": b"SQLite format 3", "duckdb": b"DUCK"}
"""What the first bytes of their files hold."""
_OPENERS = {
    "parquet": ("parquet", "open_parquet"),
    "csv": ("csv", "open_csv"),
    "json": ("json", "open_json"),
    "arrow": ("arrow", "open_arrow"),
    "delta": ("delta", "open_delta"),
    "sql": ("sql", "open_sql"),
    "table": ("tables", "open_table"),
}
"""A module of `sources/` and its function."""
_SNIFFED_BYTES = 64 << 10
FORMATS = tuple(_OPENERS)[:-1]


def open_source(
    locations: Any,
    storage: StorageOptions = DEFAULT,
    *,
    format: str | None = None,
    as_text: Collection[str] = (),
    may_be_empty: bool = False,
    **options: Any,
) -> Source:
    """Open a source. `options` are those of the format (`read_options.py`); an unknown one or a wrong type is refused.

    `as_text`: columns of JSON that are read as they are written, if there are such columns: numbers and text in one
    column are no error then, nor in one of a pandas frame. `may_be_empty`: data with columns and no rows is no error,
    nor are CSV and JSON without even columns, which have those of `as_text`.

    csv: delimiter, quote, header, names, nulls, encoding, skip, comment, decimal, thousands, strip, types.
    json: types, extra_fields. delta: version. sql: query or table, key, types.
    """
    if format is not None and format not in FORMATS:
        raise ConfigError(f'There is no format "{format}".{nearest(format, FORMATS)}', fix=f"Use {', '.join(FORMATS)}.")
    locations = paths_as_text(locations)
    if isinstance(locations, list | tuple) and len(locations) == 1:
        locations = locations[0]
    if is_table(locations):
        return _open("table", locations, own={"may_be_empty": may_be_empty, "as_text": as_text}, **options)
    if callable(locations) or is_address(locations) or format == "sql":
        database = Database(factory=locations) if callable(locations) else database_of(str(locations))
        return _open("sql", database, **options)
    names = list(locations) if isinstance(locations, list | tuple) else [locations]
    if others := [type(name).__name__ for name in names if not isinstance(name, str)]:
        raise DataError(
            f"{'An item' if isinstance(locations, list | tuple) else 'Data'} of the type {others[0]} cannot be read.",
            fix="Give names of files or of a database, a table of pandas, polars or Arrow, or a function that connects "
            "to a database. pandas.DataFrame makes a table of most other things.",
        )
    found = format or format_of(names, storage)
    own = {"may_be_empty": may_be_empty} | ({"as_text": as_text} if found in ("csv", "json") else {})
    source = _open(found, names, storage, own={} if found == "delta" else own, **options)
    if found in ("parquet", "delta"):  # these read their partitions themselves
        return source
    from dray.data.sources.partitioned import with_partitions

    if isinstance(source, FileSource):
        empty = [file.file.location for file in source.files if not file.file.bytes]
        archives = {file.file.location: file.file for file in source.files if file.file.compression == "zip"}
        inside = [name for archive in archives.values() for name in passed_over_in(archive, storage)]
        named = expand_data(names, storage)
        seen = notes_of(named.passed_over + inside, empty) + notes_of_links(named.again)
        source = replace(source, notes=seen + source.notes) if seen else source
    return with_partitions(source, names, storage)


def _open(format: str, *arguments: Any, own: Mapping[str, Any] | None = None, **options: Any) -> Source:
    """Open a source by the opener of its format, whose module is loaded where it is needed."""
    module, name = _OPENERS[format]
    opener: Callable[..., Source] = getattr(import_module(f"dray.data.sources.{module}"), name)
    return opener(*arguments, **(own or {}), **as_options(format, options))


def format_of(locations: Sequence[str], storage: StorageOptions) -> str:
    """Return the format of the locations: by the kind of location, the files' suffixes, or their first bytes."""
    if len(locations) == 1 and is_address(locations[0]):
        return "sql"
    if any(_is_delta(location, storage) for location in locations):
        return "delta"
    by_format: dict[str, list[DataFile]] = defaultdict(list)
    unknown: list[DataFile] = []
    for stored in find_files(locations, storage):
        said = _ending(stored.location)
        for file in [stored] if said else members(stored, storage):
            _refuse_workbook(file)
            ending = said or _ending(file.name)
            by_format[ENDINGS[ending]].append(file) if ending else unknown.append(file)
    for file in unknown[:1]:  # one decides for all files without a suffix
        by_format[_sniff(file, storage)] += unknown
    if len(by_format) == 1:
        return next(iter(by_format))
    parts = [f"{len(files):,} {name} ({files[0].name})" for name, files in sorted(by_format.items())]
    raise DataError(
        f"{', '.join(locations)} has files of several formats: {', '.join(parts)}.",
        fix="Name files of one format, such as 'data/*.csv'; or give --format if the suffixes are wrong.",
    )


def _ending(name: str) -> str | None:
    return next((end for end in ENDINGS if plain_name(name).endswith(end)), None)


def _refuse_workbook(file: DataFile) -> None:
    if file.name.lower().endswith(_WORKBOOKS):
        raise DataError(
            f"{file.name} is a workbook, which dray does not read.",
            fix="Save the sheet as CSV, or read it with pandas.read_excel and give the frame to dray in Python.",
        )


def _is_delta(location: str, storage: StorageOptions) -> bool:
    if any(character in location for character in "*?["):
        return False
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        return bool(filesystem.get_file_info(join(path, "_delta_log")).type == pafs.FileType.Directory)


def _is_divided(file: DataFile, storage: StorageOptions) -> bool:
    """Whether a file is text whose rows have one delimiter."""
    from dray.data.sources.csv_delimiter import delimiter_of
    from dray.data.sources.csv_format import CsvFormat

    text = head(file, storage, _SNIFFED_BYTES)
    if b"\0" in text:
        return False
    return delimiter_of(text, CsvFormat(), complete=len(text) < _SNIFFED_BYTES) is not None


def _sniff(file: DataFile, storage: StorageOptions) -> str:
    """Return the format of a file by its first bytes."""
    first = head(file, storage, 4096)
    text = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    if first.startswith(b"PAR1"):
        return "parquet"
    if first.startswith(b"ARROW1"):
        return "arrow"
    if text.startswith((b"{", b"[")):
        return "json"
    if database := next((name for name, mark in _DATABASES.items() if mark in first[:16]), None):
        raise DataError(
            f"{file.location} is a database of {database}, not a file of rows.",
            fix=f"Name a table of it: {database}:///{file.location} --read table=NAME.",
        )
    if _is_divided(file, storage):
        return "csv"
    raise DataError(
        f"The format of {file.location} is not known from its name or content.",
        fix=f"Give it: --format {', '.join(FORMATS[:4])}.",
    )
