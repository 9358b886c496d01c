"""Workers that are there and of no use: frozen, frozen and awake again, short of memory, or raising."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from chaos.conftest import ROWS
from chaos.scene import OFTEN, ROUNDS, Fault, Scene, wait_until

MIDDLE = ROUNDS // 2
NOTICED_S = 10.0


@pytest.mark.parametrize(("moment", "worker"), [("load", 1), ("join", 0), ("round", 1)])
def test_a_frozen_worker_is_replaced(scene: Scene, undisturbed: str, moment: str, worker: int) -> None:
    fault = Fault("stop", moment, worker, MIDDLE if moment == "round" else None)
    run = scene.train(faults=[fault])
    [strike] = scene.faults.wait()
    lost = run.wait_event("worker_lost")
    assert lost["worker"] == worker
    assert lost["pid"] == strike.pid
    assert "not answered" in lost["cause"]
    assert lost["noticed_after_s"] <= NOTICED_S
    assert lost["time"] - strike.time <= NOTICED_S
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 1
    assert [event["worker"] for event in run.events("reload")] == ([worker] if moment != "load" else [])


def test_a_frozen_worker_that_wakes_up_after_it_was_replaced_does_no_harm(scene: Scene, undisturbed: str) -> None:
    # The others wait in a later round till the sleeper is awake.
    faults = [Fault("stop", "round", 1, MIDDLE), Fault("wait", "round", 0, MIDDLE + 2)]
    run = scene.train("--heartbeat", "2", faults=faults)
    [sleeper] = scene.faults.wait()
    run.wait_event("recovered", timeout_s=90)
    scene.faults.wait(fault=1)
    if psutil.pid_exists(sleeper.pid):  # Ray may have ended it meanwhile, frozen as it was
        os.kill(sleeper.pid, signal.SIGCONT)
    wait_until(lambda: not psutil.pid_exists(sleeper.pid), 20, "the sleeper is awake and lives on")
    scene.faults.release(fault=1)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 1
    assert len(run.events("ring")) == 2


def test_a_sleeper_that_wakes_up_before_its_time_is_not_replaced(scene: Scene, undisturbed: str) -> None:
    run = scene.train(faults=[Fault("stop", "round", 1, MIDDLE)])
    [sleeper] = scene.faults.wait()
    wait_until(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED, 5, "it does not sleep")
    os.kill(sleeper.pid, signal.SIGCONT)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 0


def test_the_memory_monitor_of_ray_ends_a_worker(scene: Scene, undisturbed: str) -> None:
    memory = psutil.virtual_memory()
    threshold = (memory.total - memory.available + (1 << 30)) / memory.total
    env = {"RAY_memory_usage_threshold": f"{threshold:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    run = scene.train(faults=[Fault("hog", "round", 1, MIDDLE)], constants=OFTEN, env=env)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    lost = run.events("worker_lost")
    assert 1 <= len(lost) == result["failures"]
    assert "memory monitor" in lost[0]["cause"]


@pytest.mark.parametrize("moment", ["load", "restore", "round", "copy"])
def test_a_worker_that_raises_is_replaced(scene: Scene, undisturbed: str, moment: str) -> None:
    worker = 0 if moment == "copy" else 1
    run = scene.train(faults=[Fault("raise", moment, worker)], constants=OFTEN)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 1
    [lost] = run.events("worker_lost")
    assert lost["worker"] == worker
    assert "a fault of the test" in lost["cause"]
    assert "Traceback" in lost["detail"]
    assert [(event["worker"], event["rows"]) for event in run.events("reload")] == (
        [(worker, ROWS // 2)] if moment != "load" else []
    )


def test_a_worker_that_always_raises_in_the_same_round_stops_the_run_which_can_be_resumed(
    scene: Scene, undisturbed: str
) -> None:
    always = Fault("raise", "round", 1, MIDDLE, times=100)
    run = scene.train("--max-failures-in-round", "2", faults=[always])
    assert run.wait() == 1
    assert len(scene.faults.strikes()) == 3
    assert f"round {MIDDLE}" in run.stderr
    assert "a fault of the test" in run.stderr
    assert "dray resume" in run.stderr
    [failed] = run.events("run_failed")
    assert failed["status"] == "stopped"
    scene.wait_for_nobody()
    assert Path(run.directory, "checkpoints", "latest.json").exists()

    again = scene.resume()
    result = again.finish()
    assert result["model_digest"] == undisturbed
    assert [event["round"] for event in again.events("resumed")] == [MIDDLE - 1]
    assert [event["round"] for event in again.events("round")] == list(range(1, ROUNDS + 1))
