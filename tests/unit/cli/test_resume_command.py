"""`dray resume` and the flags about failures: what reaches the run, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import dray
from dray.cli.main import main
from dray.errors import ModelError
from dray.events.sinks.terminal import PlainLines
from dray.events.telemetry import Sink
from dray.jobs.commands import training
from dray.storage import StorageOptions


@dataclass(frozen=True)
class Result:
    """As much of a TrainResult as the command looks at."""

    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"rounds": 100, "failures": 1}


class Resumptions(list[tuple[str, StorageOptions, dict[str, Any], Sequence[Sink]]]):
    """Stands in for `dray.training.resume` and keeps what it was called with."""

    def resume(
        self, location: str, storage: StorageOptions, overrides: dict[str, Any], sinks: Sequence[Sink]
    ) -> Result:
        if location == "nowhere":
            raise ModelError("nowhere is not a run.", fix="Name a run directory.")
        self.append((location, storage, overrides, sinks))
        return Result()


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> Resumptions:
    resumptions = Resumptions()
    module = ModuleType("dray.training.resume")
    module.resume = resumptions.resume  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dray.training.resume", module)
    stored = SimpleNamespace(document={"config": {"cluster": "local"}})
    monkeypatch.setattr(training, "open_run", lambda *_: stored)
    return resumptions


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations that `dray train` was called with."""
    configs: list[Any] = []

    def train(config: Any, sinks: Sequence[Sink] = ()) -> Result:
        configs.append(config)
        return Result()

    module = ModuleType("dray.training.train")
    module.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dray.training.train", module)
    return configs


def test_without_flags_nothing_of_the_run_is_changed(resumed: Resumptions, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "runs/one", "--quiet"]) == 0
    assert resumed == [("runs/one", StorageOptions(), {"cluster": "local"}, [])]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("text", "workers"), [("0", 0), ("3", 3), ("auto", "auto"), ("2-8", {"min": 2, "max": 8})])
def test_flags_are_the_overrides(resumed: Resumptions, text: str, workers: Any) -> None:
    flags = ["--workers", text, "--threads", "2", "--cluster", "auto", "--on-failure", "shrink"]
    store = ["--endpoint", "http://x:9000", "--region", "eu", "--profile", "p"]
    assert main(["resume", "s3://bucket/run", *flags, *store]) == 0
    [(location, storage, overrides, [sink])] = resumed
    assert location == "s3://bucket/run"
    assert storage == StorageOptions("http://x:9000", "eu", "p")
    assert overrides == {"workers": workers, "threads": 2, "cluster": "auto", "on_failure": "shrink"}
    assert isinstance(sink, PlainLines)


def test_the_result_may_be_json(resumed: Resumptions, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "runs/one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rounds": 100, "failures": 1}


def test_a_run_that_cannot_be_resumed_says_why(resumed: Resumptions, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "nowhere"]) == 2
    assert capsys.readouterr().err == "Error: nowhere is not a run.\nFix: Name a run directory.\n"
    assert main(["resume"]) == 2
    assert main(["resume", "runs/one", "--rounds", "5"]) == 2  # the model stays the one that was asked for
    assert "--rounds" in capsys.readouterr().err


def test_help_says_when_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for words in ("Ctrl-C", "last checkpoint", "The data must be the same", "dray train --continue-from"):
        assert words in told


def test_flags_about_failures_reach_the_configuration(asked: list[Any]) -> None:
    flags = ["--on-failure", "restart", "--max-failures", "7", "--max-failures-in-round", "2"]
    seconds = ["--heartbeat", "20", "--wait", "1.5", "--workers", "2-8"]
    assert main(["train", "data", "--label", "y", *flags, *seconds, "--quiet"]) == 0
    [config] = asked
    assert (config.on_failure, config.max_failures, config.max_failures_in_round) == ("restart", 7, 2)
    assert (config.heartbeat_s, config.wait_s) == (20.0, 1.5)
    assert (config.workers.min, config.workers.max) == (2, 8)


def test_flags_about_failures_override_the_run_file(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "data: d\nlabel: y\nworkers: {min: 2, max: 8}\non_failure: stop\nheartbeat_s: 30\n"
    Path("run.yaml").write_text(text)
    assert main(["train", "run.yaml", "--quiet"]) == 0
    assert main(["train", "run.yaml", "--workers", "3", "--on-failure", "elastic", "--quiet"]) == 0
    first, second = asked
    assert (first.workers.max, first.on_failure, first.heartbeat_s) == (8, "stop", 30.0)
    assert (second.workers, second.on_failure, second.heartbeat_s) == (3, "elastic", 30.0)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--workers", "8-2"), '"8-2" is not a range'),
        (("--workers", "0-2"), '"0-2" is not a range'),
        (("--workers", "2-"), "nor a range such as 2-8"),
        (("--workers", "many"), "neither a number"),
        (("--workers", "-1"), "must be a number from 0 on"),
        (("--on-failure", "panic"), "'stop', 'restart', 'shrink', 'elastic'"),
        (("--heartbeat", "0.2"), "greater than or equal to 1"),
        (("--heartbeat", "soon"), "'soon' is not a valid float"),
        (("--wait", "-1"), "greater than or equal to 0"),
        (("--max-failures", "-1"), "greater than or equal to 0"),
        (("--max-failures-in-round", "x"), "'x' is not a valid integer"),
    ],
)
def test_wrong_values_are_refused(
    asked: list[Any], flags: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "data", "--label", "y", *flags]) == 2
    error, fix = capsys.readouterr().err.splitlines()
    assert told in error
    assert fix.startswith("Fix: ")
    assert not asked


def test_predicting_takes_no_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "run", "data", "out", "--workers", "2-8"]) == 2
    assert "neither a number nor auto" in capsys.readouterr().err


def test_the_function_does_as_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = Resumptions()
    monkeypatch.setattr("dray.api._resume", resumed.resume)
    dray.resume("runs/one")
    dray.resume("s3://b/run", workers="2-8", threads=2, cluster="auto", on_failure="stop", region="eu", progress=True)
    first, (location, storage, overrides, sinks) = resumed
    assert first == ("runs/one", StorageOptions(), {}, [])
    assert (location, storage.region, len(sinks)) == ("s3://b/run", "eu", 1)
    assert overrides == {"workers": "2-8", "threads": 2, "cluster": "auto", "on_failure": "stop"}
