"""Whether an unfinished ingest is the one that is asked for: the same recipe over the same source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pyarrow import fs as pafs

from dray import s3
from dray.data.source import Source
from dray.data.sources.files import in_parallel
from dray.errors import ConfigError, DataError, StorageError
from dray.ingesting.plan import Task
from dray.ingesting.recipe import Recipe, differences
from dray.storage import StorageOptions, is_s3, open_storage, translate_errors

VERSION = 2
"""Of the journal and of what tasks write: files of two versions would not go together."""
_FILES = ("parquet", "csv", "json", "arrow")
"""Formats whose pieces are named after files."""


def describe(source: Source, recipe: Recipe, tasks: Sequence[Task], storage: StorageOptions) -> dict[str, Any]:
    """Return what the journal keeps to know this ingest again. The source's own storage options hold no secret."""
    names = list(dict.fromkeys(piece.name for task in tasks for piece in task.pieces))
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
            "files": stamps(names, where) if source.format in _FILES else [],
        },
        "tasks": [[[piece.start, piece.stop] for piece in task.pieces] for task in tasks],
    }


def require_same(before: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuse to go on with something else, and say what differs."""
    if before.get("version") != now["version"]:
        raise ConfigError(
            f"The unfinished ingest in {out} was begun by another version of dray.",
            fix=f"Remove {out} and start again.",
        )
    if found := differences(before["recipe"], now["recipe"]):
        raise ConfigError(
            f"{out} has an unfinished ingest with other options: {'; '.join(found)}.",
            fix=f"Give the options of before to go on with it, or name another output, or remove {out}.",
        )
    if found := _changes(before["source"], now["source"]):
        raise DataError(
            f"{out} has an unfinished ingest, but its source is not the same any more: {'; '.join(found[:5])}"
            f"{f'; and {len(found) - 5:,} more' if len(found) > 5 else ''}.",
            fix=f"Put the source back as it was to go on, or name another output, or remove {out}.",
        )
    if before["tasks"] != now["tasks"]:
        raise DataError(
            f"{out} has an unfinished ingest, but its source is not divided as it was.",
            fix=f"Remove {out} and start again.",
        )


def require_same_schema(before: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuse a transform that was changed meanwhile so that its tables do not go with those that are written."""
    if before.get("schema") != now["schema"]:
        one, other = (
            ", ".join(f"{name} {type_}" for name, type_ in plan.get("schema") or []) for plan in (before, now)
        )
        raise DataError(
            f"{out} has an unfinished ingest whose transform returned other columns: {one}; now it returns {other}.",
            fix=f"Let it return the columns of before to go on, or name another output, or remove {out}.",
        )


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
    for key in ("name", "format", "version", "rows", "bytes"):
        if not found and before[key] != now[key]:
            found.append(f"{key} was {before[key]} and is {now[key]}")
    return found


def stamps(names: Sequence[str], storage: StorageOptions) -> list[list[Any]]:
    """Return name, size, time of change and what else tells a file from one that was put in its place.

    A copy may keep size and time (cp -p, rsync). The time at which the file system last touched the file (ctime) cannot
    be set by anybody, and an object's ETag follows its content.
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
        raise DataError(f"{name} does not exist any more.", fix="Start again when nobody changes the data.")

    return in_parallel(stamp, names)
