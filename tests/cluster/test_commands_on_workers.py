"""Commands in processes of their own, each with its embedded cluster: the environment, a bucket, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datasets
from dray.threads.limits import cpus_of_this_process
from living import commands
from s3_server import S3Server

DRAY = (sys.executable, "-m", "dray.cli.main")


def wait_for(text: str, file: Path, process: subprocess.Popen[str], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not (file.exists() and text in file.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {text} within {timeout_s} s"
        time.sleep(0.05)


def directories_of(processes: list[psutil.Process]) -> set[Path]:
    """The temporary directories that stand in the commands of Ray's processes."""
    return {Path(found) for found in re.findall(r"/tmp/dray-[^/ ]+", " ".join(commands(processes)))}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary(600))
    flags = ["--label", "label", "--workers", "2", "--rounds", "1000000", "--out", "run"]
    driver = subprocess.Popen(
        [*DRAY, "train", data, *flags],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for('"kind": "round"', tmp_path / "run" / "events.jsonl", driver)
    started = psutil.Process(driver.pid).children(recursive=True)
    directories = directories_of(started)
    assert len(started) >= 4
    assert directories
    began = time.monotonic()
    if how is signal.SIGINT:
        os.killpg(driver.pid, how)  # as the terminal does: to every process that did not leave the group
    else:
        driver.send_signal(how)
    out, err = driver.communicate(timeout=30)
    assert time.monotonic() - began < 15
    # Ray's own handler of SIGTERM chooses the exit code.
    assert driver.returncode == 130 if how is signal.SIGINT else driver.returncode > 0
    assert out == ""
    assert "Traceback" not in err
    assert psutil.wait_procs(started, timeout=5)[1] == []
    assert not any(directory.exists() for directory in directories)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert (tmp_path / "run" / "checkpoints" / "latest.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]
    assert not (tmp_path / "run" / "model.ubj").exists()


@pytest.mark.skipif(cpus_of_this_process() < 2, reason="needs two CPUs")
def test_one_thread_in_the_drivers_environment_does_not_hold_a_worker_to_one(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {f"x{index}": random.normal(size=60_000).astype(np.float32) for index in range(20)}
    table = pa.table({**columns, "label": columns["x0"] + random.normal(size=60_000) > 0})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=20_000)
    settings = {"data": "data.parquet", "label": "label", "workers": 1, "threads": 2, "rounds": 25}
    (tmp_path / "config.json").write_text(json.dumps({**settings, "params": {"max_depth": 8}}))
    script = Path(datasets.__file__).with_name("openmp_threads.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1"}
    command = [sys.executable, str(script), "config.json"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["decided"] == 2
    assert told["busy"] == 2


def test_workers_reach_a_bucket_and_write_no_key(s3_server: S3Server, tmp_path: Path) -> None:
    datasets.write(s3_server.directory / "data", datasets.binary(900))
    data, run, out = (s3_server.url(name) for name in ("data", "run", "out"))

    def dray(*arguments: str) -> str:
        command = [*DRAY, *arguments, "--workers", "2", "--json"]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert s3_server.secret_key not in done.stderr + done.stdout
        return done.stdout

    result = json.loads(dray("train", data, "--label", "label", "--rounds", "3", "--out", run))
    assert result["workers"] == 2
    assert json.loads(dray("predict", run, data, out, "--keep", "id"))["rows"] == 900
    assert datasets.read(s3_server.directory / "out")["id"].to_pylist() == list(range(900))
    written = [path for path in (*s3_server.directory.rglob("*"), *tmp_path.rglob("*")) if path.is_file()]
    assert len(written) >= 12
    for file in written:
        assert s3_server.secret_key.encode() not in file.read_bytes()
