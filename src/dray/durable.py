"""Files that survive a power cut, once the call that wrote them has returned.

A rename alone guarantees less: the new name may reach the disk before the content does, or neither may. So the content
goes to the disk first, then the name, then the directory that holds it, and the directories that were made for it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def put_in_place(temporary: Path, target: Path) -> None:
    """Give a finished file its name: whatever happens, the old file or the whole new one is there."""
    make_directories(target.parent)
    _sync(temporary)
    temporary.replace(target)
    sync_directory(target.parent)


def make_directories(directory: Path) -> None:
    """Make a directory and its parents, as far as they are missing."""
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_directory(place.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Write the names in a directory to the disk."""
    try:
        _sync(directory)
    except OSError as error:
        # The directory may not be listed, or the file system has no such call: nothing more can be done.
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP):
            raise
