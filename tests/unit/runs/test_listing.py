"""The list of runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dray.errors import StorageError
from dray.runs.directory import RunDirectory
from dray.runs.listing import list_runs
from dray.storage import join
from s3_server import S3Server


def make_run(location: str, started: str, status: str = "finished") -> None:
    directory = RunDirectory.create(location, run=location.rpartition("/")[2], started=started)
    if status == "finished":
        result = {"rows": 10, "workers": 2, "rounds": 3, "seconds": {"total": 1.5}, "metrics": {"eval-auc": 0.8}}
        directory.finish(result)
    elif status == "failed":
        directory.fail("Worker 1 is gone.")
    directory.close()


@pytest.fixture(params=["local", "s3"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "runs")
    return request.getfixturevalue("s3_server").url("runs")


def test_runs_come_newest_first_with_what_they_came_to(runs: str) -> None:
    make_run(join(runs, "b"), "2026-01-01T00:00:00+00:00")
    make_run(join(runs, "a"), "2026-01-02T00:00:00+00:00", status="failed")
    make_run(join(runs, "c"), "2026-01-03T00:00:00+00:00", status="running")
    newest, failed, finished = list_runs(runs)
    assert (newest.run, newest.status) == ("c", "running")
    assert (failed.run, failed.status, failed.problem) == ("a", "failed", "Worker 1 is gone.")
    assert (finished.rows, finished.workers, finished.rounds, finished.seconds) == (10, 2, 3, 1.5)
    assert finished.metrics == {"eval-auc": 0.8}
    assert finished.directory == join(runs, "b")


def test_a_directory_without_a_description_is_skipped_and_a_damaged_one_is_shown(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    for name, text in (("half", '{"run": '), ("empty", ""), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    assert {(run.run, run.status) for run in list_runs(str(tmp_path))} == {
        ("half", "broken"),
        ("empty", "broken"),
        ("list", "broken"),
    }


def status_with_process(root: Path, **process: object) -> str:
    make_run(str(root / "run"), "2026-01-01T00:00:00+00:00", status="running")
    file = root / "run" / "run.json"
    document = json.loads(file.read_text())
    document["process"] |= process
    file.write_text(json.dumps(document))
    [run] = list_runs(str(root))
    return run.status


def test_a_run_whose_process_is_gone_is_lost(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert status_with_process(tmp_path, pid=ended.pid) == "lost"


def test_a_run_whose_process_number_belongs_to_another_now_is_lost(tmp_path: Path) -> None:
    assert status_with_process(tmp_path, pid=os.getpid(), created=1.0) == "lost"


def test_a_run_whose_process_was_killed_but_not_waited_for_is_lost(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    created = psutil.Process(killed.pid).create_time()
    killed.kill()
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert status_with_process(tmp_path, pid=killed.pid, created=created) == "lost"
    killed.communicate()


@pytest.mark.parametrize("elsewhere", [{"host": "another"}, {"namespace": "pid:[1]"}])
def test_a_run_on_another_host_or_container_is_alive_as_long_as_it_says_so(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    run = RunDirectory.create(str(tmp_path / "run"))
    run.describe(process=run.document["process"] | {"pid": 1, "created": 1.0} | elsewhere)
    assert [found.status for found in list_runs(str(tmp_path))] == ["running"]
    sign = json.loads((tmp_path / "run" / "alive").read_text())
    assert (sign["host"], sign["pid"]) == (socket.gethostname(), os.getpid())
    for age_s, status in ((80, "running"), (100, "lost")):
        (tmp_path / "run" / "alive").write_text(json.dumps(sign | {"time": time.time() - age_s}))
        assert [found.status for found in list_runs(str(tmp_path))] == [status]
    for damage in ("", "[]", "{}", '{"time": "x"}'):
        (tmp_path / "run" / "alive").write_text(damage)
        assert [found.status for found in list_runs(str(tmp_path))] == ["lost"]
    run.close()
    assert not (tmp_path / "run" / "alive").exists()
    assert [found.status for found in list_runs(str(tmp_path))] == ["lost"]


def test_a_stopped_run_says_so(runs: str) -> None:
    directory = RunDirectory.create(join(runs, "a"))
    directory.interrupt("Stopped by Ctrl-C.", "dray resume a")
    directory.close()
    [run] = list_runs(runs)
    assert (run.status, run.problem) == ("stopped", "Stopped by Ctrl-C.")


def test_a_run_directory_lists_itself(tmp_path: Path) -> None:
    make_run(str(tmp_path / "run"), "2026-01-01T00:00:00+00:00")
    assert [run.run for run in list_runs(str(tmp_path / "run"))] == ["run"]


def test_a_missing_directory_is_an_error(tmp_path: Path, s3_server: S3Server) -> None:
    for location in (str(tmp_path / "nowhere"), s3_server.url("nowhere"), "s3://nowhere"):
        with pytest.raises(StorageError):
            list_runs(location)
