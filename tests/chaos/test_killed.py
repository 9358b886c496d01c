"""A worker's process is killed at every moment of a run: another one takes its place, and the model is the same."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.conftest import ROWS
from chaos.scene import OFTEN, ROUNDS, Fault, Scene, kill
from dray_process import DrayProcess

NOTICED_S = 1.0
MIDDLE = ROUNDS // 2


def check_story(run: DrayProcess, scene: Scene, result: dict[str, Any], digest: str, lost: int = 1) -> None:
    """What must hold after every kill, whenever it was."""
    assert result["model_digest"] == digest
    assert result["failures"] == lost == len(run.events("worker_lost"))
    for event, strike in zip(run.events("worker_lost"), scene.faults.strikes(), strict=False):
        assert "process ended unexpectedly" in event["cause"]
        assert event["noticed_after_s"] >= 0
        assert event["time"] - strike.time <= NOTICED_S
    # A reload that is told may be lost with its worker.
    assert result["rows_reloaded"] <= sum(event["rows"] for event in run.events("reload"))
    assert [event["round"] for event in run.events("round")] == list(range(1, ROUNDS + 1))


def reloaded(run: DrayProcess) -> dict[int, int]:
    """Rows that each worker had to load again."""
    rows: dict[int, int] = {}
    for event in run.events("reload"):
        rows[event["worker"]] = rows.get(event["worker"], 0) + event["rows"]
    return rows


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("moment", ["start", "load"])
def test_before_training(scene: Scene, undisturbed: str, moment: str, worker: int) -> None:
    run = scene.train(faults=[Fault("kill", moment, worker)])
    result = run.finish()
    check_story(run, scene, result, undisturbed)
    [lost] = run.events("worker_lost")
    assert (lost["worker"], lost["phase"], lost["round"]) == (worker, moment, 0)


@pytest.mark.parametrize(
    ("moment", "worker", "round_"),
    [
        ("restore", 1, None),
        ("join", 0, None),
        ("join", 1, None),
        ("round", 0, 1),
        ("round", 0, MIDDLE),
        ("round", 1, MIDDLE),
        ("evaluate", 0, MIDDLE),
        ("evaluate", 1, MIDDLE),
        ("copy", 0, MIDDLE),
        ("round", 1, ROUNDS),
        ("evaluate", 1, ROUNDS),
    ],
)
def test_in_training(scene: Scene, undisturbed: str, moment: str, worker: int, round_: int | None) -> None:
    run = scene.train(faults=[Fault("kill", moment, worker, round_)], constants=OFTEN)
    result = run.finish()
    check_story(run, scene, result, undisturbed)
    [lost] = run.events("worker_lost")
    assert (lost["worker"], lost["phase"]) == (worker, "train")
    # The survivor keeps its rows; the replacement loads those of the lost worker, and nothing else is loaded.
    assert reloaded(run) == {worker: ROWS // 2}
    assert result["rows_reloaded"] == ROWS // 2
    assert result["seconds"]["recovery"] > 0
    if round_ is not None:
        assert round_ - 1 <= run.events("ring")[1]["round"] <= round_


def test_while_it_hands_a_checkpoint_over(scene: Scene, undisturbed: str) -> None:
    # The other one waits, or the training would be over before the driver asks for a copy.
    faults = [Fault("kill", "hand over", 0), Fault("wait", "round", 1, MIDDLE)]
    run = scene.train(faults=faults, constants=OFTEN)
    scene.faults.wait(fault=0)
    scene.faults.release(fault=1)
    result = run.finish()
    check_story(run, scene, result, undisturbed)
    assert reloaded(run) == {0: ROWS // 2}


def test_while_it_hands_the_last_model_over(scene: Scene, undisturbed: str) -> None:
    run = scene.train(faults=[Fault("kill", "checkpoint")])
    result = run.finish()
    check_story(run, scene, result, undisturbed)
    assert reloaded(run) == {}  # the other one has it as well
    assert len(run.events("ring")) == 1


def test_two_at_once(scene: Scene, undisturbed: str) -> None:
    both = [Fault("wait", "round", 1, MIDDLE), Fault("wait", "round", 2, MIDDLE)]
    run = scene.train("--workers", "3", faults=both)
    kill(*(scene.faults.wait(fault=fault)[0].pid for fault in (0, 1)))
    result = run.finish()
    check_story(run, scene, result, undisturbed, lost=2)
    assert reloaded(run) == {1: ROWS // 3, 2: ROWS // 3}


def test_every_worker_at_once(scene: Scene, undisturbed: str) -> None:
    run = scene.train(faults=[Fault("wait", "round", round=MIDDLE, times=2)], constants=OFTEN)
    strikes = scene.faults.wait(times=2)
    run.wait_event("checkpoint", lambda event: event["round"] == MIDDLE - 1)  # the driver has the model
    kill(*(strike.pid for strike in strikes))
    result = run.finish()
    check_story(run, scene, result, undisturbed, lost=2)
    assert run.events("ring")[1]["round"] == MIDDLE - 1
    assert reloaded(run) == {0: ROWS // 2, 1: ROWS // 2}


def test_the_same_worker_again_and_again(scene: Scene, undisturbed: str) -> None:
    rounds = [2, MIDDLE, ROUNDS]
    run = scene.train(faults=[Fault("kill", "round", 1, number) for number in rounds])
    result = run.finish()
    check_story(run, scene, result, undisturbed, lost=3)
    assert {event["worker"] for event in run.events("worker_lost")} == {1}
    assert reloaded(run) == {1: 3 * ROWS // 2}


def test_again_and_again_in_the_same_round(scene: Scene, undisturbed: str) -> None:
    run = scene.train(faults=[Fault("kill", "round", 1, MIDDLE, times=2)])
    result = run.finish()
    check_story(run, scene, result, undisturbed, lost=2)
    assert reloaded(run) == {1: 2 * ROWS // 2}


@pytest.mark.parametrize("moment", ["start", "load", "join"])
def test_its_replacement_as_well(scene: Scene, undisturbed: str, moment: str) -> None:
    run = scene.train(faults=[Fault("wait", "round", 1, MIDDLE)])
    [strike] = scene.faults.wait()
    scene.faults.plan([Fault("kill", moment, 1)])  # for those that start from now on
    kill(strike.pid)
    result = run.finish()
    check_story(run, scene, result, undisturbed, lost=2)
    assert set(reloaded(run)) == {1}
    assert result["rows_reloaded"] == (ROWS // 2 if moment in ("start", "load") else ROWS)
