"""Data of any kind as Parquet: what is Parquet stays where it is, anything else is copied into a cache, once.

A copy's directory is named by what it was made from: files with their sizes, times and what else tells them from others
(`resuming.stamps`), a version, how they are read. So data that has changed gets a new copy, and the same data is copied
by nobody twice. A query has no such name: its rows are fetched anew each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from dray.data.open_source import format_of, open_source
from dray.data.parquet import reading as reading_parquet
from dray.data.source import Source
from dray.data.sources.delta import DeltaSource
from dray.data.sources.files import find_files
from dray.data.sources.tables import TableSource
from dray.storage import StorageOptions, absolute, is_s3, join, open_storage
from dray.telemetry.run_files import RunFiles

if TYPE_CHECKING:
    from dray.mapping.engine import Emit

KEPT_DAYS = 30
"""A copy that nobody has used for so long goes when another one is made."""
_LAYOUT = 2
"""Changes with what an ingest writes, so that copies of an older one are not used."""
_LOOK_EVERY_S = 1.0

Check = Callable[[pa.Schema], object]


@dataclass(frozen=True, slots=True)
class Reading:
    """How data is to be read, and where copies are kept."""

    format: str | None = None
    options: Mapping[str, Any] | None = None
    cache: str | None = None


PLAIN = Reading()


def as_parquet(
    data: Any, storage: StorageOptions, reading: Reading, emit: Emit, check: Check = lambda _schema: None
) -> tuple[str, ...]:
    """Return the locations of Parquet files with the rows of `data`: locations of any format, a table, a connection.

    `check` refuses columns that will not do before anything is copied.
    """
    options = dict(reading.options or {})
    names = [data] if isinstance(data, str) else data
    if isinstance(names, Sequence) and all(isinstance(name, str) for name in names):
        found = reading.format or format_of(names, storage)
        if found == "parquet" and not options:
            return tuple(names)
        source = open_source(list(names), storage, format=found, **options)
        identity = _identity(source, names, storage)
    else:
        source = open_source(data, storage, format=reading.format, **options)
        identity = _identity(source, (), storage)
    check(source.schema)
    return (_copy(source, identity, options, storage, reading, emit),)


def same_rows(before: str, now: str, storage: StorageOptions) -> bool:
    """Say whether two files of copies are known to hold the same rows; of one that is gone it is not.

    A source that was moved, touched or restored gets another copy, of the same rows. A column at a time: files are
    written to be read like that.
    """
    (old_files, old_path), (new_files, new_path) = (open_storage(file, storage) for file in (before, now))
    with reading_parquet(before):
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


def _copy(
    source: Source, identity: Any, options: dict[str, Any], storage: StorageOptions, reading: Reading, emit: Emit
) -> str:
    from dray.ingesting.journal import RESULT

    cache = absolute(reading.cache or default_cache())
    # The names of the columns, since those of directories depend on which directory was named.
    known = [_LAYOUT, source.format, options, source.schema.names, identity or secrets.token_hex(16)]
    described = json.dumps(known, sort_keys=True, default=str)  # a type may be one of Arrow's
    out = join(cache, hashlib.sha256(described.encode()).hexdigest()[:20])
    files = RunFiles(out, storage)
    made = not files.exists(RESULT)
    if made:
        _remove_old(cache)
        emit("phase", name="ingest")
        _ingest(source, out, storage, files, emit)
    document = files.read_json(RESULT)
    result = document["result"]
    if not is_s3(out):
        os.utime(files.path(RESULT))  # it was used
    emit(
        "copied",
        source=source.name,
        format=source.format,
        copy=out,
        made=made,
        made_at=document.get("at"),
        rows=result["rows_kept"],
    )
    if result["rows_rejected"] and not made:  # who makes it tells that, file by file
        emit(
            "warning",
            message=f"{result['rows_rejected']:,} of {result['rows_read']:,} rows of {source.name} cannot be read and "
            "were left out.",
            fix=f"{result['rejects']} has them, with the reasons.",
        )
    return out


def _ingest(source: Source, out: str, storage: StorageOptions, files: RunFiles, emit: Emit) -> None:
    """Make the copy, or wait for another process that is making it."""
    from dray.ingesting.ingest import ingest
    from dray.ingesting.journal import RESULT, BusyError
    from dray.ingesting.recipe import Recipe

    told = False
    while not files.exists(RESULT):
        try:
            ingest(source, out, Recipe(), storage=storage, emit=emit)
        except BusyError as busy:
            if not told:
                emit("warning", message=f"Waiting: {busy.what}", fix="")
            told = True
            time.sleep(_LOOK_EVERY_S)


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


class _Hashing:
    """A file that only hears what is written."""

    closed = False

    def __init__(self, update: Callable[[bytes], None]) -> None:
        self._update = update

    def write(self, data: bytes) -> int:
        self._update(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _remove_old(cache: str) -> None:
    """Remove copies of this machine that have not been used for long. Never one that is being made."""
    from dray.ingesting.journal import RESULT

    if is_s3(cache):
        return
    for result in Path(cache).glob(f"*/{RESULT}"):
        with suppress(OSError):
            if time.time() - result.stat().st_mtime > KEPT_DAYS * 86400:
                shutil.rmtree(result.parent)
