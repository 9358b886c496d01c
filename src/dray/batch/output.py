"""The output of a command: a location that is free, and in which nothing half-written is left."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Self

from pyarrow import fs as pafs

from dray.errors import StorageError
from dray.storage import StorageOptions, absolute, is_s3, open_storage, remove_directory, translate_errors


class Output:
    """`out` as a `with` block: if it raises, what was written goes, and so do directories made for it."""

    def __init__(self, out: str, storage: StorageOptions, *, is_file: bool) -> None:
        """Refuse an `out` that holds something."""
        self.out, self._storage, self._is_file = absolute(out), storage, is_file
        self._missing = require_free(out, storage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._remove_all()

    def _remove_all(self) -> None:
        """Leave nothing half-written: `out` was free before, so all of it is ours."""
        filesystem, path = open_storage(self.out, self._storage)
        with suppress(StorageError, OSError):
            if self._is_file:
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
        raise StorageError(f"The output {out} exists and is not empty.", fix="Name another place, or remove it.")
    path = Path(absolute(out))
    return [] if is_s3(out) else [one for one in (path, *path.parents) if not one.exists()]


def entries(out: str, storage: StorageOptions) -> list[str]:
    """Return the names of what is in an output; of a file its own."""
    filesystem, path = open_storage(out, storage)
    with translate_errors(out):
        info = filesystem.get_file_info(path)
        if info.type != pafs.FileType.Directory:
            return [info.base_name] if info.type == pafs.FileType.File else []
        return [entry.base_name for entry in filesystem.get_file_info(pafs.FileSelector(path))]
