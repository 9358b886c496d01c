"""`latest`, parts of a date, and names that `dray runs` shows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dray.errors import ConfigError, ModelError
from dray.runs.directory import RunDirectory
from dray.runs.naming import Names, dated
from dray.storage import DEFAULT, StorageOptions
from s3_server import S3Server

NOON = datetime(2026, 11, 8, 12, 30).astimezone()


def make_run(location: str, status: str = "finished", options: StorageOptions = DEFAULT) -> None:
    run = RunDirectory.create(location, options)
    if status == "finished":
        run.finish({})
    elif status == "stopped":
        run.interrupt("Ctrl-C")
    run.close()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nightly/%Y-%m-%d", "nightly/2026-11-08"),
        ("s3://bucket/%Y/%j/%H%M", "s3://bucket/2026/312/1230"),
        ("%Y-100%%", "2026-100%"),
        ("plain/name", "plain/name"),
        ("100%", "100%"),
        ("50%_off", "50%_off"),
        ("100%%d", "100%%d"),
    ],
)
def test_parts_of_a_date_are_filled_in_only_where_there_are_any(name: str, meant: str) -> None:
    assert dated(name, NOON) == meant


@pytest.mark.parametrize("name", ["%Y-%Q", "%Y-%", "%Y/%D"])
def test_a_part_that_is_none_beside_one_that_is_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not a part of a date") as caught:
        dated(name, NOON)
    assert "%%" in caught.value.fix


def test_all_names_of_a_command_are_of_one_moment() -> None:
    told: list[tuple[str, str]] = []
    names = Names(tell=lambda *pair: told.append(pair), now=NOON)
    assert (names.output("a/%H%M%S"), names.finished("b-%S")) == ("a/123000", "b-00")
    assert told == [("a/%H%M%S", "a/123000"), ("b-%S", "b-00")]


class TestLatest:
    @pytest.fixture(autouse=True)
    def runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name, status in (("c", "stopped"), ("b", "finished"), ("a", "finished"), ("d", "stopped")):
            make_run(f"runs/{name}", status)

    def test_is_the_newest_finished_run(self) -> None:
        told: list[tuple[str, str]] = []
        assert Names(tell=lambda *pair: told.append(pair)).finished("latest") == "runs/a"
        assert told == [("latest", "runs/a")]

    def test_to_be_resumed_is_the_newest_unfinished_one(self) -> None:
        assert Names().unfinished("latest") == "runs/d"

    def test_of_a_directory_is_below_that(self, tmp_path: Path) -> None:
        assert Names().finished(f"{tmp_path}/runs/latest/") == f"{tmp_path}/runs/a"
        assert Names(now=NOON).output("runs/latest") == "runs/latest"  # something new may have that name

    def test_that_is_on_disk_comes_first(self) -> None:
        make_run("runs/latest")
        assert Names().finished("runs/latest") == "runs/latest"
        Path("latest").mkdir()
        assert Names().finished("latest") == "latest"

    def test_without_such_a_run_says_where_it_looked(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for name in ("empty/latest", "nowhere/latest"):
            with pytest.raises(ModelError, match="there is no finished run") as caught:
                Names().finished(name)
            assert "dray runs " + name.partition("/")[0] in caught.value.fix

    def test_a_name_that_dray_runs_shows_is_that_run(self) -> None:
        assert Names().finished("b") == "runs/b"
        Path("b").mkdir()
        assert Names().finished("b") == "b"
        assert Names().finished("nothing") == "nothing"


def test_latest_of_a_bucket(s3_server: S3Server) -> None:
    for name in ("one", "two"):
        make_run(s3_server.url(f"runs/{name}"))
    assert Names().finished(s3_server.url("runs/latest")) == s3_server.url("runs/two")


def test_a_directory_that_has_a_percent_sign_in_its_name_is_that_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("100%done").mkdir()
    assert Names(now=NOON).finished("100%done") == "100%done"


@pytest.mark.parametrize("ended", ["fail", "interrupt"])
def test_the_latest_to_resume_is_one_that_failed_or_was_stopped_and_never_a_finished_one(
    ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, end in (("a", lambda run: getattr(run, ended)("why")), ("b", lambda run: run.finish({}))):
        directory = RunDirectory.create(f"runs/{name}", run=name, config={})
        end(directory)
        directory.close()
    assert Names().unfinished("latest") == "runs/a"
    assert Names().finished("latest") == "runs/b"
