"""`dray cache`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import dray
from dray.cli.cache import cache
from dray.clusters import leftovers
from dray.clusters.scratch import command_files
from dray.errors import ConfigError
from dray.ingesting.copy_files import keep_for
from dray.runs.directory import RunDirectory
from dray.storage import DEFAULT


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tmp", "home", "package/learners/one/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(leftovers, "SHORT", tmp_path / "tmp")
    monkeypatch.setattr(leftovers.dray, "__file__", str(tmp_path / "package/__init__.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def called(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cache, [*arguments, "--json"])
    assert done.exception is None, done.exception
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def make_copy(name: str, hours_ago: float = 2) -> Path:
    """Train on a CSV file: dray makes a copy of it."""
    Path(name).write_text("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(50)))
    before = set(Path("cache/dray").glob("*"))
    dray.train(name, label="y", rounds=1, workers=0, out=f"runs/{name}")
    [copy] = set(Path("cache/dray").glob("*")) - before
    os.utime(copy / "_ingest.json", (time.time() - hours_ago * 3600,) * 2)
    return copy.absolute()


def test_a_copy_is_listed_with_its_source_size_and_age() -> None:
    copy = make_copy("a.csv")
    [found] = called()["kept"]
    assert (found["kind"], found["location"], found["kept_for"]) == ("copy", str(copy), None)
    assert found["what"].endswith("a.csv") and found["bytes"] == sum(path.stat().st_size for path in copy.iterdir())
    assert found["made"] > time.time() - 60 and 7100 < time.time() - found["used"] < 7300
    assert str(copy) in CliRunner().invoke(cache, []).stdout


def test_clear_removes_what_nothing_needs_and_says_how_much() -> None:
    old, new = make_copy("old.csv", hours_ago=24 * 8), make_copy("new.csv")
    assert [found["location"] for found in called("clear", "--older", "7d", "--yes")["removed"]] == [str(old)]
    assert new.exists() and not old.exists()
    assert [found["location"] for found in called("clear", "--yes")["removed"]] == [str(new)]
    assert called()["kept"] == []


def test_a_copy_that_was_used_just_now_stays_unless_it_is_asked_for() -> None:
    copy = make_copy("a.csv", hours_ago=0)
    called("clear", "--yes")
    assert copy.exists()
    called("clear", "--older", "0s", "--yes")
    assert not copy.exists()


def test_a_copy_of_a_run_that_is_not_finished_stays_also_after_another_one_that_is() -> None:
    copy = make_copy("a.csv")
    stopped = RunDirectory.create("runs/stopped")
    keep_for(str(copy), stopped.location, DEFAULT)
    keep_for(str(copy), str(Path("runs/a.csv").absolute()), DEFAULT)  # which is finished
    stopped.interrupt("Ctrl-C")
    stopped.close()
    assert called()["kept"][0]["kept_for"] == f"the run {stopped.location}"
    assert called("clear", "--older", "0s", "--yes")["removed"] == []
    (Path(stopped.location) / "run.json").unlink()
    assert len(called("clear", "--older", "0s", "--yes")["removed"]) == 1


def test_a_run_keeps_its_copy_while_it_trains() -> None:
    copy = make_copy("a.csv")
    assert json.loads((copy / "_kept_for.json").read_text())["run"] == str(Path("runs/a.csv").absolute())


def test_another_file_in_a_cache_is_left_alone() -> None:
    copy = make_copy("a.csv")
    foreign = [copy.parent / "precious.parquet", copy.parent / ("f" * 20) / "precious.parquet"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert len(called("clear", "--older", "0s", "--yes")["removed"]) == 1
    assert all(path.exists() for path in foreign)


def test_temporary_files_kernels_and_clusters_are_listed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    kernel = tmp_path / "package/learners/one/__pycache__/kernels.f-1.py311.1.nbc"
    trace = tmp_path / "tmp/dray-traceback-abcd_123.txt"
    dead, running = tmp_path / "tmp/dray-dead", tmp_path / "tmp/dray-running"
    fresh, old = tmp_path / "tmp/dray-map-abcd_123.memory", tmp_path / "tmp/dray-map-abcd_124.memory"
    cluster = tmp_path / "state/clusters/farm/cluster.json"
    foreign = tmp_path / "tmp/other.txt"
    for path in (kernel, trace, dead / "owner.lock", running / "owner.lock", fresh, old, cluster, foreign):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345678")
    os.utime(old, (1, 1))
    with (running / "owner.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = {entry["location"]: entry for entry in called()["kept"]}
        assert {entry["kind"] for entry in found.values()} == {"temporary", "kernels", "cluster"}
        assert found[str(running)]["kept_for"] == "a process that runs" and found[str(cluster.parent)]["kept_for"]
        called("clear", "--yes")
    assert [path.exists() for path in (kernel, trace, dead, old)] == [False] * 4
    assert all(path.exists() for path in (running, fresh, cluster, foreign))


def test_a_directory_that_is_named_as_dray_names_its_own_is_left_alone(tmp_path: Path) -> None:
    """The output of `dray map ... --out /tmp/dray-map-results`, days old."""
    names = ("dray-map-results", "dray-map-abcd_123", "dray-job-2024", "dray-traceback-abcd_123.txt")
    mine = [tmp_path / "tmp" / name / "a.csv" for name in names]
    mine += [tmp_path / "tmp" / name for name in ("dray-map-mine.csv", "dray-traceback-notes.txt")]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
        for one in (path, path.parent):
            os.utime(one, (1, 1))
    assert called()["kept"] == []
    called("clear", "--older", "0s", "--yes")
    assert all(path.exists() for path in mine)


def test_files_of_a_command_stay_while_it_runs_and_go_when_it_was_killed(tmp_path: Path) -> None:
    with command_files("map") as running:
        (running / "results").write_text("12345678")
        os.utime(running / "results", (1, 1))
        killed = tmp_path / "tmp/dray-job-abcd_123"
        shutil.copytree(running, killed)  # with its lock, which nothing holds
        found = {entry["location"]: entry for entry in called()["kept"]}
        assert {entry["what"] for entry in found.values()} == {"files of a command"}
        assert found[str(running)]["kept_for"] == "a process that runs" and found[str(killed)]["kept_for"] is None
        called("clear", "--yes")
        assert running.exists() and not killed.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_clear_asks_and_without_a_terminal_wants_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = make_copy("a.csv")
    refused = CliRunner().invoke(cache, ["clear"])
    assert isinstance(refused.exception, ConfigError) and "--yes" in refused.exception.fix
    monkeypatch.setattr("dray.cli.asking.is_terminal", lambda: True)
    assert CliRunner().invoke(cache, ["clear"], input="n\n").exit_code == 1
    assert copy.exists()


@pytest.mark.parametrize("age", ["7", "week", "-1d", ""])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    refused = CliRunner().invoke(cache, ["clear", "--older", age, "--yes"])
    assert isinstance(refused.exception, ConfigError) and "7d" in refused.exception.fix


def test_options_before_clear_are_refused_so_that_no_other_cache_is_cleared(tmp_path: Path) -> None:
    copy = make_copy("data.csv")
    done = CliRunner().invoke(cache, ["--cache", str(tmp_path / "other"), "clear", "--older", "0s", "--yes"])
    assert done.exit_code == 2 and "go behind its name" in done.output
    assert copy.exists()


def test_list_is_what_cache_alone_shows(tmp_path: Path) -> None:
    copy = make_copy("data.csv")
    assert called("list")["kept"] == called()["kept"]
    assert [one["location"] for one in called("list")["kept"] if one["kind"] == "copy"] == [str(copy)]
    assert called("list", "--cache", str(tmp_path / "other"))["bytes"] == 0


def test_one_entry_is_told_as_one() -> None:
    make_copy("data.csv")
    done = CliRunner().invoke(cache, ["clear", "--yes"])
    assert "Removed 1 entry, " in done.stderr and "; 0 entries kept" in done.stderr
