"""A run directory on disk and on S3."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.errors import ModelError, StorageError
from dray.events.kinds import Event, RunFailed, RunFinished, RunStarted, StepFinished, Warned, WorkerProgress
from dray.events.telemetry import Sample, Telemetry
from dray.runs import directory as run_directory
from dray.runs.alive import beat, is_alive
from dray.runs.checkpoints import WrittenCheckpoint
from dray.runs.directory import RunDirectory, new_run_id, open_run
from made_events import made_event
from s3_server import CACHE_S, S3Server

RESULT = {"rows": 10, "workers": 2, "rounds": 2, "seconds": {"total": 1.5}, "metrics": {"eval-auc": 0.8}}


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Where a run goes, and the directory in which its files can be seen."""
    if request.param == "local":
        return str(tmp_path / "runs" / "one"), tmp_path / "runs" / "one"
    server: S3Server = request.getfixturevalue("s3_server")
    return server.url("runs/one"), server.directory / "runs" / "one"


def sample(worker: int, time: float = 1.0) -> Sample:
    return Sample(time, worker, "host", 0.9, 1000, 50.0, 1, 2)


def report_a_run(directory: RunDirectory) -> None:
    telemetry = Telemetry([directory])
    telemetry.emit(RunStarted(run=directory.run, directory=directory.location, config={"label": "y"}))
    telemetry.emit(WorkerProgress(worker=0, rows=1, total_rows=2))
    telemetry.sample([sample(0), sample(-1)])
    telemetry.emit(StepFinished(round=1, rounds=2, seconds=0.1, metrics={}))
    telemetry.emit(StepFinished(round=2, rounds=2, seconds=0.2, metrics={"eval-auc": 0.8}))
    telemetry.sample([sample(0, 2.0)])
    telemetry.emit(RunFinished(result=RESULT))
    telemetry.close()


def test_a_run_can_be_read_back_from_its_directory(place: tuple[str, Path]) -> None:
    location, root = place
    directory = RunDirectory.create(location, versions={"xgboost": "3"})
    directory.write_bytes("model.ubj", b"model")
    report_a_run(directory)

    run = open_run(location)
    assert run.run == directory.run
    assert run.document["status"] == "finished"
    assert run.document["config"] == {"label": "y"}
    assert run.document["versions"] == {"xgboost": "3"}
    assert run.document["result"] == RESULT
    assert run.read_bytes("model.ubj") == b"model"
    assert run.read_table("rounds.parquet").to_pylist() == [
        {"round": 1, "seconds": 0.1, "eval-auc": None},
        {"round": 2, "seconds": 0.2, "eval-auc": 0.8},
    ]
    assert run.read_table("workers.parquet").column("worker").to_pylist() == [0, -1, 0]
    events = [json.loads(line) for line in run.read_bytes("events.jsonl").splitlines()]
    assert [event["kind"] for event in events] == ["run_started", "round", "round", "run_finished"]
    names = {"run.json", "model.ubj", "events.jsonl", "rounds.parquet", "workers.parquet"}
    assert {path.name for path in root.iterdir()} == names


def test_a_directory_with_something_in_it_is_refused_and_kept(place: tuple[str, Path]) -> None:
    location, root = place
    root.mkdir(parents=True)
    (root / "mine").write_text("keep")
    with pytest.raises(StorageError, match="exists and is not empty") as caught:
        RunDirectory.create(location)
    assert "--out" in caught.value.fix
    assert [path.name for path in root.iterdir()] == ["mine"]


def test_an_existing_empty_directory_is_used(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path))
    directory.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("keep")
    with pytest.raises(StorageError):
        RunDirectory.create(str(tmp_path / "run"))
    assert (tmp_path / "run").read_text() == "keep"


def test_remove_leaves_nothing_behind(place: tuple[str, Path]) -> None:
    location, root = place
    directory = RunDirectory.create(location)
    directory.write_bytes("checkpoints/1", b"x")
    directory.event(made_event(1.0, "phase", {"name": "load"}))
    directory.remove()
    assert not root.exists()


def test_remove_takes_the_parents_it_made_but_no_other(tmp_path: Path) -> None:
    first = RunDirectory.create(str(tmp_path / "runs" / "one"))
    second = RunDirectory.create(str(tmp_path / "runs" / "two"))
    first.remove()
    assert (tmp_path / "runs" / "two" / "run.json").exists()
    second.remove()
    third = RunDirectory.create(str(tmp_path / "deep" / "er" / "run"))
    third.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_remove_leaves_no_trace_in_a_bucket_but_keeps_other_runs(s3_server: S3Server) -> None:
    first, second = (RunDirectory.create(s3_server.url(f"deep/er/runs/{name}")) for name in ("one", "two"))
    first.remove()
    assert (s3_server.directory / "deep/er/runs/two/run.json").exists()
    time.sleep(2 * CACHE_S)
    second.remove()
    assert list(s3_server.directory.iterdir()) == []


