"""Commands with `--cluster http://...`: jobs on a real Ray head, over its real job server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import dray
from dray.data.synthetic import make
from dray.errors import DrayError
from dray_process import DRAY
from job_head import JobHead, job_head
from recommender_run import write_run

FUNCTION = """
from words import NAME

def count(batch):
    print("counting", NAME)
    return {"rows": batch.num_rows, "by": NAME}

def double(batch):
    import pyarrow as pa
    import pyarrow.compute as pc
    return pa.table({"twice": pc.multiply(batch["x"], 2), "x": batch["x"]})

def fail(batch):
    raise ValueError("bad rows")
"""


@pytest.fixture(scope="module")
def head() -> Iterator[JobHead]:
    with job_head() as started:
        yield started


@pytest.fixture(autouse=True)
def token(head: JobHead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    (place / "features.py").write_text(FUNCTION)
    (place / "words.py").write_text('NAME = "Ray"\n')
    (place / "rows.csv").write_text("x\n" + "\n".join(map(str, range(100))) + "\n")
    return place


def run(head: JobHead, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [DRAY, *arguments, "--cluster", head.url, "--json"]
    return subprocess.run(
        command, cwd=cwd, env=head.environment, capture_output=True, text=True, timeout=120, check=False
    )


def done(head: JobHead, *arguments: str, cwd: Path) -> dict[str, Any]:
    process = run(head, *arguments, cwd=cwd)
    assert process.returncode == 0, process.stderr
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def test_predictions_of_a_job_are_those_of_this_machine(
    head: JobHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make("data", rows=2000, features=4, files=2, processes=1)
    dray.train("data", "label", rounds=3, workers=0, out="model")
    here = dray.predict("model", "data", "here", workers=0)
    there = done(head, "predict", "model", "data", "there", "--workers", "2", cwd=tmp_path)
    assert (there["rows"], there["files"], there["workers"]) == (here.rows, 2, 2)
    assert there["output"] == str(tmp_path / "there")
    assert pq.read_table("there").equals(pq.read_table("here"))
    missing = run(head, "predict", "model", "gone", "nothing", cwd=tmp_path)
    assert (missing.returncode, json.loads(missing.stdout)["error"]["type"]) == (2, "DataError")


def test_recommendations_of_a_job_come_back_or_are_written(
    head: JobHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run("shop")
    users = ["u007", "u001"]
    here = dray.recommend("shop", users=users, top=3)
    there = dray.recommend("shop", users=users, top=3, cluster=head.url, workers=0)
    assert there.table is not None and there.table.equals(here.table)
    written = done(head, "recommend", "shop", "--top", "2", "--out", "lists", "--workers", "1", cwd=tmp_path)
    assert written["users"] == 300
    assert pq.read_table("lists").num_rows == written["rows"] == 600


def test_a_function_is_mapped_with_its_code_and_prints_to_stderr(head: JobHead, code: Path) -> None:
    process = run(head, "map", "features:count", "rows.csv", "out", cwd=code)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert (result["results"], result["failed"]) == (1, 0)
    assert json.loads((code / "out" / "results.jsonl").read_text()) == {"rows": 100, "by": "Ray"}
    assert "counting Ray" in process.stderr
    failed = run(head, "map", "features:fail", "rows.csv", "more", cwd=code)
    assert (failed.returncode, json.loads(failed.stdout)["error"]["type"]) == (1, "ItemError")
    assert "ValueError: bad rows" in failed.stderr and 'features.py", line' in failed.stderr
    assert not (code / "more").exists()


def test_rows_are_ingested_with_the_transforms_code(head: JobHead, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--transform", "features:double", "--filter", "x >= 50", "--test", "0.5", "--split-by", "x"]
    result = done(head, "data", "ingest", "rows.csv", "out", *flags, cwd=code)
    assert (result["rows_kept"], result["rows_filtered"]) == (50, 50)
    assert sum(result["parts"].values()) == 50
    monkeypatch.chdir(code)
    here = dray.ingest("rows.csv", "plain", filter="x >= 50")
    there = dray.ingest("rows.csv", "far", filter="x >= 50", cluster=head.url)
    assert (there.rows_kept, there.files) == (here.rows_kept, here.files)
    assert pq.read_table("far").equals(pq.read_table("plain"))


def test_other_formats_are_copied_by_the_cluster_of_the_job(
    head: JobHead, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(code)
    (code / "labels.csv").write_text("x,y\n" + "\n".join(f"{row},{row % 2}" for row in range(200)) + "\n")
    result = dray.train(["labels.csv"], "y", rounds=2, workers=1, cache="cache", out="run", cluster=head.url)
    here = dray.train(["labels.csv"], "y", rounds=2, workers=0, cache="here", out="alone")
    assert result.model_digest == here.model_digest
    document = json.loads((code / "run" / "run.json").read_text())
    assert document["config"]["cluster"] == head.url
    assert list((code / "cache").glob("*/part-*.parquet"))


def test_what_lives_in_this_process_is_refused_with_the_way_out(head: JobHead, tmp_path: Path) -> None:
    import pyarrow as pa

    table = pa.table({"x": [1]})
    with pytest.raises(DrayError, match="data is a Table in this process, and the command runs at http"):
        dray.ingest(table, str(tmp_path / "out"), cluster=head.url)
    with pytest.raises(DrayError, match="exists in this process only") as caught:
        dray.ingest(str(tmp_path), str(tmp_path / "out"), transform=lambda batch: batch, cluster=head.url)
    assert "features.py" in caught.value.fix
    with pytest.raises(DrayError, match=r"dray\.map has its function, items and results in this process"):
        dray.map(str, [1], cluster=head.url)
