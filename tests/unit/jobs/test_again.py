"""A job that is tried again goes on with its own run, and touches no other."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import datasets
from dray.cli.main import main
from dray.clusters.kubernetes import render
from dray.clusters.kubernetes.settings import Settings
from dray.config.run_file import RunConfig
from dray.errors import StorageError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.jobs import again
from dray.jobs.again import is_earlier_try, train_or_go_on
from dray.learners.configs import make_config
from dray.runs import alive
from dray.training.train import train

JOB = "kubernetes/default/train-a"


class Killed:
    """A sink that ends the run after its third round."""

    def event(self, event: Event) -> None:
        if event.kind == "round" and event.data["round"] >= 3:
            raise SystemExit(143)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    data = datasets.write(tmp_path / "data", datasets.binary(300))
    usual = {"data": data, "label": "label", "ignore": ["id", "weight"], "workers": 0, "threads": 1, "cluster": "auto"}
    return usual | {"rounds": 8, "out": str(tmp_path / "run")}


def first_try(config: RunConfig, job: str = JOB) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        train(config, [Killed()], job=job)
    return stored(config)


def stored(config: RunConfig) -> dict[str, Any]:
    return dict(json.loads((Path(str(config.out)) / "run.json").read_text()))


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_the_command_of_a_rayjob_goes_on_with_the_run_of_the_try_before(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(make_config(values | {"out": "whole"}))
    first = first_try(make_config(values))
    monkeypatch.setattr(render, "RUN_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(render.rules, "check_run", lambda *_, **__: None)  # which refuses a path of a pod's own disk
    config, job = render.render_job(Settings(), values, name="train-a")
    (tmp_path / "run.yaml").write_text(config["data"]["run.yaml"])
    assert yaml.safe_load(config["data"]["run.yaml"])["out"] == values["out"]
    dray, *arguments = shlex.split(job["spec"]["entrypoint"])
    assert (dray, main(arguments)) == ("dray", 0)
    second = stored(make_config(values))
    assert (second["run"], second["status"], second["resumed"]) == (first["run"], "finished", 1)
    assert json.loads(capsys.readouterr().out)["model_digest"] == whole.to_json()["model_digest"]


def test_a_try_after_one_that_finished_gives_its_result(values: dict[str, Any]) -> None:
    config = make_config(values)
    done = train_or_go_on(config, job=JOB)
    before = files(Path(values["out"]))
    assert train_or_go_on(config, job=JOB).to_json() == done.to_json()
    assert files(Path(values["out"])) == before


@pytest.mark.parametrize("job", ["kubernetes/default/train-b", "kubernetes/other/train-a", "dray-1"])
def test_the_run_of_another_job_is_refused_and_stays_as_it_is(values: dict[str, Any], job: str) -> None:
    first_try(make_config(values), job=job)
    before = files(Path(values["out"]))
    with pytest.raises(StorageError, match="exists and is not empty"):
        train_or_go_on(make_config(values), job=JOB)
    assert files(Path(values["out"])) == before


def test_a_run_that_was_asked_for_otherwise_is_not_gone_on_with(values: dict[str, Any]) -> None:
    document = first_try(make_config(values))
    assert is_earlier_try(document, make_config(values | {"cluster": "local"}), JOB)
    assert not is_earlier_try(document, make_config(values | {"rounds": 9}), JOB)
    assert not is_earlier_try({**document, "job": None}, make_config(values), JOB)
    assert not is_earlier_try({**document, "config": None}, make_config(values), JOB)


def age(place: Path, seconds: float) -> None:
    for path in place.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_try_that_left_nothing_to_resume_is_begun_anew(values: dict[str, Any]) -> None:
    place = Path(values["out"])
    place.mkdir()
    for name in ("alive", "events.jsonl", ".run.json.1a2b3c4d.tmp"):
        (place / name).write_text("" if name == "events.jsonl" else "{}")
    age(place, 1000)
    train_or_go_on(make_config(values), job=JOB)
    assert stored(make_config(values))["status"] == "finished"


@pytest.mark.parametrize("name", ["notes.txt", "model.ubj", "events.jsonl"])
def test_files_that_are_not_the_beginning_of_a_run_are_never_removed(values: dict[str, Any], name: str) -> None:
    place = Path(values["out"])
    place.mkdir()
    (place / "alive").write_text("{}")
    (place / name).write_text("{}")
    age(place, 1000)
    with pytest.raises(StorageError, match="exists and is not empty"):
        train_or_go_on(make_config(values), job=JOB)
    assert sorted(path.name for path in place.iterdir()) == sorted(["alive", name])


def test_a_try_waits_until_the_one_before_counts_as_lost(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = first_try(make_config(values))
    place = Path(values["out"])
    # As a machine leaves it that was switched off a moment ago.
    document |= {"status": "running", "process": document["process"] | {"host": "gone"}}
    (place / "run.json").write_text(json.dumps(document))
    (place / "alive").write_text(json.dumps({"time": time.time()}))
    monkeypatch.setattr(alive, "LOST_AFTER_S", 0.5)
    monkeypatch.setattr(again, "LOOK_S", 0.1)
    train_or_go_on(make_config(values), job=JOB)
    assert stored(make_config(values))["status"] == "finished"


def test_a_run_keeps_the_word_for_its_cluster_and_its_job(values: dict[str, Any]) -> None:
    config = make_config(values)
    train_or_go_on(config, job="dray-1", cluster="http://head:8265")
    assert stored(config)["config"]["cluster"] == "http://head:8265"
    assert stored(config)["job"] == "dray-1"
