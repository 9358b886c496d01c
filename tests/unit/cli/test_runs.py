"""`dray runs`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dray.cli.runs import runs
from dray.errors import ConfigError, DrayError, StorageError
from dray.runs.directory import RunDirectory
from dray.storage import DEFAULT, write_atomically
from s3_server import S3Server

RESULT = {
    "learner": "xgboost",
    "rows": 1_000_000,
    "workers": 2,
    "rounds": 100,
    "seconds": {"total": 16.5},
    "metrics": {"eval-auc": 0.84},
}


def make_run(location: str, name: str, **config: Any) -> None:
    directory = RunDirectory.create(f"{location}/{name}", run=name, config=config)
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
    assert header.split() == ["run", "label", "metric", "status", "when", "rows", "time"]
    [one] = [line for line in lines if line.startswith("one")]
    assert one.split()[:4] == ["one", "eval-auc", "0.84000", "finished"]
    assert one.split()[-3:] == ["1.0M", "16.5", "s"]
    assert any(line.split()[:2] == ["two", "broken"] for line in lines)
    assert lines[-1].startswith("two (broken): ")


def test_a_recommender_stands_beside_the_others(tmp_path: Path) -> None:
    make_run(str(tmp_path), "trees", model="xgboost")
    going = RunDirectory.create(str(tmp_path / "going"), run="going", config={"model": "factorization"})
    done = RunDirectory.create(str(tmp_path / "done"), run="done", config={"model": "factorization"})
    metrics = {"eval-rmse": 0.9, "eval-ndcg@10": 0.25}
    done.finish({**RESULT, "learner": "factorization", "rounds": 20, "pairs": 10, "metrics": metrics})
    done.close()
    result = CliRunner().invoke(runs, [str(tmp_path)])
    going.close()
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert lines["done"][:4] == ["eval-rmse", "0.90000", "factorization", "finished"]
    assert lines["going"][:2] == ["factorization", "running"]
    assert lines["trees"][:3] == ["eval-auc", "0.84000", "xgboost"]


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
        ({}, ""),
    ],
)
def test_of_a_recommender_only_the_metric_that_decides_is_shown(
    metrics: dict[str, float], shown: str, tmp_path: Path
) -> None:
    directory = RunDirectory.create(str(tmp_path / "one"), run="one")
    directory.finish({**RESULT, "learner": "factorization", "metrics": metrics})
    directory.close()
    result = CliRunner().invoke(runs, [str(tmp_path)])
    assert result.stdout.splitlines()[1].partition("finished")[0].split() == ["one", *shown.split()]


def test_no_runs_here_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(runs, ["."]).stderr.startswith("No runs here. Make one")


def test_no_runs_yet_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(runs, [])
    assert (result.exit_code, result.stdout) == (0, "")
    assert "dray train" in result.stderr
    assert json.loads(CliRunner().invoke(runs, ["--json"]).stdout) == {"runs": [], "differing": []}


def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(runs, [str(tmp_path / "nowhere")])
    assert isinstance(result.exception, StorageError)


def test_what_differs_between_the_listed_runs_is_shown_and_nothing_else(tmp_path: Path) -> None:
    same = {"label": "price", "rounds": 100, "out": "somewhere", "seed": 1, "split_seed": 1}
    make_run(str(tmp_path), "deep", **same, params={"max_depth": 8, "eta": 0.3}, data=["/long/way/to/houses.csv"])
    make_run(str(tmp_path), "flat", **same, params={"max_depth": 2, "eta": 0.3}, data=["/long/way/to/flats.csv"])
    header, *lines = CliRunner().invoke(runs, [str(tmp_path)]).stdout.splitlines()
    assert "differs" in header
    shown = {line.split()[0]: line for line in lines}
    assert "max_depth 8, data houses.csv" in shown["deep"] or "data houses.csv, max_depth 8" in shown["deep"]
    assert "max_depth 2" in shown["flat"] and "price" in shown["flat"]
    assert "eta" not in "".join(lines) and "rounds" not in "".join(lines)
    document = json.loads(CliRunner().invoke(runs, [str(tmp_path), "--json"]).stdout)
    assert set(document["differing"]) == {"max_depth", "data"}
    [deep] = [run for run in document["runs"] if run["name"] == "deep"]
    assert (deep["label"], deep["parameters"]["eta"]) == ("price", 0.3)


def test_a_list_of_runs_with_long_names_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for depth in (2, 8):
        params = {"max_depth": depth, "min_child_weight": depth / 7}
        make_run(str(tmp_path), f"20261116-01450{depth}-3f2a91c0", label="a_rather_long_label", params=params)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(runs, [str(tmp_path)]).stdout).splitlines()
    assert max(map(len, lines)) <= 100
    text = "".join("".join(lines).split())
    assert all(f"20261116-01450{depth}-3f2a91c0" in text for depth in (2, 8)) and "0.84000" in text


def test_what_differs_is_shown_on_a_terminal_of_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"20261116-01450{depth}-3f2a91c0" for depth in (2, 8)]
    for depth, name in zip((2, 8), names, strict=True):
        make_run(str(tmp_path), name, label="a_rather_long_label", params={"max_depth": depth})
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(runs, [str(tmp_path)]).stdout).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(f"{name} a_rather_… eval-auc 0.84000 finished" in "\n".join(lines) for name in names)
    assert {f"{names[0]}: max_depth 2", f"{names[1]}: max_depth 8"} <= set(lines)


class TestDiff:
    def test_what_was_asked_and_what_came_of_it_stand_side_by_side(self, tmp_path: Path) -> None:
        make_run(str(tmp_path), "a", label="y", params={"max_depth": 8})
        make_run(str(tmp_path), "b", label="y", params={"max_depth": 2}, seed=7)
        RunDirectory.create(f"{tmp_path}/c", run="c", config={"label": "y"}).fail("No space.")
        both = [f"{tmp_path}/a", f"{tmp_path}/b"]
        out = CliRunner().invoke(runs, ["diff", *both]).stdout
        assert re.search(r"max_depth +8 +2", out) and re.search(r"seed +- +7", out)
        assert re.search(r"data +nothing differs", out) and re.search(r"outcome +nothing differs", out)
        document = json.loads(CliRunner().invoke(runs, ["diff", *both, "--json"]).stdout)
        assert {"section": "configuration", "what": "max_depth", "a": 8, "b": 2} in document["differences"]
        out = CliRunner().invoke(runs, ["diff", both[0], f"{tmp_path}/c"]).stdout
        assert re.search(r"status +finished +failed", out)

    def test_other_data_is_told_by_file(self, tmp_path: Path) -> None:
        for name, digest in (("a", "1111"), ("b", "2222")):
            make_run(str(tmp_path), name)
            files = {"x.parquet": {"footer": digest, "stamp": [], "content": None}}
            document = {"train": [["x.parquet", 10, 99]], "eval": [], "files": files, "copies": {}}
            (tmp_path / name / "data.json").write_text(json.dumps(document))
        out = CliRunner().invoke(runs, ["diff", f"{tmp_path}/a", f"{tmp_path}/b"]).stdout
        assert re.search(r"train x\.parquet +10 rows, 1111 +10 rows, 2222", out)

    def test_nothing_is_said_as_well(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            make_run(str(tmp_path), name, label="y")
        both = [f"{tmp_path}/a", f"{tmp_path}/latest"]
        assert "nothing differs" in CliRunner().invoke(runs, ["diff", *both]).stdout
        assert json.loads(CliRunner().invoke(runs, ["diff", *both, "--json"]).stdout)["differences"] == []

    def test_a_directory_of_that_name_can_be_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        make_run("diff", "one")
        assert "one" in CliRunner().invoke(runs, ["./diff"]).stdout


class TestRm:
    def test_a_run_is_removed_and_what_is_not_its_own_stays_and_is_told(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            make_run(str(tmp_path), name)
        (tmp_path / "b/notes").mkdir()
        (tmp_path / "b/notes/mine.txt").write_text("mine")
        (tmp_path / "b/model.ubj").symlink_to(tmp_path / "b/notes/mine.txt")
        done = CliRunner().invoke(runs, ["rm", f"{tmp_path}/a", f"{tmp_path}/b/", "--yes", "--json"])
        assert json.loads(done.stdout)["removed"] == [
            {"run": f"{tmp_path}/a", "stays": []},
            {"run": f"{tmp_path}/b", "stays": ["model.ubj", "notes/mine.txt"]},
        ]
        assert f"{tmp_path}/b/notes/mine.txt" in done.stderr
        left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
        assert left == {"b", "b/model.ubj", "b/notes", "b/notes/mine.txt"}

    def test_without_a_terminal_it_wants_yes(self, tmp_path: Path) -> None:
        make_run(str(tmp_path), "a")
        refused = CliRunner().invoke(runs, ["rm", f"{tmp_path}/a"])
        assert isinstance(refused.exception, ConfigError) and "--yes" in refused.exception.fix
        assert (tmp_path / "a/run.json").exists()

    def test_on_a_terminal_it_asks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make_run(str(tmp_path), "a")
        monkeypatch.setattr("dray.cli.asking.is_terminal", lambda: True)
        assert CliRunner().invoke(runs, ["rm", f"{tmp_path}/a"], input="n\n").exit_code == 1
        assert (tmp_path / "a/run.json").exists()
        assert CliRunner().invoke(runs, ["rm", f"{tmp_path}/a"], input="y\n").exit_code == 0
        assert not (tmp_path / "a").exists()

    def test_one_that_runs_a_link_and_what_is_no_run_are_refused_before_anything_goes(self, tmp_path: Path) -> None:
        make_run(str(tmp_path), "a")
        going = RunDirectory.create(f"{tmp_path}/going")
        (tmp_path / "link").symlink_to(tmp_path / "a")
        (tmp_path / "other").mkdir()
        for name, why in (("going", "is running"), ("link", "is a link"), ("other", "is not a run")):
            refused = CliRunner().invoke(runs, ["rm", f"{tmp_path}/a", f"{tmp_path}/{name}", "--yes"])
            assert isinstance(refused.exception, DrayError) and why in refused.exception.what
        going.close()
        assert (tmp_path / "a/run.json").exists()

    def test_of_a_bucket(self, s3_server: S3Server) -> None:
        make_run(s3_server.url("one"), "a")
        make_run(s3_server.url("two"), "b")
        write_atomically(s3_server.url("two/b/mine"), DEFAULT, lambda file: file.write(b"mine"))
        done = CliRunner().invoke(runs, ["rm", s3_server.url("one/a"), s3_server.url("two/b"), "--yes", "--json"])
        assert done.exception is None, done.exception
        assert [run["stays"] for run in json.loads(done.stdout)["removed"]] == [[], ["mine"]]
        assert {path.name for path in s3_server.directory.rglob("*") if path.is_file()} == {"mine"}


def test_a_run_that_is_named_twice_is_removed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        make_run("runs", name)
    done = CliRunner().invoke(runs, ["rm", "a", "./runs/a", "runs/a/", f"{tmp_path}/runs/a", "b", "--yes", "--json"])
    assert [one["run"] for one in json.loads(done.stdout)["removed"]] == ["runs/a", "runs/b"]
    assert not list(Path("runs").iterdir())


def test_a_damaged_run_is_not_removed_and_the_hint_does_not_speak_of_training(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.json").write_text("{")
    done = CliRunner().invoke(runs, ["rm", str(tmp_path / "broken"), "--yes"])
    assert isinstance(done.exception, DrayError)
    assert "only what it knows" in done.exception.fix
    assert (tmp_path / "broken/run.json").exists()
