"""The directory of an embedded cluster, and those that dead processes left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.clusters.scratch import LOCK, Scratch, sweep

OWNER = """
import subprocess, sys
from dray.clusters.scratch import Scratch
scratch = Scratch()
(scratch.path / "session").mkdir()
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # must not inherit the lock
print(scratch.path, flush=True)
input()
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


def start_owner() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_owner_removes_it(temporary: Path) -> None:
    scratch = Scratch()
    (scratch.path / "file").write_text("")
    assert scratch.path.parent == temporary
    scratch.remove()
    scratch.remove()
    assert list(temporary.iterdir()) == []


def test_that_of_a_killed_process_goes_with_the_next_start_and_that_of_a_living_one_stays(temporary: Path) -> None:
    killed, left = start_owner()
    living, used = start_owner()
    try:
        assert left.parent == used.parent == temporary
        killed.kill()
        killed.wait()
        assert (left / "session").is_dir()
        scratch = Scratch()
        assert sorted(temporary.iterdir()) == sorted([used, scratch.path])
        scratch.remove()
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()


def test_one_without_a_lock_is_left_alone(temporary: Path) -> None:
    (temporary / "dray-mine").mkdir()
    (temporary / "dray-mine" / "file").write_text("keep")
    (temporary / "dray-file").write_text("keep")
    (temporary / "dray-half").mkdir()
    (temporary / "dray-half" / f".{LOCK}").write_text("")  # its owner is about to take it
    sweep(temporary)
    assert len(list(temporary.iterdir())) == 3


def test_a_link_to_somewhere_else_is_not_followed(temporary: Path) -> None:
    (temporary / "precious").mkdir()
    (temporary / "precious" / LOCK).write_text("")
    (temporary / "dray-link").symlink_to(temporary / "precious")
    (temporary / "dray-evil").mkdir()
    (temporary / "dray-evil" / LOCK).symlink_to(temporary / "precious" / LOCK)
    sweep(temporary)
    assert (temporary / "precious" / LOCK).exists()
    assert (temporary / "dray-evil").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_that_of_another_user_is_left_alone(temporary: Path) -> None:
    (temporary / "dray-other").mkdir()
    (temporary / "dray-other" / LOCK).write_text("")
    os.chown(temporary / "dray-other", 12345, 12345)
    sweep(temporary)
    assert (temporary / "dray-other").exists()


def test_a_long_temporary_directory_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / ("long" * 10)))
    scratch = Scratch()
    assert scratch.path.parent == Path("/tmp")
    scratch.remove()
