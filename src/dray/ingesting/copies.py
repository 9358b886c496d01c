"""The Parquet copies in a cache: from which source, how large, how old, and which run needs them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from typing import Any

from pyarrow import fs as pafs

from dray.errors import DAMAGE, DrayError
from dray.ingesting.copy_files import NAME_LENGTH, unfinished_run
from dray.ingesting.journal import FOLDER, RESULT
from dray.runs.alive import ALIVE, LOST_AFTER_S
from dray.runs.files import RunFiles
from dray.runs.kept import Kept
from dray.storage import StorageOptions, is_s3, join, open_storage, remove_directory, translate_errors

_COPY = re.compile(rf"([0-9a-f]{{{NAME_LENGTH}}})/(.+)")


def copies_in(cache: str, storage: StorageOptions, now: float) -> list[Kept]:
    """Return the copies in a cache; a cache may be any directory, and what else is in it is left alone."""
    filesystem, path = open_storage(cache, storage)
    with translate_errors(cache):
        found = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    files: dict[str, dict[str, pafs.FileInfo]] = {}
    for entry in found:
        inner = _COPY.fullmatch(entry.path.removeprefix(path).lstrip("/"))
        if inner and entry.type == pafs.FileType.File:
            files.setdefault(inner[1], {})[inner[2]] = entry
    return [_copy(join(cache, name), inside, storage, now) for name, inside in files.items() if _is_copy(inside)]


def remove_copy(copy: Kept, storage: StorageOptions) -> None:
    remove_directory(copy.location, storage)


def _is_copy(files: dict[str, pafs.FileInfo]) -> bool:
    return RESULT in files or any(name.startswith(f"{FOLDER}/") for name in files)


def _copy(location: str, files: dict[str, pafs.FileInfo], storage: StorageOptions, now: float) -> Kept:
    times = [(entry.mtime_ns or 0) / 1e9 for entry in files.values()]
    document = _document(location, storage) if RESULT in files else {}
    source = document.get("source")
    name = source.get("name") if isinstance(source, dict) else None
    kept_for = None
    if run := unfinished_run(location, storage):
        kept_for = f"the run {run}"
    elif (sign := files.get(f"{FOLDER}/{ALIVE}")) is not None and now - (sign.mtime_ns or 0) / 1e9 < LOST_AFTER_S:
        kept_for = "the process that writes it"
    return Kept(
        kind="copy",
        location=location,
        what=str(name or ("damaged" if RESULT in files else "unfinished")),
        bytes=sum(entry.size or 0 for entry in files.values()),
        # Of a copy on this machine, the time of its result is that of its last use.
        used=(files[RESULT].mtime_ns or 0) / 1e9 if RESULT in files and not is_s3(location) else max(times),
        made=_moment(document.get("at")),
        kept_for=kept_for,
    )


def _document(location: str, storage: StorageOptions) -> dict[str, Any]:
    with suppress(DrayError, *DAMAGE):
        found = json.loads(RunFiles(location, storage).read_bytes(RESULT))
        return found if isinstance(found, dict) else {}
    return {}


def _moment(text: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return datetime.fromisoformat(text).timestamp()
    return None
