"""What a run cannot lose is on the disk before the run relies on it: power may fail at any time.

The order of the system calls is recorded. A file is safe once its content was synced under its temporary name, then
renamed, then its directory was synced.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import datasets
import dray
from dray.runs.checkpoints import Checkpoints, WrittenCheckpoint
from dray.runs.directory import RunDirectory
from rating_files import rated, write

CLEARED = ("checkpoints cleared", "", "")


class Disk:
    """The system calls that make files durable, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str, str]] = []
        fsync, replace, clear = os.fsync, os.replace, Checkpoints.clear

        def synced(descriptor: int) -> None:
            self.calls.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink()), ""))
            fsync(descriptor)

        def replaced(source: str | Path, target: str | Path) -> None:
            self.calls.append(("rename", str(source), str(target)))
            replace(source, target)

        def cleared(checkpoints: Checkpoints) -> None:
            self.calls.append(CLEARED)
            clear(checkpoints)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", replaced)
        monkeypatch.setattr(os, "rename", replaced)
        monkeypatch.setattr(Checkpoints, "clear", cleared)

    def is_safe(self, file: Path, before: int) -> bool:
        """Whether a file, as it was last named before that call, is on the disk by then."""
        named = [n for n, call in enumerate(self.calls[:before]) if call[0] == "rename" and call[2] == str(file)]
        if not named:
            return False
        content = ("sync", self.calls[named[-1]][1], "")
        return content in self.calls[: named[-1]] and self.synced(file.parent, named[-1], before)

    def synced(self, place: Path, after: int, before: int) -> bool:
        return ("sync", str(place), "") in self.calls[after:before]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_the_model_and_the_result_are_on_the_disk_before_the_checkpoints_go(tmp_path: Path, disk: Disk) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary())
    run = tmp_path / "new" / "run"
    dray.train(data, label="label", rounds=3, workers=0, out=str(run))
    end = disk.calls.index(CLEARED)
    for name in ("model.ubj", "cuts.parquet", "data.json", "run.json"):
        assert disk.is_safe(run / name, end), name
    assert disk.synced(run.parent, 0, end)
    assert disk.synced(tmp_path, 0, end)


def test_a_recommender_is_on_the_disk_before_its_checkpoints_go(tmp_path: Path, disk: Disk) -> None:
    run = tmp_path / "run"
    data = write(tmp_path / "rows.parquet", rated())
    dray.train(data, model="factorization", user="u", item="i", rounds=1, workers=0, out=str(run))
    end = disk.calls.index(CLEARED)
    files = list((run / "model").iterdir())
    assert files
    for file in [*files, run / "run.json"]:
        assert disk.is_safe(file, end), file.name
    assert disk.synced(run, 0, end)


def test_a_checkpoint_is_on_the_disk_before_it_is_named_and_the_older_one_goes(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(str(tmp_path / "run"))
    checkpoints, folder = Checkpoints(run), tmp_path / "run" / "checkpoints"
    checkpoints.write(WrittenCheckpoint(1, b"first", ()))
    removed: list[int] = []
    delete = run.delete
    monkeypatch.setattr(run, "delete", lambda names, beside: (removed.append(len(disk.calls)), delete(names, beside)))
    checkpoints.write(WrittenCheckpoint(2, b"second", ()))
    run.close()
    latest = [n for n, call in enumerate(disk.calls) if call[2] == str(folder / "latest.json")][-1]
    assert disk.is_safe(folder / "round-000002.model", latest)
    assert disk.is_safe(folder / "latest.json", removed[0])
    assert disk.synced(tmp_path / "run", 0, latest)


def test_a_line_of_the_events_does_not_wait_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    from made_events import made_event

    run = RunDirectory.create(str(tmp_path / "run"))
    before = len(disk.calls)
    for number in range(100):
        run.event(made_event(float(number), "phase", {"name": "train"}))
    assert disk.calls[before:] == []
    run.close()