def test_a_failed_run_says_why(place: tuple[str, Path]) -> None:
    location, _ = place
    directory = RunDirectory.create(location)
    telemetry = Telemetry([directory])
    telemetry.emit(RunFailed(error="Worker 1 is gone.", fix="Look at its log."))
    telemetry.close()
    document = open_run(location).document
    assert document["status"] == "failed"
    assert document["error"] == {"what": "Worker 1 is gone.", "fix": "Look at its log."}


def test_no_file_of_a_run_holds_a_secret(s3_server: S3Server) -> None:
    directory = RunDirectory.create(s3_server.url("run"), config={"oops": s3_server.secret_key})
    Telemetry([directory]).emit(Warned(f"signed with {s3_server.secret_key}"))
    directory.close()
    files = [path for path in (s3_server.directory / "run").iterdir() if path.is_file()]
    assert len(files) == 2
    for file in files:
        assert s3_server.secret_key.encode() not in file.read_bytes()


def test_a_round_done_again_after_a_failure_counts_once(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path / "run"))
    for number, seconds in ((1, 0.1), (2, 0.2), (2, 0.3), (3, 0.4)):
        directory.event(made_event(1.0, "round", {"round": number, "seconds": seconds, "metrics": {}}))
    directory.close()
    assert directory.read_table("rounds.parquet").column("seconds").to_pylist() == [0.1, 0.3, 0.4]


def test_what_is_recorded_is_saved_now_and_then(place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "FLUSH_S", 0.01)
    location, _ = place
    directory = RunDirectory.create(location)
    directory.event(made_event(1.0, "round", {"round": 1, "seconds": 0.1, "metrics": {}}))
    for _ in range(500):
        if directory.exists("rounds.parquet") and directory.exists("events.jsonl"):
            break
        directory._closing.wait(0.01)
    assert directory.read_table("rounds.parquet").num_rows == 1
    assert b'"round"' in directory.read_bytes("events.jsonl")
    directory.close()


def test_lines_are_on_disk_as_soon_as_they_are_reported(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path / "run"))
    directory.event(made_event(1.0, "phase", {"name": "load"}))
    assert (tmp_path / "run" / "events.jsonl").read_text().count("\n") == 1
    directory.close()


