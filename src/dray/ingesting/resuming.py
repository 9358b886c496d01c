"""Whether an unfinished ingest is the one that is asked for: the same recipe over the same source."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyarrow import fs as pafs

from dray import s3
from dray.batch.engine import Emit
from dray.data.source import Source
from dray.data.sources.files import FileSource, in_parallel
from dray.data.sources.partitioned import PartitionedSource
from dray.data.sources.sql import SqlSource
from dray.data.sources.sql_ranges import KeyRange
from dray.errors import DAMAGE, ConfigError, DataError, StorageError
from dray.events.kinds import Warned
from dray.ingesting.journal import VERSION
from dray.ingesting.plan import Task
from dray.ingesting.recipe import Recipe, differences
from dray.ingesting.written import Report
from dray.storage import StorageOptions, is_s3, open_storage, translate_errors

_FILES = ("parquet", "csv", "json", "arrow")
"""Formats whose pieces are named after files."""


def describe(source: Source, recipe: Recipe, tasks: Sequence[Task], storage: StorageOptions) -> dict[str, Any]:
    """Return what identifies this ingest in the journal. The source's own storage options hold no secret."""
    opened = source.files if isinstance(source, FileSource | PartitionedSource) else ()
    stored = {file.file.name: file.file.location for file in opened}  # a file in a zip archive changes with that
    names = list(dict.fromkeys(stored.get(piece.name, piece.name) for task in tasks for piece in task.pieces))
    where: StorageOptions = getattr(getattr(source, "dataset", source), "storage", storage)
    return {
        "version": VERSION,
        "recipe": recipe.to_json(),
        "source": {
            "name": source.name,
            "format": source.format,
            "version": getattr(source, "version", None),
            "rows": source.rows,
            "bytes": source.bytes,
            "schema": [[field.name, str(field.type)] for field in source.schema],
            "key": source.key.to_json() if isinstance(source, SqlSource) and source.key is not None else None,
            "files": stamps(names, where) if source.format in _FILES else [],
        },
        "tasks": [[[piece.start, piece.stop] for piece in task.pieces] for task in tasks],
    }


def as_planned(source: Source, before: dict[str, Any], out: str) -> Source:
    """Return a query's source with the ranges that an unfinished ingest was planned with.

    The bounds of the key may change while the ingest is interrupted: new ranges would not fit the old ones.
    `still_done` counts the rows of each range again.
    """
    if before.get("version") != VERSION or not isinstance(source, SqlSource) or source.key is None:
        return source
    with _reading_plan(out):
        found = before["source"]
        if found["key"] is None or found["key"]["key"] != source.key.key:
            return source
        rows, bytes_ = (_count(found[name]) for name in ("rows", "bytes"))
        return replace(source, key=KeyRange.from_json(found["key"]), rows=rows, bytes=bytes_)


def still_done(source: Source, tasks: Sequence[Task], done: dict[int, Report], emit: Emit) -> dict[int, Report]:
    """Return the finished tasks of an unfinished ingest that need not be read again.

    A changed file is refused. The rows of a query may change: a range whose number of rows differs from what was
    read is read again. Without a key all rows are one task and one query, so they are of one state.
    """
    if not isinstance(source, SqlSource) or source.key is None or not done:
        return done
    owners = [(index, piece) for index in done for piece in tasks[index].pieces]
    counted, beyond = source.rows_now([piece for _, piece in owners])
    now = Counter[int]()
    for (index, _), rows in zip(owners, counted, strict=True):
        now[index] += rows
    kept = {index: report for index, report in done.items() if now[index] == report.rows_read}
    if len(kept) < len(done):
        emit(
            Warned(
                f"{source.name} has changed since the ingest began: {len(done) - len(kept):,} of {len(done):,} "
                "finished tasks have another number of rows now and are read again."
            )
        )
    if beyond:
        emit(
            Warned(
                f"{beyond:,} rows of {source.name} were added after the ingest began: their {source.key.key} is below "
                f"{source.key.low} or above {source.key.high}. They are read as well."
            )
        )
    return kept


