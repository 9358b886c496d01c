"""The output of a command: a location that is free, and in which nothing half-written is left.

With `overwrite` it may hold what dray wrote there before. A directory is known by its mark, `.dray-output.json`, which
lists its files: one that is not in it was written by something else, and the directory is refused. A single file cannot
be marked (CSV has no place for it): a regular file of the very name that is asked for is replaced, unless the command
reads it, or it belongs to a run (`still_needed.py`). Links are refused.

On local disks the new output is written beside, as .OUT.dray-new, and takes the place of the old one when it is
complete. A store cannot rename: there the old output goes when the new one begins to be written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pyarrow import fs as pafs

from dray import __version__
from dray.batch.still_needed import require_no_part_of_a_model, require_not_read
from dray.errors import DAMAGE, StorageError
from dray.runs.files import RunFiles
from dray.runs.own_files import files_below
from dray.runs.replacing import beside, claim_beside, clear_beside, refuse_links, take_the_place
from dray.storage import (
    DEFAULT,
    StorageOptions,
    absolute,
    is_s3,
    join,
    open_storage,
    remove_directory,
    translate_errors,
)

MARK = ".dray-output.json"


class Output:
    """`out` as a `with` block: if it raises, what was written goes, and so do directories made for it.

    Files are written where `writing` says: with `overwrite`, that may be beside the output until the block ends.
    """

    def __init__(
        self,
        out: str,
        storage: StorageOptions,
        *,
        is_file: bool,
        overwrite: bool = False,
        companion: str | None = None,
        reads: Sequence[str] = (),
    ) -> None:
        """Refuse an `out` that holds something, or with `overwrite` something that dray did not write.

        `companion`: what may be written beside a single file, such as its list of rejects. One that is there belongs
        to an earlier output: it is refused too, or with `overwrite` removed by `remove_companion`.
        `reads`: the locations that the command reads, which are never replaced while they are needed.
        """
        self.out, self._storage, self._is_file = absolute(out).rstrip("/"), storage, is_file
        self._replaces = overwrite and bool(entries(out, storage))
        if self._replaces:
            require_replaceable(self.out, storage, is_file=is_file)
            if is_file:
                require_not_read(self.out, reads)
                require_no_part_of_a_model(self.out, storage)
            elif is_s3(self.out):  # there the old one goes before the new one is written
                require_not_read(self.out, reads)
            self._missing: list[Path] = []
        else:
            self._missing = require_free(out, storage)
        self._companion = companion if is_file else None
        if self._companion is not None and not overwrite:
            require_free(self._companion, storage)
        self._claim: int | None = None
        self._beside = self._replaces and not is_file and not is_s3(self.out)

    def __enter__(self) -> Self:
        if self._beside:
            self._claim = claim_beside(self.out)
        elif self._replaces and not self._is_file:
            remove_directory(self.out, self._storage)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                self._remove_all()
                return
            if not self._is_file:
                self._mark()
            if self._beside:
                take_the_place(self.out, _foreign)
        finally:
            if self._claim is not None:
                os.close(self._claim)

    def writing(self, location: str) -> str:
        """Return where a file of the output, given by its final location, is written for now."""
        if not self._beside:
            return location
        return beside(self.out) + location.removeprefix(self.out)

    def remove_companion(self) -> None:
        """Remove what an earlier output left beside a single file: nothing is written there now."""
        if self._companion is None:
            return
        filesystem, path = open_storage(self._companion, self._storage)
        with translate_errors(self._companion):
            if filesystem.get_file_info(path).type == pafs.FileType.File:
                filesystem.delete_file(path)

    def _mark(self) -> None:
        """List what was written, for a later `overwrite`."""
        place = self.writing(self.out)
        sizes = {name: size for name, size in _sizes(place, self._storage).items() if name != MARK}
        document = {"written_by": f"dray {__version__}", "files": sizes}
        RunFiles(place, self._storage).write_exactly(MARK, document)

    def _remove_all(self) -> None:
        """Leave nothing half-written: `out` was free before, so all of it is ours."""
        filesystem, path = open_storage(self.out, self._storage)
        with suppress(StorageError, OSError):
            if self._beside:
                clear_beside(self.out)
            elif self._is_file:
                if not self._replaces:  # a file appears whole: until then the old one is there
                    filesystem.delete_file(path)
            elif is_s3(self.out) or self._missing:
                remove_directory(self.out, self._storage)
            else:  # an empty directory that was there before
                filesystem.delete_dir_contents(path, missing_dir_ok=True)
        with suppress(OSError):  # a parent that holds something else by now stays
            for directory in self._missing:
                if directory.exists():
                    directory.rmdir()


def require_free(out: str, storage: StorageOptions) -> list[Path]:
    """Refuse an output that holds something; return the local directories that have to be made, the deepest first."""
    if entries(out, storage):
        raise StorageError(
            f"The output {out} exists and is not empty.",
            fix="Name another place, remove it, or replace what dray wrote there with --overwrite.",
        )
    path = Path(absolute(out))
    return [] if is_s3(out) else [one for one in (path, *path.parents) if not one.exists()]


def require_replaceable(out: str, storage: StorageOptions, *, is_file: bool) -> None:
    """Refuse to replace what dray did not write."""
    refuse_links(out)
    filesystem, path = open_storage(out, storage)
    with translate_errors(out):
        there_is_file = filesystem.get_file_info(path).type == pafs.FileType.File
    if there_is_file != is_file:
        kind, other = ("file", "directory") if there_is_file else ("directory", "file")
        raise StorageError(
            f"The output {out} is a {kind}, and a {other} is to be written.", fix="Name another place, or remove it."
        )
    if not is_file:
        listed = _listed(out, storage)
        if listed is None:
            raise StorageError(
                f"{out} cannot be replaced: it has no mark of dray ({MARK}), so something else may have written it.",
                fix="Name another place, or remove it.",
            )
        require_only(out, listed | {MARK: None}, storage)


def require_only(out: str, listed: dict[str, Any], storage: StorageOptions) -> None:
    """Refuse a directory with a file that is not `listed` (by its name, with its size or None), or with a link."""
    if foreign := foreign_in(out, listed, storage):
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise StorageError(
            f"{out} cannot be replaced: dray did not write {foreign[0]}{more} in it.",
            fix="Move that elsewhere, or name another place.",
        )


def foreign_in(out: str, listed: dict[str, Any], storage: StorageOptions) -> list[str]:
    """Return the names of what is not `listed`, or has another size, and of links."""
    sizes = _sizes(out, storage)
    _, links = files_below(out, storage)
    foreign = [name for name, size in sizes.items() if name not in listed or listed[name] not in (None, size)]
    return sorted([*foreign, *links])


def _foreign(out: str) -> list[str]:
    """Return what is in a local output that its mark does not list."""
    return foreign_in(out, (_listed(out, DEFAULT) or {}) | {MARK: None}, DEFAULT)


def entries(out: str, storage: StorageOptions) -> list[str]:
    """Return the names of what is in an output; of a file its own."""
    filesystem, path = open_storage(out, storage)
    with translate_errors(out):
        info = filesystem.get_file_info(path)
        if info.type != pafs.FileType.Directory:
            return [info.base_name] if info.type == pafs.FileType.File else []
        return [entry.base_name for entry in filesystem.get_file_info(pafs.FileSelector(path))]


def _listed(out: str, storage: StorageOptions) -> dict[str, Any] | None:
    """Return the files that a mark lists; None if there is no mark that can be read."""
    files = RunFiles(out, storage)
    with suppress(*DAMAGE, StorageError):
        if files.exists(MARK):
            return dict(json.loads(files.read_bytes(MARK))["files"])
    return None


def _sizes(out: str, storage: StorageOptions) -> dict[str, int]:
    filesystem, path = open_storage(out, storage)
    names, _ = files_below(out, storage)
    with translate_errors(out):
        found = filesystem.get_file_info([join(path, name) for name in names])
    return {name: info.size for name, info in zip(names, found, strict=True)}