def test_wrong_credentials_and_a_missing_bucket_show_before_any_work(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="no bucket"):
        RunDirectory.create("s3://nowhere/run")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrongwrongwrong")
    with pytest.raises(StorageError) as caught:
        RunDirectory.create(s3_server.url("run"))
    assert "AWS_SECRET_ACCESS_KEY" in caught.value.fix
    assert list(s3_server.directory.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on `disk`; removing the returned file makes some again."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    return disk / "filler"


class Heard:
    """A sink that keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def event(self, event: Event) -> None:
        if event.kind == "warning":
            self.warnings.append(event.data["message"])

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def test_what_a_full_disk_does_not_take_is_written_when_there_is_room(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory, "FLUSH_S", 0.05)
    directory, heard = RunDirectory.create(str(small_disk / "run")), Heard()
    telemetry = Telemetry([directory, heard])
    directory.on_problem = lambda what, fix: telemetry.emit(Warned(what, fix))
    telemetry.emit(StepFinished(round=1, rounds=None, seconds=0.1, metrics={}))
    filler = fill(small_disk)
    for number in range(2, 102):
        telemetry.emit(StepFinished(round=number, rounds=None, seconds=0.1, metrics={"a" * 4096: 0.5}))
        telemetry.sample([sample(0)])
    telemetry.emit(RunFailed(error="It failed."))
    for line in (small_disk / "run" / "events.jsonl").read_text().splitlines(keepends=True):
        assert line.endswith("\n") and json.loads(line)
    assert directory.problem is not None and "No space left" in directory.problem
    filler.unlink()
    wait_until(lambda: directory.problem is None)
    lines = [json.loads(line) for line in directory.read_bytes("events.jsonl").splitlines()]
    assert [line["round"] for line in lines if line["kind"] == "round"] == list(range(1, 102))
    assert directory.read_table("rounds.parquet").num_rows == 101
    assert directory.read_table("workers.parquet").num_rows == 100
    assert open_run(directory.location).document["status"] == "failed"
    telemetry.close()
    assert len(heard.warnings) == 1
    assert "No space left" in heard.warnings[0]


def test_what_never_finds_room_is_told_in_the_end_and_does_not_end_the_run(small_disk: Path) -> None:
    directory, heard = RunDirectory.create(str(small_disk / "run")), Heard()
    telemetry = Telemetry([directory, heard])
    fill(small_disk)
    with pytest.raises(StorageError, match="No space left"):
        directory.write_bytes("model.ubj", bytes(1 << 20))
    with pytest.raises(StorageError, match="No space left"):
        directory.finish({})
    for _ in range(100):
        telemetry.emit(Warned("x" * 4096))
    heard.warnings.clear()
    telemetry.close()
    assert ["RunDirectory stopped recording this run" in warning for warning in heard.warnings] == [True]
    assert open_run(directory.location).document["status"] == "running"
    (small_disk / "filler").unlink()
    directory.remove()
    assert list(small_disk.iterdir()) == []


def test_the_sign_of_life_is_refreshed_on_a_full_disk_too(small_disk: Path) -> None:
    directory = RunDirectory.create(str(small_disk / "run"))
    before = directory.read_json("alive")["time"]
    fill(small_disk)
    time.sleep(0.01)
    beat(directory)
    assert directory.read_json("alive")["time"] > before
    directory.close()


def test_a_result_that_cannot_be_written_is_not_taken_for_written(small_disk: Path) -> None:
    directory = RunDirectory.create(str(small_disk / "run"))
    filler = fill(small_disk)
    with pytest.raises(StorageError):
        directory.finish({"big": "x" * 100_000})
    filler.unlink()
    directory.event(made_event(1.0, "run_failed", {"error": "No space left."}))
    directory.close()
    assert open_run(directory.location).document["status"] == "failed"


def test_tables_are_written_atomically(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path / "run"))
    directory.write_table("t.parquet", pa.table({"a": [1]}))
    assert pq.read_table(tmp_path / "run" / "t.parquet").to_pydict() == {"a": [1]}
    directory.close()


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a run"):
        open_run(str(tmp_path))
    for text in ("{", "[]", "{}"):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(ModelError):
            open_run(str(tmp_path))


def test_run_ids_sort_by_time_and_differ() -> None:
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", new_run_id())
    assert len({new_run_id() for _ in range(20)}) > 15


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_sign_of_life_is_refreshed_and_goes_with_the_process(
    place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_directory, "FLUSH_S", 0.05)
    directory = RunDirectory.create(place[0])
    first = directory.read_json("alive")["time"]
    wait_until(lambda: directory.read_json("alive")["time"] > first)
    assert is_alive(open_run(place[0]))
    directory.close()
    assert not directory.exists("alive")


def test_a_stopped_run_is_told_from_a_failed_one(place: tuple[str, Path]) -> None:
    directory = RunDirectory.create(place[0])
    telemetry = Telemetry([directory])
    telemetry.emit(RunFailed(error="Ctrl-C.", fix="dray resume", status="stopped"))
    telemetry.close()
    document = open_run(place[0]).document
    assert (document["status"], document["error"]) == ("stopped", {"what": "Ctrl-C.", "fix": "dray resume"})


def stopped_run(location: str, rounds: int = 5) -> None:
    directory = RunDirectory.create(location, config={"label": "y"})
    telemetry = Telemetry([directory])
    telemetry.sample([sample(0), sample(1)])
    for number in range(1, rounds + 1):
        telemetry.emit(StepFinished(round=number, rounds=None, seconds=0.1, metrics={"eval-auc": number / 10}))
    telemetry.emit(RunFailed(error="Ctrl-C.", status="stopped"))
    telemetry.close()


def test_a_reopened_run_goes_on_with_all_that_was_recorded(place: tuple[str, Path]) -> None:
    location, root = place
    stopped_run(location)
    run, started = open_run(location).run, open_run(location).document["started"]
    history = tuple({"round": n, "seconds": 0.1, "metrics": {"eval-auc": n / 10}} for n in range(1, 4))
    directory = RunDirectory.reopen(location, checkpoint=WrittenCheckpoint(3, b"model", history))
    document = open_run(location).document
    assert (document["run"], document["started"], document["config"]) == (run, started, {"label": "y"})
    assert (document["status"], document["resumed"]) == ("running", 1)
    assert document["process"]["pid"] == os.getpid()
    assert "error" not in document and "ended" not in document
    telemetry = Telemetry([directory])
    telemetry.emit(RunStarted("r", "runs/r", config={"label": "other"}))
    telemetry.emit(StepFinished(round=4, rounds=None, seconds=9.0, metrics={"eval-auc": 0.9, "eval-logloss": 0.1}))
    telemetry.sample([sample(2)])
    telemetry.emit(RunFinished(result=RESULT))
    telemetry.close()

    finished = open_run(location)
    assert (finished.document["status"], finished.document["config"]) == ("finished", {"label": "y"})
    rounds = finished.read_table("rounds.parquet")
    assert rounds["round"].to_pylist() == [1, 2, 3, 4]
    assert rounds["eval-auc"].to_pylist() == [0.1, 0.2, 0.3, 0.9]
    assert rounds["eval-logloss"].to_pylist() == [None, None, None, 0.1]
    assert finished.read_table("workers.parquet")["worker"].to_pylist() == [0, 1, 2]
    kinds = [json.loads(line)["kind"] for line in finished.read_bytes("events.jsonl").splitlines()]
    assert kinds == ["round"] * 5 + ["run_failed", "run_started", "round", "run_finished"]
    assert "alive" not in {path.name for path in root.iterdir()}


def test_rounds_that_the_table_lacks_come_from_the_checkpoint(place: tuple[str, Path]) -> None:
    stopped_run(place[0], rounds=0)
    history = tuple({"round": n, "seconds": 0.1, "metrics": {"eval-auc": n / 10}} for n in (1, 2))
    RunDirectory.reopen(place[0], checkpoint=WrittenCheckpoint(2, b"model", history)).close()
    assert open_run(place[0]).read_table("rounds.parquet")["eval-auc"].to_pylist() == [0.1, 0.2]


def test_without_a_checkpoint_all_rounds_are_done_again(place: tuple[str, Path]) -> None:
    stopped_run(place[0])
    for number in (1, 2):
        directory = RunDirectory.reopen(place[0])
        assert directory.document["resumed"] == number
        directory.interrupt("Again.")
        directory.close()
    assert open_run(place[0]).read_table("rounds.parquet").num_rows == 0


def test_a_reopened_or_opened_run_is_never_removed(place: tuple[str, Path]) -> None:
    location, root = place
    stopped_run(location)
    names = {path.name for path in root.iterdir()}
    RunDirectory.reopen(location).remove()
    open_run(location).remove()
    assert {path.name for path in root.iterdir()} == names


def test_a_finished_run_is_not_reopened(place: tuple[str, Path]) -> None:
    report_a_run(RunDirectory.create(place[0]))
    with pytest.raises(ModelError, match="is finished: there is nothing to resume") as caught:
        RunDirectory.reopen(place[0])
    assert "--continue-from" in caught.value.fix
    assert open_run(place[0]).document["status"] == "finished"


def test_a_run_that_is_alive_is_not_reopened(place: tuple[str, Path]) -> None:
    first = RunDirectory.create(place[0])
    with pytest.raises(ModelError, match=f"still running: process {os.getpid()} on") as caught:
        RunDirectory.reopen(place[0])
    assert f"kill {os.getpid()}" in caught.value.fix
    first.describe(process={"host": "elsewhere", "pid": 1})
    with pytest.raises(ModelError, match="process 1 on elsewhere") as caught:
        RunDirectory.reopen(place[0])
    assert "90 seconds" in caught.value.fix
    first.close()
    RunDirectory.reopen(place[0]).close()


def test_what_is_no_run_is_not_reopened(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a run"):
        RunDirectory.reopen(str(tmp_path))


def test_a_run_is_reopened_after_its_process_was_killed(tmp_path: Path) -> None:
    location = str(tmp_path / "run")
    code = f"""if True:
        from dray.runs.directory import RunDirectory
        from dray.events.kinds import PhaseStarted
        directory = RunDirectory.create({location!r})
        directory.event(PhaseStarted("load"))
        print("ready", flush=True)
        input()
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    with pytest.raises(ModelError, match=f"process {process.pid} on"):
        RunDirectory.reopen(location)
    process.kill()
    process.communicate()
    with (tmp_path / "run" / "events.jsonl").open("a") as file:
        file.write('{"torn": ')
    (tmp_path / "run" / "workers.parquet").write_bytes(b"damaged")
    directory = RunDirectory.reopen(location)
    directory.event(made_event(1.0, "phase", {"name": "train"}))
    directory.close()
    lines = [json.loads(line) for line in directory.read_bytes("events.jsonl").splitlines()]
    assert [line["name"] for line in lines] == ["load", "train"]


def test_a_missing_or_damaged_document_is_told(place: tuple[str, Path]) -> None:
    stopped_run(place[0])
    run = open_run(place[0])
    with pytest.raises(ModelError, match=r"has no data.json") as caught:
        run.read_json("data.json")
    assert caught.value.fix
    run.write_bytes("data.json", b"{")
    with pytest.raises(ModelError, match=r"data.json is damaged"):
        run.read_json("data.json")
    run.write_json("data.json", {"files": []})
    assert run.read_json("data.json") == {"files": []}
