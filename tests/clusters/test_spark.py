"""Ray inside a real Spark (`local-cluster`: executors are processes of their own), whose executors say one thread."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datasets
from dray.threads.limits import cpus_of_this_process

TESTS = Path(datasets.__file__).parent

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark: pip install 'dray[spark]'"),
    pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime (17): make system"),
    pytest.mark.skipif(cpus_of_this_process() < 2, reason="needs two CPUs"),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables for a process with Spark: its files in a directory of the test, its executors with our Python."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    home = tmp_path / "spark"
    home.mkdir()
    for entry in Path(spec.origin).parent.iterdir():
        (home / entry.name).symlink_to(entry)  # executors write their logs into a directory `work` in it
    (home / "local").mkdir()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "RAY_ON_SPARK_RAY_WORKER_NODE_STARTUP_INTERVAL": "1",
    }


def submit(executors: int, cores: int) -> dict[str, str]:
    """What makes dray start the session."""
    names = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "RAY_ON_SPARK_RAY_WORKER_NODE_STARTUP_INTERVAL")
    settings = " ".join(f"--conf spark.executorEnv.{name}=1" for name in names)
    master = f"local-cluster[{executors},{cores},1024]"
    return {"PYSPARK_SUBMIT_ARGS": f"--master {master} --conf spark.ui.enabled=false {settings} pyspark-shell"}


def wait_for_no(place: Path, timeout_s: float = 30) -> None:
    """Wait until no process has to do with the Spark in that place."""
    deadline = time.monotonic() + timeout_s
    while alive := _processes_in(place):
        assert time.monotonic() < deadline, alive
        time.sleep(0.2)


def _processes_in(place: Path) -> list[Any]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SPARK_HOME") == str(place):
                found.append((process.pid, process.name(), process.cmdline()[:4]))
        except psutil.Error:
            continue
    return found


def test_a_session_is_used_joined_and_left_as_it_was(environment: dict[str, str], tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("ray-*"))
    data = datasets.write(tmp_path / "data", datasets.binary(900))
    command = [sys.executable, str(TESTS / "spark_session.py"), data]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    (tmp_path / "told.txt").write_text(done.stdout)
    first, *_, last = done.stdout.splitlines()  # what stands between is Ray's, which the user has started
    told, users_own = json.loads(first), json.loads(last)

    assert "3 workers of 1 thread need 3 CPUs" in told["too_many"]
    assert told["interrupted"] == {"launched": 1, "left": []}
    run = told["run"]
    assert run["workers"] == 2
    assert run["decided"] == [1, 1]
    assert run["digest"] == run["digest_here"] == users_own["digest"]
    # The head has two processes, each executor one.
    assert run["processes_of_ray"] == 4
    assert run["modes"] == ["token"]
    assert run["openmp"] == run["openblas"] == ["1"]
    assert run["told"] == []
    assert run["files"] > 0
    assert run["environment"] == []
    assert run["left"] == []
    assert run["seconds"] < 180

    assert "1 of 2 Ray nodes have started in Spark" in told["taken"]["told"]
    assert "1 tasks of other Spark jobs hold cores" in told["taken"]["told"]
    assert told["taken"]["left"] == []
    assert "Spark has given this session no core for 3 s" in told["all_taken"]["told"]
    assert told["all_taken"]["left"] == []

    assert users_own["stays"] == ["gcs_server", "raylet", "raylet"]
    assert users_own["left"] == []
    wait_for_no(tmp_path / "spark")
    assert set(Path("/tmp").glob("ray-*")) - before == set()


def test_one_thread_in_the_executors_does_not_hold_a_worker_to_one(environment: dict[str, str], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {f"x{index}": random.normal(size=60_000).astype(np.float32) for index in range(20)}
    table = pa.table({**columns, "label": columns["x0"] + random.normal(size=60_000) > 0})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=20_000)
    settings = {"data": "data.parquet", "label": "label", "cluster": "spark", "workers": 1, "rounds": 25}
    (tmp_path / "config.json").write_text(json.dumps({**settings, "params": {"max_depth": 8}}))
    command = [sys.executable, str(TESTS / "openmp_threads.py"), "config.json"]
    env = environment | submit(1, 2)
    done = subprocess.run(command, env=env, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout)
    assert told["decided"] == 2
    assert told["busy"] == 2
    wait_for_no(tmp_path / "spark")


def test_an_interrupted_run_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("ray-*"))
    data = datasets.write(tmp_path / "data", datasets.binary(600))
    flags = ["--label", "label", "--workers", "2", "--rounds", "1000000", "--out", "run", "--cluster", "spark"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "dray.cli.main", "train", data, *flags],
        env=environment | submit(2, 1),
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    events = tmp_path / "run" / "events.jsonl"
    deadline = time.monotonic() + 400
    while not (events.exists() and '"kind": "round"' in events.read_text()):
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(driver.pid, signal.SIGINT)  # as the terminal does
    out, err = driver.communicate(timeout=90)
    assert driver.returncode == 130, err[-6000:]
    assert out == ""
    assert "Traceback" not in err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    wait_for_no(tmp_path / "spark")
    assert set(Path("/tmp").glob("ray-*")) - before == set()


@pytest.mark.parametrize(
    ("submit_arguments", "told"),
    [(None, "There is no Spark session"), ("--master local[2] pyspark-shell", "This Spark session has no executors")],
)
def test_no_spark_to_run_on_is_an_error_at_once(
    environment: dict[str, str], tmp_path: Path, submit_arguments: str | None, told: str
) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary(300))
    flags = ["--label", "label", "--workers", "2", "--cluster", "spark", "--out", "run"]
    env = environment | ({"PYSPARK_SUBMIT_ARGS": submit_arguments} if submit_arguments else {})
    command = [sys.executable, "-m", "dray.cli.main", "train", data, *flags]
    done = subprocess.run(command, env=env, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    wait_for_no(tmp_path / "spark")
