"""A run directory on disk and on S3."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.errors import ModelError, StorageError
from dray.telemetry import run_directory
from dray.telemetry.events import Event, Sample, Telemetry
from dray.telemetry.run_directory import RunDirectory, new_run_id, open_run
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
    telemetry.emit("run_started", run=directory.run, directory=directory.location, config={"label": "y"})
    telemetry.emit("worker_progress", worker=0, rows=1, total_rows=2)
    telemetry.sample([sample(0), sample(-1)])
    telemetry.emit("round", round=1, rounds=2, seconds=0.1, metrics={})
    telemetry.emit("round", round=2, rounds=2, seconds=0.2, metrics={"eval-auc": 0.8})
    telemetry.sample([sample(0, 2.0)])
    telemetry.emit("run_finished", result=RESULT)
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
    directory.event(Event(1.0, "phase", {"name": "load"}))
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
    telemetry.emit("run_failed", error="Worker 1 is gone.", fix="Look at its log.")
    telemetry.close()
    document = open_run(location).document
    assert document["status"] == "failed"
    assert document["error"] == {"what": "Worker 1 is gone.", "fix": "Look at its log."}


def test_no_file_of_a_run_holds_a_secret(s3_server: S3Server) -> None:
    directory = RunDirectory.create(s3_server.url("run"), config={"oops": s3_server.secret_key})
    Telemetry([directory]).emit("warning", message=f"signed with {s3_server.secret_key}", fix="")
    directory.close()
    files = [path for path in (s3_server.directory / "run").iterdir() if path.is_file()]
    assert len(files) == 2
    for file in files:
        assert s3_server.secret_key.encode() not in file.read_bytes()


def test_a_round_done_again_after_a_failure_counts_once(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path / "run"))
    for number, seconds in ((1, 0.1), (2, 0.2), (2, 0.3), (3, 0.4)):
        directory.event(Event(1.0, "round", {"round": number, "seconds": seconds, "metrics": {}}))
    directory.close()
    assert directory.read_table("rounds.parquet").column("seconds").to_pylist() == [0.1, 0.3, 0.4]


def test_what_is_recorded_is_saved_now_and_then(place: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "FLUSH_S", 0.01)
    location, _ = place
    directory = RunDirectory.create(location)
    directory.event(Event(1.0, "round", {"round": 1, "seconds": 0.1, "metrics": {}}))
    for _ in range(500):
        if directory.exists("rounds.parquet") and directory.exists("events.jsonl"):
            break
        directory._closing.wait(0.01)
    assert directory.read_table("rounds.parquet").num_rows == 1
    assert b'"round"' in directory.read_bytes("events.jsonl")
    directory.close()


def test_lines_are_on_disk_as_soon_as_they_are_reported(tmp_path: Path) -> None:
    directory = RunDirectory.create(str(tmp_path / "run"))
    directory.event(Event(1.0, "phase", {"name": "load"}))
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


def test_a_disk_that_fills_up_stops_the_record_and_not_the_run(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk]).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        directory = RunDirectory.create(str(disk / "run"))
        telemetry = Telemetry([directory])
        with pytest.raises(StorageError, match="No space left"):
            directory.write_bytes("model.ubj", bytes(1 << 20))
        for _ in range(100):
            telemetry.emit("warning", message="x" * 4096, fix="")
        telemetry.close()
        directory.remove()
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


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
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", new_run_id())
    assert len({new_run_id() for _ in range(20)}) > 15
