"""`dray runs`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli.runs import runs
from dray.errors import StorageError
from dray.runs.directory import RunDirectory
from s3_server import S3Server

RESULT = {
    "learner": "xgboost",
    "rows": 1_000_000,
    "workers": 2,
    "rounds": 100,
    "seconds": {"total": 16.5},
    "metrics": {"eval-auc": 0.84},
}


def make_run(location: str, name: str) -> None:
    directory = RunDirectory.create(f"{location}/{name}", run=name)
    directory.finish(RESULT)
    directory.close()


def test_the_table_shows_each_run_on_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(str(tmp_path / "runs"), "one")
    (tmp_path / "runs" / "two").mkdir()
    (tmp_path / "runs" / "two" / "run.json").write_text("{")
    result = CliRunner().invoke(runs, [])
    assert result.exit_code == 0
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["run", "status", "when", "model", "rows", "workers", "rounds", "time", "metric"]
    [one] = [line for line in lines if line.startswith("one")]
    assert one.split()[:2] == ["one", "finished"]
    assert one.split()[4:] == ["xgboost", "1,000,000", "2", "100", "16.5", "s", "eval-auc", "0.84000"]
    assert any(line.split()[:2] == ["two", "broken"] for line in lines)
    assert lines[-1].startswith("two (broken): ")


def test_a_recommender_stands_beside_the_others(tmp_path: Path) -> None:
    make_run(str(tmp_path), "trees")
    going = RunDirectory.create(str(tmp_path / "going"), run="going", config={"model": "factorization"})
    done = RunDirectory.create(str(tmp_path / "done"), run="done", config={"model": "factorization"})
    metrics = {"eval-rmse": 0.9, "eval-ndcg@10": 0.25}
    done.finish({**RESULT, "learner": "factorization", "rounds": 20, "pairs": 10, "metrics": metrics})
    done.close()
    result = CliRunner().invoke(runs, [str(tmp_path)])
    going.close()
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert lines["done"][3:6] == ["factorization", "1,000,000", "2"]
    assert lines["done"][6:] == ["20", "16.5", "s", "eval-rmse", "0.90000"]
    assert (lines["going"][0], lines["going"][3:]) == ("running", ["factorization"])
    assert lines["trees"][3] == "xgboost"


@pytest.mark.parametrize("where", ["local", "s3"])
def test_json_is_one_document(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    location = str(tmp_path)
    if where == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        location = server.url("runs")
    make_run(location, "one")
    result = CliRunner().invoke(runs, [location, "--json"])
    [run] = json.loads(result.stdout)["runs"]
    assert (run["run"], run["status"], run["rounds"], run["seconds"]) == ("one", "finished", 100, 16.5)
    assert run["directory"] == f"{location}/one"


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ({"eval-recall@5": 0.1, "eval-ndcg@5": 0.2, "eval-ndcg@10": 0.3, "popular-ndcg@5": 0.1}, "eval-ndcg@5 0.20000"),
        ({"train-rmse": 0.8}, "train-rmse 0.80000"),
        ({}, "s"),
    ],
)
def test_of_a_recommender_only_the_metric_that_decides_is_shown(
    metrics: dict[str, float], shown: str, tmp_path: Path
) -> None:
    directory = RunDirectory.create(str(tmp_path / "one"), run="one")
    directory.finish({**RESULT, "learner": "factorization", "metrics": metrics})
    directory.close()
    result = CliRunner().invoke(runs, [str(tmp_path)])
    assert result.stdout.splitlines()[1].rstrip().endswith(f"16.5 {shown}" if shown == "s" else f"s  {shown}")


def test_no_runs_here_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(runs, ["."]).stderr.startswith("No runs here. Make one")


def test_no_runs_yet_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(runs, [])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "dray train" in result.stderr
    assert json.loads(CliRunner().invoke(runs, ["--json"]).stdout) == {"runs": []}


def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(runs, [str(tmp_path / "nowhere")])
    assert isinstance(result.exception, StorageError)
