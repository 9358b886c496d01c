"""The directories of copies: for their owner alone, kept while a run needs them, removed when long unused."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow import fs as pafs

from dray.data.parquet_footer import footer_digest
from dray.data.sources.files import in_parallel
from dray.errors import DAMAGE, DrayError
from dray.ingesting.journal import FOLDER, RESULT, is_sealed
from dray.runs.alive import ALIVE
from dray.runs.files import MANIFEST, RunFiles
from dray.storage import StorageOptions, is_s3, open_storage, translate_errors

KEPT_DAYS = 30
"""A copy that has not been used for so long goes when another one is made."""
NAME_LENGTH = 20
"""Of a copy's directory: hexadecimal digits."""
_COPY = "[0-9a-f]" * NAME_LENGTH
KEPT_FOR = "_kept_for.json"
"""In a copy: the run that cannot be resumed without it."""


def make_private(cache: str, out: str, *, ours: bool) -> None:
    """Make the directory of a copy, for its owner alone; with `ours`, the cache too."""
    if is_s3(out):
        return
    with translate_errors(out):
        new = not Path(cache).exists()
        Path(out).mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in [out, cache] if new or ours else [out]:
            with suppress(PermissionError):  # another user's
                Path(directory).chmod(0o700)


def make_files_private(out: str) -> None:
    """Let only the owner read the files of a copy, should its directory ever be opened to others."""
    if is_s3(out):
        return
    with translate_errors(out):
        for directory, _, names in os.walk(out):
            Path(directory).chmod(0o700)
            for name in names:
                (Path(directory) / name).chmod(0o600)


def result_of(files: RunFiles) -> dict[str, Any] | None:
    """Return what a copy says of itself; None if it is damaged: a file is missing, cut off, or not what was written.

    Footers are compared before Arrow reads them, which ends the process over some that are damaged; pages have
    checksums of their own.
    """
    try:
        document = files.read_json(RESULT)
        if not isinstance(document, dict) or not is_sealed(document):
            return None
        footers: dict[str, str] = document["footers"]
        filesystem, path = open_storage(files.location, files.options)
        with translate_errors(files.location):
            found = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
        names = {entry.path.removeprefix(path).lstrip("/"): entry.size for entry in found}
        data = {name: size for name, size in names.items() if not name.startswith("_") and name.endswith(".parquet")}
        if data.keys() != footers.keys() or sum(data.values()) != document["result"]["bytes"]:
            return None
        now = in_parallel(lambda name: footer_digest(files.path(name), files.options), list(footers))
        return document if now == list(footers.values()) and _tells_of_rows(document) else None
    except (DrayError, *DAMAGE):
        return None


def _tells_of_rows(document: dict[str, Any]) -> bool:
    """Whether a copy's document has the figures that a run tells of; another version's may lack some."""
    result = document["result"]
    names = ("rows_kept", "rows_read", "rows_rejected")
    counts = [*(result[name] for name in names), *result["extra_fields"].values()]
    told = isinstance(result["rejects"], str | None) and isinstance(document.get("at"), str | None)
    return told and all(type(count) is int for count in counts)


def keep_for(copy: str, run: str, storage: StorageOptions) -> None:
    """Keep a copy as long as a run is not finished; other runs that need it keep it as well."""
    files = RunFiles(copy, storage)
    others: list[str] = []
    with suppress(DrayError, *DAMAGE):  # a damaged note is written anew
        others = [name for name in _runs_of(files) if name != run and _is_unfinished(name, storage)]
    files.write_exactly(KEPT_FOR, {"run": run, "others": others})
    if not is_s3(copy):
        Path(files.path(KEPT_FOR)).chmod(0o600)


def remove_old(cache: str, storage: StorageOptions) -> None:
    """Remove copies of this machine that have not been used for long. Never one that is being made, or still needed.

    A cache may be any directory: what else was ingested there is not a copy, and stays.
    """
    if is_s3(cache):
        return
    for sign in (RESULT, f"{FOLDER}/{ALIVE}"):  # a copy that was never finished has a last sign of life
        for used in Path(cache).glob(f"{_COPY}/{sign}"):
            copy = Path(cache) / used.relative_to(cache).parts[0]
            with suppress(OSError):
                copy.chmod(0o700)  # those of an earlier version were open to all
                old = time.time() - used.stat().st_mtime > KEPT_DAYS * 86400
                if old and unfinished_run(str(copy), storage) is None:
                    shutil.rmtree(copy)


def unfinished_run(copy: str, storage: StorageOptions) -> str | None:
    """Return a run that is not finished and was begun on a copy. What cannot be read counts as one."""
    files = RunFiles(copy, storage)
    try:
        if not files.exists(KEPT_FOR):
            return None
        return next((name for name in _runs_of(files) if _is_unfinished(name, storage)), None)
    except (DrayError, *DAMAGE):
        return f"in {KEPT_FOR}, which cannot be read"


def _runs_of(files: RunFiles) -> list[str]:
    """Return the runs that a copy is kept for; raises what a strange document raises."""
    if not files.exists(KEPT_FOR):
        return []
    document = files.read_json(KEPT_FOR)
    names = [document["run"], *document.get("others", ())]
    if not all(isinstance(name, str) for name in names):
        raise TypeError(names)
    return names


def _is_unfinished(name: str, storage: StorageOptions) -> bool:
    try:
        run = RunFiles(name, storage)
        return run.exists(MANIFEST) and run.read_json(MANIFEST)["status"] != "finished"
    except (DrayError, *DAMAGE):  # such as a name with a character that no file system has
        return True


def gone(copy: str, source: str) -> str:
    """Return the words for a copy that is not there any more."""
    return f"The rows of {source} were copied to {copy} when the run began, and that copy is gone or damaged."
