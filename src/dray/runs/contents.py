"""What is in a run's directory: dray's files, and others. Only the former are ever removed or replaced."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs as pafs

from dray.errors import ModelError, StorageError
from dray.runs.alive import is_alive
from dray.runs.directory import open_run
from dray.runs.files import MANIFEST
from dray.runs.own_files import files_below, is_own
from dray.runs.replacing import beside, clear_beside, refuse_links
from dray.storage import StorageOptions, absolute, is_s3, open_storage, remove_directory, translate_errors


@dataclass(frozen=True, slots=True)
class Contents:
    """The files below a directory, by their names in it."""

    own: tuple[str, ...]
    foreign: tuple[str, ...]
    """What dray did not write, and every link."""


def contents_of_run(location: str, storage: StorageOptions) -> Contents:
    """Return what is in the directory of a run that is not running; refuse any other, and a link."""
    refuse_links(location)
    try:
        run = open_run(location, storage)
    except ModelError as error:
        fix = "dray runs lists the runs. dray removes and replaces only what it knows as one: anything else is yours."
        raise ModelError(error.what, fix=fix) from error
    if is_alive(run):
        process = run.document["process"]
        raise ModelError(
            f"The run {location} is running: process {process.get('pid')} on {process.get('host')}.",
            fix="Wait for it to end, or stop it first.",
        )
    files, links = files_below(run.location, storage)
    results = run.document.get("files") or {}
    own = [name for name in files if is_own(name, results)]
    return Contents(tuple(own), tuple(sorted({*files} - {*own} | {*links})))


def make_room(out: str, storage: StorageOptions) -> str:
    """Return where the run is written that replaces the one at `out`; refuse to replace anything but a run.

    On local disks beside it: what a run left there that did not finish goes. A store cannot rename: there the earlier
    run goes at once.
    """
    refuse_links(out)
    out = absolute(out).rstrip("/")
    files, links = files_below(out, storage)
    if not files and not links:
        return out
    _require_own(out, contents_of_run(out, storage))
    if is_s3(out):
        remove_run(out, storage)
        return out
    place = beside(out)
    if Path(place).exists():
        if (Path(place) / MANIFEST).exists():
            _require_own(place, contents_of_run(place, storage))
        clear_beside(out)
    return place


def _require_own(location: str, found: Contents) -> None:
    if found.foreign:
        more = f" and {len(found.foreign) - 1} more" if len(found.foreign) > 1 else ""
        raise StorageError(
            f"The run {location} cannot be replaced: dray did not write {found.foreign[0]}{more} in it.",
            fix="Move that elsewhere, or name another directory with --out.",
        )


def remove_files(location: str, names: Iterable[str], storage: StorageOptions) -> None:
    """Remove files below a directory, `run.json` first, then the directories that are empty."""
    if is_s3(location):
        filesystem, path = open_storage(location, storage)
        with translate_errors(location):
            for name in names:
                _delete_object(filesystem, f"{path}/{name}")
        return
    with translate_errors(location):
        for name in names:
            (Path(location) / name).unlink(missing_ok=True)
        for folder, _, _ in os.walk(location, topdown=False):
            with suppress(OSError):  # it holds something that is not dray's
                Path(folder).rmdir()


def _delete_object(filesystem: pafs.FileSystem, path: str) -> None:
    """Delete an object. pyarrow then marks its folder with a key; some services refuse that, and the object is gone."""
    try:
        filesystem.delete_file(path)
    except OSError:
        if filesystem.get_file_info(path).type == pafs.FileType.File:
            raise


def remove_run(location: str, storage: StorageOptions) -> tuple[str, ...]:
    """Remove the files of a run that is not running; return what stays because dray did not write it."""
    found = contents_of_run(location, storage)
    if is_s3(location) and not found.foreign:
        remove_directory(location, storage)
    else:  # without run.json it is no run any more, should this be ended half way
        remove_files(location, sorted(found.own, key=lambda name: (name != MANIFEST, name)), storage)
    return found.foreign
