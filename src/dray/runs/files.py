"""The files of a run, by name, wherever it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from dray.errors import DAMAGE, ModelError
from dray.events.telemetry import dumps
from dray.storage import (
    StorageOptions,
    absolute,
    is_s3,
    join,
    open_storage,
    remove_directory,
    translate_errors,
    write_atomically,
)

MANIFEST = "run.json"


class RunFiles:
    """Reads and writes files below `location`. A file appears whole or not at all; failures are StorageErrors."""

    def __init__(self, location: str, options: StorageOptions) -> None:
        self.location = absolute(location).rstrip("/")
        self.options = options

    def path(self, name: str) -> str:
        """Return the location of a file of the run."""
        return join(self.location, name)

    def exists(self, name: str) -> bool:
        filesystem, path = open_storage(self.path(name), self.options)
        with translate_errors(self.path(name)):
            return bool(filesystem.get_file_info(path).type == pafs.FileType.File)

    def write(self, name: str, write: Callable[[pa.NativeFile], None]) -> None:
        """Let `write` fill a file of the run, atomically."""
        write_atomically(self.path(name), self.options, write)

    def write_bytes(self, name: str, data: bytes) -> None:
        self.write(name, lambda file: file.write(data))

    def write_json(self, name: str, document: Any) -> None:
        """Write a document, with passwords masked."""
        self.write_bytes(name, (dumps(document, indent=2) + "\n").encode())

    def write_exactly(self, name: str, document: Any) -> None:
        """Write a document whose texts must be the same when it is read again, such as names of files.

        It may be long: it is not indented, which takes ten times as long.
        """
        self.write_bytes(name, (dumps(document, show=str) + "\n").encode())

    def write_table(self, name: str, table: pa.Table) -> None:
        self.write(name, lambda file: pq.write_table(table, file))

    def read_bytes(self, name: str) -> bytes:
        filesystem, path = open_storage(self.path(name), self.options)
        with translate_errors(self.path(name)), filesystem.open_input_stream(path) as file:
            return bytes(file.read())

    def read_json(self, name: str) -> Any:
        """Return what a file holds; one that is missing or not JSON is a ModelError."""
        if not self.exists(name):
            raise ModelError(f"The run {self.location} has no {name}.", fix="Put the file back, or train again.")
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise self.damaged(name, error) from error

    def read_table(self, name: str) -> pa.Table:
        """Return what a Parquet file holds; one that is damaged is a ModelError."""
        content = self.read_bytes(name)
        try:
            # In this thread: one of Arrow's that drops the bytes while the interpreter ends aborts the process.
            table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError, *DAMAGE) as error:
            raise self.damaged(name, error) from error
        return table

    def damaged(self, name: str, why: object) -> ModelError:
        return ModelError(
            f"{self.path(name)} is damaged: {why}.", fix="Put the file back if there is a copy, or train again."
        )

    def names(self, folder: str) -> list[str]:
        """Return the names of the files right below a folder of the run; none if there is no such folder."""
        filesystem, path = open_storage(self.path(folder), self.options)
        with translate_errors(self.path(folder)):
            entries = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted(entry.base_name for entry in entries if entry.type == pafs.FileType.File)

    def delete(self, names: Iterable[str], beside: str) -> None:
        """Remove files of the run; nothing happens to one that is not there. `beside`, in the same folder, stays."""
        for name in names:
            filesystem, path = open_storage(self.path(name), self.options)
            with translate_errors(self.path(name)), self._folder_kept(beside), suppress(FileNotFoundError):
                try:
                    filesystem.delete_file(path)
                except OSError:
                    if filesystem.get_file_info(path).type == pafs.FileType.File:
                        raise

    def delete_folder(self, folder: str, beside: str) -> None:
        """Remove a folder of the run, if it is there. `beside`, in the same folder as that, stays."""
        if self.names(folder):
            with self._folder_kept(beside):
                remove_directory(self.path(folder), self.options)

    @contextmanager
    def _folder_kept(self, beside: str) -> Iterator[None]:
        """Write a file once more after something beside it was deleted on S3.

        pyarrow marks the folder of whatever it deletes with a key of its own. A service that keeps its keys as files
        refuses that, and does not find the folder any more until something is written to it.
        """
        content = self.read_bytes(beside) if is_s3(self.location) else None
        try:
            yield
        finally:
            if content is not None:
                self.write_bytes(beside, content)
