"""`dray train` as people call it: flags, a run file, and what is printed where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import datasets
from dray.cli.main import main
from dray.threads.limits import cpus_of_this_process
from s3_server import S3Server

KEYS = {
    "run": str,
    "directory": str,
    "model": str,
    "model_digest": str,
    "learner": str,
    "objective": str,
    "positive_class": int,
    "rows_dropped": int,
    "eval_rows_dropped": int,
    "rows": int,
    "eval_rows": int,
    "features": int,
    "workers": int,
    "rounds": int,
    "best_round": int,
    "seconds": dict,
    "metrics": dict,
    "threads": list,
    "peak_memory_bytes": int,
    "failures": int,
    "rows_reloaded": int,
    "identity": dict,
    "warnings": list,
    "baseline": dict,
    "verdict": str,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("data"), datasets.binary(900))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["train", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_result_as_json_has_every_key(data: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = train(capsys, data, "--label", "label", "--workers", "0", "--rounds", "5", "--eval-fraction", "0.2")
    assert {name: type(value) for name, value in document.items()} == KEYS
    assert set(document["seconds"]) == {"start", "load", "train", "recovery", "total", "copy"}
    assert all(isinstance(value, float) and value >= 0 for value in document["seconds"].values())
    assert document["seconds"]["total"] >= sum(document["seconds"][name] for name in ("start", "load", "train")) - 0.01
    assert set(document["metrics"]) == {"eval-auc", "eval-logloss"}
    [proof] = document["threads"]
    assert {name: type(value) for name, value in proof.items()} == {
        "worker": int,
        "host": str,
        "decided": int,
        "used": float,
        "ok": bool,
    }
    assert proof["decided"] == cpus_of_this_process()
    assert document["identity"]["holds"] is True
    assert document["peak_memory_bytes"] > 50e6
    assert Path(document["directory"]) == tmp_path / "runs" / document["run"]
    assert json.loads((Path(document["directory"]) / "run.json").read_text())["result"] == document


def test_a_metric_without_a_value_is_still_json(data: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one_sided = datasets.replaced(datasets.binary(100), label=[1] * 100)
    other = datasets.write(tmp_path / "eval", one_sided, files=1)
    arguments = [data, "--label", "label", "--workers", "0", "--rounds", "2", "--eval", other, "--json"]
    assert main(["train", *arguments]) == 0
    json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_words_go_to_stderr_and_nothing_to_stdout(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", data, "--label", "label", "--workers", "0", "--rounds", "3", "--eval-fraction", "0.2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "auc" in captured.err
    assert "runs/" in captured.err


def test_quiet_says_nothing(data: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", data, "--label", "label", "--workers", "0", "--rounds", "3", "--quiet"]) == 0
    assert capfd.readouterr() == ("", "")


def test_a_run_file_says_all_and_flags_override_it(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        "data": data,
        "label": "label",
        "weight": "weight",
        "ignore": ["id"],
        "rounds": 4,
        "workers": 0,
        "eval_fraction": 0.25,
        "params": {"max_depth": 2, "eta": 0.3},
        "out": "from-file",
    }
    Path("run.yaml").write_text(yaml.safe_dump(settings))
    by_file = train(capsys, "run.yaml")
    assert by_file["rounds"] == 4
    assert by_file["directory"].endswith("from-file")
    flags = ["--label", "label", "--weight", "weight", "--ignore", "id", "--workers", "0", "--eval-fraction", "0.25"]
    by_flags = train(capsys, data, *flags, "--rounds", "4", "--param", "max_depth=2", "--param", "eta=0.3")
    assert by_flags["model_digest"] == by_file["model_digest"]
    changed = train(capsys, "run.yaml", "--rounds", "2", "--param", "max_depth=4", "--out", "changed")
    config = json.loads(Path("changed/run.json").read_text())["config"]
    assert (changed["rounds"], config["rounds"]) == (2, 2)
    assert config["params"] == {"max_depth": 4, "eta": 0.3}


def test_data_may_be_files_directories_and_globs(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(file) for file in sorted(Path(data).iterdir())]
    flags = ["--label", "label", "--workers", "0", "--rounds", "1"]
    digests = {
        train(capsys, *named, *flags)["model_digest"] for named in ([data], files, [f"{data}/*.parquet"], files[::-1])
    }
    assert len(digests) == 1
    assert train(capsys, files[0], *flags)["rows"] < 900


def test_every_flag_reaches_the_run(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--label", "label", "--rounds", "2", "--workers", "0", "--seed", "3", "--eval-fraction", "0.3"]
    first = train(capsys, data, *flags, "--out", "first")
    second = train(
        capsys,
        *(data, "--label", "label", "--rounds", "30", "--workers", "0", "--seed", "3", "--continue-from", "first"),
        *("--eval-fraction", "0.3", "--early-stop", "2", "--objective", "binary", "--param", "eval_metric=[error,auc]"),
        *("--param", "eta=0.9"),
    )
    assert list(second["metrics"]) == ["eval-error", "eval-auc"]
    assert second["rounds"] == second["best_round"] + 2
    config = json.loads((Path(second["directory"]) / "run.json").read_text())["config"]
    assert config["seed"] == 3
    assert config["continue_from"] == "first"
    assert first["model_digest"] != second["model_digest"]


def test_a_bucket_is_reached_with_flags(
    data: str, capsys: pytest.CaptureFixture[str], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_REGION")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    credentials = tmp_path / "credentials"
    keys = f"aws_access_key_id = {s3_server.access_key}\naws_secret_access_key = {s3_server.secret_key}\n"
    credentials.write_text(f"[work]\n{keys}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    datasets.write(s3_server.directory / "data", datasets.binary(900))
    flags = ["--label", "label", "--rounds", "2", "--workers", "0"]
    store = ["--endpoint", s3_server.endpoint, "--region", "us-east-1", "--profile", "work"]
    document = train(capsys, s3_server.url("data"), *flags, *store, "--out", s3_server.url("run"))
    assert document["model_digest"] == train(capsys, data, *flags)["model_digest"]
    for file in (s3_server.directory / "run").iterdir():
        assert s3_server.secret_key.encode() not in file.read_bytes()


def test_ctrl_c_ends_the_run_at_once_and_marks_it(data: str, tmp_path: Path) -> None:
    flags = ["--label", "label", "--workers", "0", "--rounds", "10000000", "--out", "run"]
    command = [sys.executable, "-m", "dray.cli.main", "train", data, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    events = tmp_path / "run" / "events.jsonl"
    deadline = time.monotonic() + 60
    while not (events.exists() and '"kind": "round"' in events.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "Interrupted."
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert not (tmp_path / "run" / "model.ubj").exists()


@pytest.mark.skipif(cpus_of_this_process() < 2, reason="needs two CPUs")
def test_one_thread_in_the_environment_does_not_hold_a_run_to_one(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {f"x{index}": random.normal(size=60_000).astype(np.float32) for index in range(20)}
    table = pa.table({**columns, "label": columns["x0"] + random.normal(size=60_000) > 0})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=20_000)
    settings = {"data": str(tmp_path / "data.parquet"), "label": "label", "workers": 0, "threads": 2, "rounds": 25}
    (tmp_path / "config.json").write_text(json.dumps({**settings, "params": {"max_depth": 8}}))
    script = Path(datasets.__file__).with_name("openmp_threads.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "8"}
    command = [sys.executable, str(script), str(tmp_path / "config.json")]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["decided"] == 2
    assert told["busy"] == 2


@pytest.mark.parametrize("evaluation", [[], ["--eval-fraction", "0.2"]])
def test_a_small_run_fits_on_a_screen_and_says_nothing_of_workers_where_there_are_none(
    data: str, evaluation: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", data, "--label", "label", "--workers", "0", "--rounds", "5", *evaluation]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) <= 24
    assert not [line for line in told if "starting" in line or "worker 0 on" in line]
    assert [line for line in told if "  verdict  " in line] if evaluation else "--eval-fraction 0.2" in "".join(told)
