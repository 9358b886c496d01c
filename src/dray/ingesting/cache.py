"""Data of any kind as Parquet: what is Parquet stays where it is, anything else is copied into a cache, once.

A copy's directory is named by what it was made from: files with their sizes, times and what else tells them from others
(`resuming.stamps`), a version, how they are read. So data that has changed gets a new copy, and the same data is copied
only once. A query has no such name: its rows are fetched anew each time, and a run that is resumed goes on with the
copy that it was begun on. Only the user may read a copy: others may not be allowed to see its rows. `where_copied.py`
says which processes make it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from dray.data.conflicts import conflicts_of
from dray.data.open_source import format_of, open_source
from dray.data.parquet_footer import PARQUET
from dray.data.source import Source
from dray.data.sources.delta import DeltaSource
from dray.data.sources.files import find_files
from dray.data.sources.files import reading as reading_file
from dray.data.sources.sql_database import is_address
from dray.data.sources.tables import TableSource
from dray.errors import DataError, DrayError
from dray.events.kinds import PhaseStarted, SourceConverted, Warned
from dray.ingesting.copy_files import NAME_LENGTH, gone, make_files_private, make_private, remove_old, result_of
from dray.ingesting.journal import RESULT, BusyError
from dray.ingesting.noticed import of_extra_fields, tell
from dray.ingesting.where_copied import where_copied
from dray.runs.files import RunFiles
from dray.storage import StorageOptions, absolute, is_s3, join, open_storage, remove_directory

if TYPE_CHECKING:
    from dray.batch.engine import Emit
    from dray.batch.options import Options

_LAYOUT = 5
"""Changes with what an ingest writes, so that copies of an older one are not used."""
_LOOK_EVERY_S = 1.0

Check = Callable[[pa.Schema], object]


@dataclass(frozen=True, slots=True)
class Reading:
    """How data is to be read, and where copies are kept."""

    format: str | None = None
    options: Mapping[str, Any] | None = None
    cache: str | None = None
    copies: Mapping[str, str] = field(default_factory=dict)
    """Copies to go on with, by the location of the query whose rows they hold."""
    cluster: str | None = None
    """The cluster whose nodes read the data, and make the copy; None: this process reads it."""


PLAIN = Reading()


def used_cluster(workers: object, cluster: str) -> str | None:
    """Return the cluster whose nodes read the data for so many workers; None if this process reads it. Pure."""
    return None if workers == 0 or (workers == "auto" and cluster == "local") else cluster


def as_parquet(
    data: Any,
    storage: StorageOptions,
    reading: Reading,
    emit: Emit,
    check: Check = lambda _schema: None,
    as_text: Collection[str] = (),
) -> tuple[str, ...]:
    """Return the locations of Parquet files with the rows of `data`: locations of any format, a table, a connection.

    `check` refuses columns that will not do before anything is copied. `as_text`: columns of a table that become text
    where they hold values of several kinds.
    """
    options = dict(reading.options or {})
    names = [data] if isinstance(data, str) else data
    if isinstance(names, Sequence) and all(isinstance(name, str) for name in names):
        if copy := reading.copies.get(copy_key(names)):
            return (_known_copy(copy, copy_key(names), storage, emit),)
        found = reading.format or format_of(names, storage)
        if found == "parquet" and not {*options} - {"columns"}:
            if options.get("columns") == "same":
                open_source(list(names), storage, format=found, **options)  # refuses files that differ
            return tuple(names)
        source = open_source(list(names), storage, format=found, **options)
        identity = _identity(source, names, storage)
        files = _files(source, names, storage)
    else:
        source = open_source(data, storage, format=reading.format, as_text=as_text, **options)
        identity, files = _identity(source, (), storage), None
    tell(source.notes, emit)
    check(source.schema)
    return (_copy(source, files, identity, options, storage, reading, emit),)


def is_query(locations: Sequence[str], reading: Reading) -> bool:
    """Whether the rows come from a database, which may have others when it is asked again."""
    return len(locations) == 1 and (reading.format == "sql" or is_address(locations[0]))


def copy_key(locations: Sequence[str]) -> str:
    """Return what a copy of these is noted down under."""
    return ", ".join(locations)


def same_rows(before: str, now: str, storage: StorageOptions) -> bool:
    """Say whether two files of copies are known to hold the same rows; of one that is gone it is not.

    A source that was moved, touched or restored gets another copy, of the same rows. A column at a time: files are
    written to be read like that.
    """
    (old_files, old_path), (new_files, new_path) = (open_storage(file, storage) for file in (before, now))
    with reading_file(before, PARQUET):
        if before == now:  # named by all that tells its source from others
            return True
        if old_files.get_file_info(old_path).type != pafs.FileType.File:
            return False
        with (
            pq.ParquetFile(old_path, filesystem=old_files) as old,
            pq.ParquetFile(new_path, filesystem=new_files) as new,
        ):
            names = new.schema_arrow.names
            return old.schema_arrow.names == names and all(_same(old, new, name) for name in names)


def _same(old: pq.ParquetFile, new: pq.ParquetFile, name: str) -> bool:
    left, right = (file.read([name]).column(name).combine_chunks() for file in (old, new))
    if left.equals(right):
        return True
    floats = left.type == right.type and pa.types.is_floating(left.type)  # NaN is not NaN to Arrow
    return floats and np.array_equal(left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False), True)


def default_cache() -> str:
    home = os.environ.get("XDG_CACHE_HOME")
    return str((Path(home) if home else Path.home() / ".cache") / "dray")


def _known_copy(copy: str, source: str, storage: StorageOptions, emit: Emit) -> str:
    """Return the copy that a run was begun on, if it is still there as it was."""
    document = result_of(RunFiles(copy, storage))
    if document is None:
        raise DataError(gone(copy, source), fix="Train anew: a database does not give the rows of that moment again.")
    _tell(emit, document, source, "sql", copy, made=False)
    return copy


def _copy(
    source: Source,
    read_from: Sequence[str] | None,
    identity: Any,
    options: dict[str, Any],
    storage: StorageOptions,
    reading: Reading,
    emit: Emit,
) -> str:
    """Return the copy of a source, made if there is none. `read_from`: its files; None if it has none."""
    cache = absolute(reading.cache or default_cache())
    # The names of the columns, since those of directories depend on which directory was named. The user, since one
    # cannot read what another has copied.
    user = None if is_s3(cache) else os.getuid()
    asked = {name: value for name, value in options.items() if name != "columns"}  # refuses, and changes nothing
    known = [_LAYOUT, user, source.format, asked, source.schema.names, identity or secrets.token_hex(16)]
    described = json.dumps(known, sort_keys=True, default=str)  # a type may be one of Arrow's
    out = join(cache, hashlib.sha256(described.encode()).hexdigest()[:NAME_LENGTH])
    files = RunFiles(out, storage)
    document = result_of(files) if files.exists(RESULT) else None
    made = document is None
    # Of a copy that is there, it is asked only whether the nodes see it; a store is the same for all of them.
    cluster = None if document is not None and is_s3(cache) else reading.cluster
    with where_copied(cluster, cache, read_from if made else None, source.name, emit) as how:
        if document is None:
            if files.exists(RESULT):
                emit(Warned(f"The copy {out} of {source.name} is damaged: it is made anew."))
                remove_directory(out, storage)
            remove_old(cache, storage)
            emit(PhaseStarted("ingest"))
            make_private(cache, out, ours=reading.cache is None)
            try:
                _ingest(source, out, storage, files, how, emit)
            except BaseException:
                if identity is None:  # nothing finds the rows of a query again: the next copy has another name
                    with suppress(DrayError):
                        remove_directory(out, storage)
                raise
            make_files_private(out)
            document = files.read_json(RESULT)
    if not is_s3(out):
        os.utime(files.path(RESULT))  # it was used
    _tell(emit, document, source.name, source.format, out, made=made)
    return out


def _tell(emit: Emit, document: dict[str, Any], source: str, format: str, copy: str, *, made: bool) -> None:
    result = document["result"]
    emit(
        SourceConverted(
            source=source, format=format, copy=copy, made=made, made_at=document.get("at"), rows=result["rows_kept"]
        )
    )
    if made:
        return  # the process that makes it has told what follows, file by file
    tell(of_extra_fields(result["extra_fields"]), emit)
    if result["rows_rejected"]:
        emit(
            Warned(
                f"{result['rows_rejected']:,} of {result['rows_read']:,} rows of {source} cannot be read and "
                "were left out.",
                fix=f"{result['rejects']} has them, with the reasons.",
            )
        )


def _ingest(source: Source, out: str, storage: StorageOptions, files: RunFiles, how: Options, emit: Emit) -> None:
    """Make the copy, or wait for another process that is making it."""
    from dray.ingesting.ingest import ingest
    from dray.ingesting.recipe import Recipe

    usable = tuple(source.schema.names) if conflicts_of(source.schema).found else ()
    told = False
    while not files.exists(RESULT):
        try:
            ingest(source, out, Recipe(columns=usable), storage=storage, options=how, emit=emit)
        except BusyError as busy:
            if not told:
                emit(Warned(f"Waiting: {busy.what}"))
            told = True
            time.sleep(_LOOK_EVERY_S)


def _files(source: Source, names: Sequence[str], storage: StorageOptions) -> list[str] | None:
    """Return what another machine must see to read the source; None if only this process can read it."""
    if source.format == "sql" or isinstance(source, TableSource):
        return None
    if isinstance(source, DeltaSource):
        return [absolute(name) for name in names]
    return [absolute(file.location) for file in find_files(names, storage)]


def _identity(source: Source, names: Sequence[str], storage: StorageOptions) -> Any:
    """Return what tells these rows from others, as JSON has it; None if only their content would."""
    if isinstance(source, DeltaSource):
        return [source.name, source.version]
    if isinstance(source, TableSource):
        return _digest(source.table)
    if source.format == "sql":
        return None
    from dray.ingesting.resuming import stamps

    return stamps([file.location for file in find_files(names, storage)], storage)


def _digest(table: pa.Table) -> str:
    digest = hashlib.blake2b(digest_size=16)
    sink = pa.PythonFile(_Hashing(digest.update), mode="w")
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return digest.hexdigest()


class _Hashing(io.RawIOBase):
    """A file that only hears what is written."""

    def __init__(self, update: Callable[[bytes], None]) -> None:
        self._update = update

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._update(data)
        return len(data)