def require_same(before: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuse to continue an ingest of another recipe or source, and say what differs."""
    if before.get("version") != now["version"]:
        raise ConfigError(
            f"The unfinished ingest in {out} was started by another version of dray.",
            fix=f"Remove {out} and start again.",
        )
    with _reading_plan(out):
        _require_same(before, now, out)


def _require_same(before: dict[str, Any], now: dict[str, Any], out: str) -> None:
    if found := differences(before["recipe"], now["recipe"]):
        raise ConfigError(
            f"{out} has an unfinished ingest with other options: {'; '.join(found)}.",
            fix=f"Give the earlier options to continue it, name another output, or remove {out}.",
        )
    if found := _changes(before["source"], now["source"]):
        raise DataError(
            f"{out} has an unfinished ingest, but its source has changed: {'; '.join(found[:5])}"
            f"{f'; and {len(found) - 5:,} more' if len(found) > 5 else ''}.",
            fix=f"Restore the source to continue, name another output, or remove {out}.",
        )
    if before["tasks"] != now["tasks"]:
        raise DataError(
            f"{out} has an unfinished ingest, but its source is now divided into other tasks.",
            fix=f"Remove {out} and start again.",
        )


def require_untouched(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse files that changed while they were read; called after all of them are read.

    A file that replaced another of the same size may show in nothing else. The time at which the file system last
    touched it (ctime) does not count: a new link to a file, as backups make, changes that.
    """
    for was, found in zip(before["source"]["files"], now["source"]["files"], strict=True):
        name, size, time, *more = found
        same = was[:2] == [name, size] and (more == was[3:] if is_s3(name) else [time, *more[1:]] == [was[2], *was[4:]])
        if not same:
            raise DataError(
                f"{name} was changed while dray read it.",
                fix="Remove the output and start again when no process writes the data.",
            )


def require_same_schema(before: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuse a transform that now returns other columns than the tables already written."""
    if before.get("schema") != now["schema"]:
        with _reading_plan(out):
            one, other = (
                ", ".join(f"{name} {type_}" for name, type_ in plan.get("schema") or []) for plan in (before, now)
            )
        raise DataError(
            f"{out} has an unfinished ingest whose transform returned other columns: {one}; now it returns {other}.",
            fix=f"Let it return the earlier columns to continue, name another output, or remove {out}.",
        )


@contextmanager
def _reading_plan(out: str) -> Iterator[None]:
    """Say that a plan is damaged whose seal is whole but whose form is another than a plan's."""
    try:
        yield
    except DAMAGE as error:
        raise StorageError(
            f"The plan of the unfinished ingest in {out} is damaged: {error!r}.", fix=f"Remove {out} and start again."
        ) from error


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    old, new = ({name: (size, *more) for name, size, *more in found["files"]} for found in (before, now))
    found = [f"{name} is gone" for name in old if name not in new]
    found += [f"{name} is new" for name in new if name not in old]
    for name in old:
        if name in new and old[name] != new[name]:
            sizes = f": {old[name][0]:,} bytes before, {new[name][0]:,} now" if old[name][0] != new[name][0] else ""
            found.append(f"{name} was changed{sizes}")
    if found:
        return found
    columns = dict(map(tuple, before["schema"]))
    for name, type_ in now["schema"]:
        if columns.get(name) != type_:
            found.append(f'column "{name}" was {columns.get(name, "not there")} and is {type_}')
    found += [f'column "{name}" is gone' for name in columns if name not in dict(map(tuple, now["schema"]))]
    for key in ("name", "format", "version", "key", "rows", "bytes"):
        if not found and before[key] != now[key]:
            was, is_ = (_words(value) for value in (before[key], now[key]))
            found.append(f"{key} was {was} and is {is_}")
    return found


def _words(value: Any) -> str:
    """Return a value of the plan as readable text: a key with its bounds."""
    if not isinstance(value, dict):
        return str(value)
    low, high = value["bounds"]
    return f"{value['key']} from {low} to {high}"


def stamps(names: Sequence[str], storage: StorageOptions) -> list[list[Any]]:
    """Return name, size, time of change and whatever else distinguishes a file from a replacement.

    A copy may keep size and time (cp -p, rsync). The time at which the file system last touched the file (ctime) cannot
    be set by a program, and an object's ETag follows its content.
    """

    def stamp(name: str) -> list[Any]:
        filesystem, path = open_storage(name, storage)
        try:
            with translate_errors(name):
                if not is_s3(name):
                    found = os.stat(path)  # noqa: PTH116  (of a path as text)
                    return [name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
                info = filesystem.get_file_info(path)
                if info.type == pafs.FileType.File:
                    return [name, info.size, info.mtime_ns, s3.etag(filesystem, path)]
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        raise DataError(f"{name} no longer exists.", fix="Start again when no process changes the data.")

    return in_parallel(stamp, names)
