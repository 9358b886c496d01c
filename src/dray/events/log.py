"""The lines of events.jsonl, on local disk or on an object store.

A line that cannot be written waits in memory for the next try, and no line is ever left torn: a reader of the file
meanwhile, or goes on with it after a crash, finds whole lines only.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dray.storage import translate_errors


class EventLog(Protocol):
    """Lines in order. Any thread may call it."""

    def append(self, line: str) -> None:
        """Take a line. A StorageError means that it is not written yet; it is kept all the same."""

    def save(self) -> None:
        """Write what waits, or raise StorageError."""

    def close(self) -> None:
        """Close the file; what still waits is lost."""


class LocalLog:
    """A file that every line reaches at once."""

    def __init__(self, path: str) -> None:
        """Go on with the file, or make it. A torn last line (the disk was full when the process died) goes."""
        self._path = path
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        with translate_errors(path):
            self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self._size = Path(path).read_bytes().rfind(b"\n") + 1
            os.ftruncate(self._file, self._size)

    def append(self, line: str) -> None:
        with self._lock:
            self._waiting.append(line.encode())
            self._write()

    def save(self) -> None:
        with self._lock:
            self._write()

    def close(self) -> None:
        with self._lock, suppress(OSError):  # every failure was told when the line was written
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def _write(self) -> None:
        if self._file is None:
            return
        with translate_errors(self._path):
            while self._waiting:
                self._write_whole(self._file, self._waiting[0])
                self._size += len(self._waiting.popleft())

    def _write_whole(self, file: int, line: bytes) -> None:
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(file, rest) :]
        except BaseException:
            os.ftruncate(file, self._size)
            raise


class StoredLog:
    """An object that is written whole at every save: stores cannot append."""

    def __init__(self, earlier: bytes, write: Callable[[bytes], None]) -> None:
        """Go on after `earlier`; `write` replaces the object and raises StorageError."""
        self._lines = [earlier[: earlier.rfind(b"\n") + 1]]
        self._write = write
        self._saved = 1

    def append(self, line: str) -> None:
        self._lines.append(line.encode())

    def save(self) -> None:
        lines = self._lines[:]
        if len(lines) > self._saved:
            self._write(b"".join(lines))
            self._saved = len(lines)

    def close(self) -> None:
        pass
