"""A file that was put in place is whole and stays, on whatever file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dray.errors import StorageError
from dray.storage import DEFAULT, write_atomically


def fail_on(monkeypatch: pytest.MonkeyPatch, number: int, *, directories: bool) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_dir() == directories:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_file_system_that_cannot_sync_a_directory_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_on(monkeypatch, errno.EINVAL, directories=True)
    write_atomically(str(tmp_path / "a" / "b" / "file"), DEFAULT, lambda file: file.write(b"new"))
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"new"


def test_content_that_does_not_reach_the_disk_leaves_the_old_file_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    fail_on(monkeypatch, errno.EIO, directories=False)
    with pytest.raises(StorageError, match="Input/output error"):
        write_atomically(str(target), DEFAULT, lambda file: file.write(b"new"))
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
