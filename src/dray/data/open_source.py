"""One way to open any source of rows: files, databases, tables in memory.

| locations                                            | source                                           |
|------------------------------------------------------|--------------------------------------------------|
| files, directories, globs; local or `s3://`          | by their suffixes, or by `format`                |
| a directory with `_delta_log`                        | a Delta Lake table                               |
| `postgresql://`, `databricks://`, `${DATABASE_URL}`  | a query: see `sources/sql_database.py`           |
| a function that returns a connection                 | a query                                          |
| a pandas or polars frame, an Arrow table             | its rows                                         |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from pyarrow import fs as pafs

from dray.data.read_options import as_options
from dray.data.source import Source
from dray.data.sources.files import DataFile, find_files, head, plain_name
from dray.data.sources.sql_database import Database, is_address
from dray.data.sources.tables import is_table
from dray.errors import ConfigError, DataError, nearest
from dray.storage import DEFAULT, StorageOptions, join, open_storage, translate_errors

ENDINGS = {
    ".parquet": "parquet", ".pq": "parquet", ".parq": "parquet",
    ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
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
FORMATS = tuple(_OPENERS)[:-1]


def open_source(
    locations: Any, storage: StorageOptions = DEFAULT, *, format: str | None = None, **options: Any
) -> Source:
    """Open a source. `options` are those of the format (`read_options.py`); an unknown one or a wrong type is refused.

    csv: delimiter, quote, header, names, nulls, types. json: types, extra_fields. delta: version.
    sql: query or table, key, types.
    """
    if format is not None and format not in FORMATS:
        raise ConfigError(f'There is no format "{format}".{nearest(format, FORMATS)}', fix=f"Use {', '.join(FORMATS)}.")
    if is_table(locations):
        return _open("table", locations, **options)
    if isinstance(locations, Sequence) and not isinstance(locations, str) and len(locations) == 1:
        locations = locations[0]
    if callable(locations) or is_address(locations) or format == "sql":
        database = Database(factory=locations) if callable(locations) else Database(str(locations))
        return _open("sql", database, **options)
    names = [str(name) for name in ([locations] if not isinstance(locations, list | tuple) else locations)]
    found = format or format_of(names, storage)
    source = _open(found, names, storage, **options)
    if found in ("parquet", "delta"):  # these read their partitions themselves
        return source
    from dray.data.sources.partitioned import with_partitions

    return with_partitions(source, names, storage)


def _open(format: str, *arguments: Any, **options: Any) -> Source:
    """Open a source by the opener of its format, whose module is loaded where it is needed."""
    module, name = _OPENERS[format]
    opener: Callable[..., Source] = getattr(import_module(f"dray.data.sources.{module}"), name)
    return opener(*arguments, **as_options(format, options))


def format_of(locations: Sequence[str], storage: StorageOptions) -> str:
    """Return the format of the locations: by the kind of location, the files' suffixes, or their first bytes."""
    if len(locations) == 1 and is_address(locations[0]):
        return "sql"
    if any(_is_delta(location, storage) for location in locations):
        return "delta"
    by_format: dict[str, list[DataFile]] = defaultdict(list)
    unknown: list[DataFile] = []
    for file in find_files(locations, storage):
        ending = next((end for end in ENDINGS if plain_name(file.location).endswith(end)), None)
        by_format[ENDINGS[ending]].append(file) if ending else unknown.append(file)
    for file in unknown[:1]:  # one decides for all files without a suffix
        by_format[_sniff(file, storage)] += unknown
    if len(by_format) == 1:
        return next(iter(by_format))
    parts = [f"{len(files):,} {name} ({files[0].location})" for name, files in sorted(by_format.items())]
    raise DataError(
        f"{', '.join(locations)} has files of several formats: {', '.join(parts)}.",
        fix="Name files of one format, such as 'data/*.csv'; or give --format if the suffixes are wrong.",
    )


def _is_delta(location: str, storage: StorageOptions) -> bool:
    if any(character in location for character in "*?["):
        return False
    log = join(location, "_delta_log")
    filesystem, path = open_storage(log, storage)
    with translate_errors(log):
        return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)


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
    raise DataError(
        f"The format of {file.location} is not known from its name or content.",
        fix=f"Give it: --format {', '.join(FORMATS[:4])}.",
    )
