"""The example with a clickstream in an S3 store, from end to end."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import dray
from s3_server import S3Server

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "clickstream"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def test_the_clickstream_becomes_recommendations_that_beat_popularity(s3_server: S3Server, tmp_path: Path) -> None:
    sizes = ["--users", "500", "--items", "300", "--days", "21"]
    done = example(["--bucket", s3_server.bucket, "--endpoint", s3_server.endpoint, *sizes], tmp_path)
    assert done.returncode == 0, done.stderr
    store = s3_server.directory / "clickstream"

    assert len(list((store / "events").glob("2026-*.jsonl"))) == 21
    run = json.loads((store / "run" / "run.json").read_text())
    assert run["status"] == "finished"
    assert run["result"]["workers"] == 2
    assert (store / "run" / "model" / "model.json").is_file()

    command = [sys.executable, str(EXAMPLE / "against_popularity.py"), s3_server.url("clickstream/run"), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found["model"]["ndcg"] == pytest.approx(run["result"]["metrics"]["eval-ndcg@10"], abs=0.002)
    assert found["model"]["recall"] == pytest.approx(run["result"]["metrics"]["eval-recall@10"], abs=0.002)
    assert found["model"]["ndcg"] > 2 * found["popularity"]["ndcg"]
    assert found["model"]["recall"] > 2 * found["popularity"]["recall"]

    lists = pq.read_table(store / "lists").to_pylist()
    model = dray.load(s3_server.url("clickstream/run"))
    assert isinstance(model, dray.FactorModel)
    users = model.user_ids.to_pylist()
    assert {row["user"] for row in lists} == set(users)
    had = {
        (user, model.item_ids[item].as_py())
        for place, user in enumerate(users)
        for item in model.seen.of_user(place).tolist()
    }
    assert had.isdisjoint((row["user"], row["item"]) for row in lists)

    own = [row for row in lists if row["user"] == "u-000001"]
    assert len(own) == 10
    assert all(row["item"] in done.stdout for row in own)
    require_job((tmp_path / "clickstream" / "rayjob.yaml").read_text(), "s3://bucket/clickstream/run")


def test_the_example_says_how_to_get_a_store_if_none_is_named(tmp_path: Path) -> None:
    done = example([], tmp_path)
    assert done.returncode == 2
    assert "rclone serve s3" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_events_that_are_there_already_are_not_mixed_with_others(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "make_clickstream.py"), "events", "--users", "20", "--days", "2"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    before = (tmp_path / "events" / "2026-03-02.jsonl").read_bytes()
    again = subprocess.run([*command, "--seed", "1"], cwd=tmp_path, capture_output=True, text=True)
    assert (first.returncode, again.returncode) == (0, 1)
    assert "choose another place" in again.stderr
    assert (tmp_path / "events" / "2026-03-02.jsonl").read_bytes() == before


def test_the_run_file_of_the_example_is_rendered_as_it_stands(tmp_path: Path) -> None:
    command = ["dray", "cluster", "render", "--on", "kubernetes", str(EXAMPLE / "run.yaml")]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, check=True
    )
    require_job(done.stdout, "s3://warehouse/clickstream/run")


def example(arguments: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": PATH}
    env.pop("AWS_ENDPOINT_URL", None)  # it is given by a flag
    return subprocess.run([str(EXAMPLE / "run.sh"), *arguments], cwd=where, env=env, capture_output=True, text=True)


def require_job(text: str, out: str) -> None:
    """A RayJob that KubeRay takes, with the run file, and no key in it."""
    settings, job = yaml.safe_load_all(text)
    assert (settings["kind"], job["kind"]) == ("ConfigMap", "RayJob")
    run: dict[str, Any] = yaml.safe_load(settings["data"]["run.yaml"])
    assert (run["model"], run["out"]) == ("factorization", out)
    assert "secret:" not in settings["data"]["run.yaml"]
    schema = kuberay_schema()
    if schema.present():
        assert schema.mistakes(job) == []


def kuberay_schema() -> ModuleType:
    file = ROOT / "tests" / "unit" / "clusters" / "kubernetes" / "kuberay_schema.py"
    spec = importlib.util.spec_from_file_location("kuberay_schema", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
