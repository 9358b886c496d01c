"""The driver is killed, interrupted, terminated or stopped for a while: no process stays, and the model is the same."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from chaos.scene import OFTEN, ROUNDS, Fault, Scene, kill
from dray_process import DrayProcess

MIDDLE = ROUNDS // 2


def held_in_the_middle(scene: Scene, *flags: str) -> DrayProcess:
    """Start a run whose workers wait in a round, with a checkpoint of the round before it."""
    run = scene.train(*flags, faults=[Fault("wait", "round", round=MIDDLE, times=2)], constants=OFTEN)
    scene.faults.wait(times=2)
    run.wait_event("checkpoint", lambda event: event["round"] == MIDDLE - 1)
    return run


def refused(scene: Scene, text: str) -> None:
    """Resuming is an error that says so, and changes nothing."""
    again = scene.resume()
    assert again.wait() == 2
    assert text in again.stderr


def test_killed_in_training(scene: Scene, undisturbed: str) -> None:
    scene.data = shutil.copytree(scene.data, scene.cwd / "data")
    run = held_in_the_middle(scene)
    refused(scene, "is still running")
    kill(run.pid)
    run.wait()
    scene.wait_for_nobody()

    more = Path(scene.data, "more.parquet")
    shutil.copyfile(Path(scene.data, "rows.parquet"), more)
    refused(scene, "more.parquet is new")
    more.unlink()

    again = scene.resume()
    result = again.finish()
    assert result["model_digest"] == undisturbed
    assert again.events("resumed")[-1]["round"] == MIDDLE - 1
    assert result["rounds"] == ROUNDS
    assert [event["round"] for event in again.events("round")] == list(range(1, ROUNDS + 1))
    refused(scene, "is finished")


@pytest.mark.parametrize("moment", ["start", "load"])
def test_killed_before_there_is_a_checkpoint(scene: Scene, undisturbed: str, moment: str) -> None:
    run = scene.train(faults=[Fault("wait", moment)])
    scene.faults.wait()
    kill(run.pid)
    run.wait()
    scene.wait_for_nobody()
    again = scene.resume("--workers", "1")
    assert again.finish()["model_digest"] == undisturbed
    assert again.events("resumed")[-1]["round"] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("group", [False, True], ids=["driver", "group"])
def test_ended_in_training(scene: Scene, undisturbed: str, number: int, code: int, group: bool) -> None:
    run = held_in_the_middle(scene)
    os.killpg(run.pid, number) if group else os.kill(run.pid, number)
    scene.faults.release()
    assert run.wait(30) == code
    assert Path(run.directory, "checkpoints", "latest.json").exists()
    assert run.events("run_failed")[-1]["status"] == "stopped"
    scene.wait_for_nobody()
    assert list(scene.temporary.iterdir()) == []

    again = scene.resume("--workers", "0")
    assert again.finish()["model_digest"] == undisturbed
    assert again.events("resumed")[-1]["round"] >= MIDDLE  # the round that they were in, and not the checkpoint before


@pytest.mark.parametrize(("moment", "group"), [("start", True), ("load", False)])
def test_interrupted_before_training(scene: Scene, undisturbed: str, moment: str, group: bool) -> None:
    run = scene.train(faults=[Fault("wait", moment)])
    scene.faults.wait()
    os.killpg(run.pid, signal.SIGINT) if group else os.kill(run.pid, signal.SIGINT)
    assert run.wait(30) == 130
    scene.wait_for_nobody()
    assert list(scene.temporary.iterdir()) == []
    assert scene.resume("--workers", "0").finish()["model_digest"] == undisturbed


def test_a_driver_that_was_stopped_for_longer_than_the_heartbeat_loses_no_worker(
    scene: Scene, undisturbed: str
) -> None:
    # In the middle of a round, so that the workers have something to wait for.
    run = scene.train("--heartbeat", "3", faults=[Fault("wait", "round", round=MIDDLE, times=2)])
    scene.faults.wait(times=2)
    os.kill(run.pid, signal.SIGSTOP)
    time.sleep(7)  # the test is about this time
    os.kill(run.pid, signal.SIGCONT)
    scene.faults.release()
    result = run.finish()
    assert run.events("worker_lost") == []
    assert result["failures"] == 0
    assert result["model_digest"] == undisturbed
    assert len(run.events("ring")) == 1
