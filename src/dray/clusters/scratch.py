"""Temporary directories of embedded clusters and commands, which outlive their owners by one start at most.

The owner holds a lock on a file in it, which the kernel frees however the owner ends. The start of the next one
removes those whose lock is free. The lock is also the mark of what dray made: a directory without it is not dray's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

PREFIX = "dray-"
LOCK = "owner.lock"
# A socket's path has at most 107 bytes, and Ray adds about 70 to its directory's.
_LONGEST = 35


class Scratch:
    """A directory of this process. `remove` it; if the process dies before, a later one does."""

    def __init__(self, parent: Path | None = None, prefix: str = PREFIX) -> None:
        """Make it below `parent`; without one, under a short path."""
        if parent is None:
            place = tempfile.gettempdir()
            parent = Path(place if len(place) < _LONGEST - 14 else "/tmp")  # noqa: S108
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = _lock(self.path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextmanager
def command_files(kind: Literal["map", "job"]) -> Iterator[Path]:
    """Give a directory for the files of a command, below TMPDIR however long its path is."""
    scratch = Scratch(Path(tempfile.gettempdir()), f"{PREFIX}{kind}-")
    try:
        yield scratch.path
    finally:
        scratch.remove()


def sweep(parent: Path) -> None:
    """Remove what dead owners left below `parent`. One without a lock, or of another user, is left alone."""
    for directory in parent.glob(PREFIX + "*"):
        with suppress(OSError):  # held, another user's, or gone meanwhile
            _remove_if_free(directory)


def _lock(directory: Path) -> int | None:
    """Return the descriptor that holds the lock; None where the file system knows no locks: never swept then."""
    hidden = directory / f".{LOCK}"
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        hidden.rename(directory / LOCK)  # it has its name only once it is held, or a sweep could come between
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_if_free(directory: Path) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), (directory / LOCK).lstat()):
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)
