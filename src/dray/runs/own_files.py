"""Which files of a run's directory dray wrote, by their names. Links are not among them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow import fs as pafs

from dray.errors import DAMAGE, DrayError
from dray.runs.files import MANIFEST, RunFiles
from dray.storage import DEFAULT, StorageOptions, is_s3, open_storage, translate_errors

_FILE = (
    r"run\.json|model\.ubj|cuts\.parquet|rounds\.parquet|workers\.parquet|events\.jsonl|data\.json|alive|"
    r"model/(model\.json|\w+\.(npy|arrow))|checkpoints/(latest\.json|round-\d+\.model)"
)
_OWN = re.compile(rf"({_FILE})")
_BEGUN = re.compile(r"((?:.*/)?)\.([^/]+)\.[0-9a-f]+\.tmp")
"""A file on its way, of a process that was killed."""


def is_own(name: str, results: Mapping[str, Any]) -> bool:
    """Whether a run writes a file of such a name; `results` are those that run.json lists. Pure."""
    if begun := _BEGUN.fullmatch(name):
        name = begun[1] + begun[2]
    return name in results or _OWN.fullmatch(name) is not None


def files_below(location: str, storage: StorageOptions) -> tuple[list[str], list[str]]:
    """Return the names of the files below a directory, and of the links, which are not followed."""
    if not is_s3(location):
        files, links = [], []
        with translate_errors(location):
            for folder, directories, names in os.walk(location):
                for name in [*directories, *names]:
                    found = Path(folder) / name
                    relative = found.relative_to(location).as_posix()
                    if found.is_symlink():
                        links.append(relative)
                    elif name in names:
                        files.append(relative)
        return sorted(files), sorted(links)
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        entries = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    named = (entry.path.removeprefix(path).lstrip("/") for entry in entries if entry.type == pafs.FileType.File)
    return sorted(named), []


def foreign_in_run(location: str) -> list[str]:
    """Return the names of what dray did not write in a local directory of a run, links among them."""
    files, links = files_below(location, DEFAULT)
    results: Mapping[str, Any] = {}
    with suppress(DrayError, *DAMAGE, AttributeError):
        results = RunFiles(location, DEFAULT).read_json(MANIFEST).get("files") or {}
    return sorted([*(name for name in files if not is_own(name, results)), *links])
