"""Checkpoints of a run, on disk and on S3."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.errors import ModelError, StorageError
from dray.runs.checkpoints import Checkpoints, WrittenCheckpoint
from dray.runs.directory import RunDirectory
from dray.runs.files import RunFiles
from dray.storage import DEFAULT
from s3_server import CACHE_S, S3Server


def checkpoint(number: int, model: bytes | None = None) -> WrittenCheckpoint:
    history = [{"round": n, "seconds": 0.5, "metrics": {"eval-auc": n / 100}} for n in range(1, number + 1)]
    return WrittenCheckpoint(number, model or b"model %d" % number, tuple(history))


@pytest.fixture(params=["local", "s3"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunDirectory]:
    location = str(tmp_path / "run")
    if request.param == "s3":
        location = request.getfixturevalue("s3_server").url("run")
    directory = RunDirectory.create(location)
    yield directory
    directory.close()


def files(run: RunFiles) -> list[str]:
    time.sleep(2 * CACHE_S)
    return run.names("checkpoints")


def test_there_is_none_at_first(run: RunDirectory) -> None:
    assert Checkpoints(run).read() is None


def test_the_last_one_counts_and_is_the_only_one_kept(run: RunDirectory) -> None:
    checkpoints = Checkpoints(run)
    for number in (10, 20, 30):
        checkpoints.write(checkpoint(number))
        assert files(run) == ["latest.json", f"round-0000{number}.model"]
        assert Checkpoints(run).read() == checkpoint(number)


def test_a_resumed_process_goes_on_with_the_checkpoints(run: RunDirectory) -> None:
    Checkpoints(run).write(checkpoint(10))
    Checkpoints(run).write(checkpoint(20))
    assert files(run) == ["latest.json", "round-000020.model"]


def test_a_finished_run_has_none_and_nothing_else_of_it_goes(run: RunDirectory) -> None:
    checkpoints = Checkpoints(run)
    checkpoints.clear()
    checkpoints.write(checkpoint(10))
    checkpoints.clear()
    assert files(run) == []
    assert checkpoints.read() is None
    assert run.exists("run.json")
    checkpoints.write(checkpoint(10))
    assert checkpoints.read() == checkpoint(10)


def test_a_service_that_keeps_keys_as_files_finds_the_run_at_once(s3_server: S3Server) -> None:
    run = RunDirectory.create(s3_server.url("run"))
    checkpoints = Checkpoints(run)
    for number in (10, 20):
        checkpoints.write(checkpoint(number))
        assert checkpoints.read() == checkpoint(number)
    checkpoints.clear()
    assert run.exists("run.json")
    run.close()
    assert run.exists("run.json")


def test_a_process_killed_between_the_two_files_leaves_the_earlier_one(run: RunDirectory) -> None:
    Checkpoints(run).write(checkpoint(10))
    run.write_bytes("checkpoints/round-000020.model", b"model 20")  # and here it was killed
    assert Checkpoints(run).read() == checkpoint(10)
    Checkpoints(run).write(checkpoint(30))
    assert files(run) == ["latest.json", "round-000030.model"]


def test_the_model_in_use_is_never_overwritten_by_another(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    Checkpoints(run).write(checkpoint(10))
    again = Checkpoints(run)
    write_bytes = run.write_bytes

    def fails_at_the_second(name: str, data: bytes) -> None:
        if name.endswith("latest.json"):
            raise StorageError("No space left.", fix="Free some.")
        write_bytes(name, data)

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_bytes", fails_at_the_second)
        with pytest.raises(StorageError):
            again.write(checkpoint(10, b"other"))
    assert again.read() == checkpoint(10)
    again.write(checkpoint(10, b"other"))
    assert again.read() == checkpoint(10, b"other")
    assert len(files(run)) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"round": 10}', b'{"round": 10, "file": 1, "rounds": 2}'])
def test_a_damaged_description_is_told(run: RunDirectory, damage: bytes) -> None:
    Checkpoints(run).write(checkpoint(10))
    run.write_bytes("checkpoints/latest.json", damage)
    with pytest.raises(ModelError, match=r"latest.json.* is damaged") as caught:
        Checkpoints(run).read()
    assert caught.value.fix


@pytest.mark.parametrize("damage", [b"", b"model", None])
def test_a_damaged_or_missing_model_is_told(run: RunDirectory, damage: bytes | None) -> None:
    Checkpoints(run).write(checkpoint(10))
    if damage is None:
        run.delete(["checkpoints/round-000010.model"], beside="checkpoints/latest.json")
    else:
        run.write_bytes("checkpoints/round-000010.model", damage)
    with pytest.raises(ModelError, match=r"round-000010.model is damaged: it") as caught:
        Checkpoints(run).read()
    assert "train again" in caught.value.fix


def test_on_a_full_disk_the_earlier_one_stays_and_room_is_made_for_the_next(tmp_path: Path) -> None:
    """With a real limit: no file may grow beyond it, as if the disk were full."""
    run = RunDirectory.create(str(tmp_path / "run"))
    checkpoints = Checkpoints(run)
    checkpoints.write(checkpoint(10))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for size in (8192, 4096, 600):  # the model does not fit; the description does not
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
            with pytest.raises(StorageError):
                checkpoints.write(checkpoint(20, bytes(size - 1 if size < 4096 else size + 1)))
            assert Checkpoints(run).read() == checkpoint(10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    checkpoints.write(checkpoint(30))
    assert files(run) == ["latest.json", "round-000030.model"]
    run.close()


WRITER = """
import sys
from dray.storage import DEFAULT
from dray.runs.checkpoints import WrittenCheckpoint, Checkpoints
from dray.runs.files import RunFiles
checkpoints = Checkpoints(RunFiles(sys.argv[1], DEFAULT))
for number in range(1, 100_000):
    checkpoints.write(WrittenCheckpoint(number, b"%d " % number * 50_000, ()))
    print("written", flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    run = RunFiles(str(tmp_path / "run"), DEFAULT)
    for wait_s in (0.05, 0.083, 0.111, 0.137):
        process = subprocess.Popen([sys.executable, "-c", WRITER, run.location], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        time.sleep(wait_s)
        process.kill()
        process.communicate()
        found = Checkpoints(run).read()
        assert found is not None
        assert found.model == b"%d " % found.round * 50_000
    Checkpoints(run).write(WrittenCheckpoint(200_000, b"model", ()))
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["latest.json", "round-200000.model"]
    assert json.loads((folder / "latest.json").read_text())["round"] == 200_000
