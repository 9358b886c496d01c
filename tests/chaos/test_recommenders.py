"""Workers and the driver of a recommender's training are killed or frozen: it goes on, to the same model."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from chaos.scene import Scene, kill
from dray_process import DrayProcess, start_dray
from rating_files import rated, write

ROWS, USERS, ITEMS = 60_000, 3_000, 800
ROUNDS = 60
COMMON = ["--model", "factorization", "--user", "u", "--item", "i", "--rounds", str(ROUNDS), "--param", "factors=48"]
KINDS = {"explicit": [*COMMON, "--rating", "r", "--eval-fraction", "0.1"], "implicit": [*COMMON, "--event", "e"]}
OFTEN = {
    "dray.learners.factorization.checkpointing:EVERY_S": 0.0,
    "dray.learners.factorization.checkpointing:SHARE": 1.0,
}
"""A checkpoint after nearly every epoch, so that a run of seconds has some."""
SOME = 3
"""Epochs after which something happens."""


class Recommending(Scene):
    """A scene whose runs train a recommender."""

    kind = "explicit"

    def begin(self, *flags: str, constants: Mapping[str, Any] | None = None) -> DrayProcess:
        self.faults.plan([], constants)
        workers = () if "--workers" in flags else ("--workers", "2")
        arguments = ["train", self.data, *KINDS[self.kind], *workers, "--threads", "1", *flags]
        return self._keep(start_dray(arguments, cwd=self.cwd, env=self.environment))


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> str:
    table = rated(ROWS, USERS, ITEMS)
    return write(tmp_path_factory.mktemp("ratings") / "rows.parquet", table, ROWS // 8)


@pytest.fixture(scope="module")
def models(ratings: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digest that every run must come to: that of one process without Ray."""
    digests = {}
    for kind in KINDS:
        alone = Recommending(ratings, tmp_path_factory.mktemp(kind))
        alone.kind = kind
        try:
            digests[kind] = str(alone.begin("--workers", "0").finish()["model_digest"])
        finally:
            alone.end()
    return digests


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, ratings: str, tmp_path: Path) -> Iterator[Recommending]:
    """A scene that must be empty in the end: no process of it lives, and its temporary directory holds nothing."""
    place = Recommending(ratings, tmp_path)
    place.kind = request.param
    try:
        yield place
        if place.is_over:  # else the test has failed already
            place.wait_for_nobody()
            assert [path.name for path in place.temporary.iterdir()] == []
    finally:
        place.end()


def check_story(run: DrayProcess, result: dict[str, Any], digest: str) -> dict[str, Any]:
    """What must hold after every loss of one worker; returns how it was told."""
    assert result["model_digest"] == digest
    [lost] = run.events("worker_lost")
    assert result["failures"] == 1
    assert lost["phase"] == "train" and SOME < lost["round"] <= ROUNDS
    assert [event["round"] for event in run.events("round")] == list(range(1, ROUNDS + 1))
    [reload], [recovered] = run.events("reload"), run.events("recovered")
    assert reload["worker"] == lost["worker"]
    assert 0 < result["rows_reloaded"] == reload["rows"] == recovered["rows_reloaded"] < ROWS
    assert [event["replacement"] for event in run.events("worker_started")] == [False, False, True]
    return lost


@pytest.mark.parametrize("worker", [0, 1])
def test_a_killed_worker_is_replaced(stage: Recommending, models: dict[str, str], worker: int) -> None:
    run = stage.begin()
    run.wait_round(SOME)
    pid = run.workers()[worker]
    kill(pid)
    lost = check_story(run, run.finish(), models[stage.kind])
    assert (lost["worker"], lost["pid"]) == (worker, pid)
    assert "process ended unexpectedly" in lost["cause"]


def test_a_frozen_worker_is_replaced(stage: Recommending, models: dict[str, str]) -> None:
    run = stage.begin("--heartbeat", "2")
    run.wait_round(SOME)
    os.kill(run.workers()[1], signal.SIGSTOP)
    lost = check_story(run, run.finish(), models[stage.kind])
    assert lost["worker"] == 1
    assert "not answered" in lost["cause"]


@pytest.mark.parametrize("stage", ["explicit"], indirect=True)
def test_what_a_worker_is_long_in_making_is_waited_for(stage: Recommending, models: dict[str, str]) -> None:
    run = stage.begin("--heartbeat", "120")
    run.wait_round(SOME)
    os.kill(run.workers()[1], signal.SIGSTOP)
    time.sleep(63)  # longer than Ray, or a worker, would wait by itself
    os.kill(run.workers()[1], signal.SIGCONT)
    result = run.finish()
    assert result["model_digest"] == models[stage.kind]
    assert result["failures"] == 0
    assert [event["round"] for event in run.events("round")] == list(range(1, ROUNDS + 1))
    assert not [event for event in run.events("warning") if "Begun again" in event["message"]]


def test_both_workers_killed_at_once_are_replaced(stage: Recommending, models: dict[str, str]) -> None:
    run = stage.begin()
    run.wait_round(SOME)
    kill(*run.workers().values())
    result = run.finish()
    assert result["model_digest"] == models[stage.kind]
    assert result["failures"] == 2
    assert [event["round"] for event in run.events("round")] == list(range(1, ROUNDS + 1))


def test_a_killed_driver_is_resumed_from_its_checkpoint(stage: Recommending, models: dict[str, str]) -> None:
    run = stage.begin(constants=OFTEN)
    told = run.wait_event("checkpoint", lambda event: event["round"] >= SOME)
    kill(run.pid)
    run.wait()
    stage.wait_for_nobody()
    again = stage.resume("--workers", "1")
    result = again.finish()
    assert result["model_digest"] == models[stage.kind]
    assert ROUNDS > again.events("resumed")[-1]["round"] >= told["round"]
    assert result["rounds"] == ROUNDS


def test_an_interrupted_driver_is_resumed_from_its_last_epoch(stage: Recommending, models: dict[str, str]) -> None:
    run = stage.begin()
    run.wait_round(SOME)
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(30) == 143
    stage.wait_for_nobody()
    done = run.events("round")[-1]["round"]
    again = stage.resume("--workers", "0")
    assert again.finish()["model_digest"] == models[stage.kind]
    assert SOME <= again.events("resumed")[-1]["round"] == done < ROUNDS
    assert not any(psutil.pid_exists(pid) for pid in run.workers().values())


@pytest.mark.parametrize("stage", ["explicit"], indirect=True)
def test_a_driver_is_interrupted_while_no_worker_answers(stage: Recommending) -> None:
    """A wait of Ray's that nothing ends replaces what the signal's handler raises."""
    run = stage.begin("--heartbeat", "60")
    run.wait_round(SOME)
    for pid in run.workers().values():
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2)  # what had been answered before is taken in
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait(30) == 143
    assert run.events("run_failed")[-1]["status"] == "stopped"
