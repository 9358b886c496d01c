"""What `--on-failure` says is done when a worker is lost."""

from __future__ import annotations

from pathlib import Path

from chaos.conftest import ROWS
from chaos.scene import ROUNDS, Fault, Scene

MIDDLE = ROUNDS // 2


def test_stop_ends_with_a_checkpoint_to_go_on_from(scene: Scene, undisturbed: str) -> None:
    run = scene.train("--on-failure", "stop", faults=[Fault("kill", "round", 1, MIDDLE)])
    assert run.wait() == 1
    assert "on_failure: stop" in run.stderr
    assert "process ended unexpectedly" in run.stderr
    assert "dray resume" in run.stderr
    assert run.events("run_failed")[0]["status"] == "stopped"
    assert len(run.events("worker_started")) == 2
    assert Path(run.directory, "checkpoints", "latest.json").exists()
    scene.wait_for_nobody()

    again = scene.resume()
    result = again.finish()
    assert result["model_digest"] == undisturbed
    assert again.events("resumed")[0]["round"] == MIDDLE - 1
    assert not Path(run.directory, "checkpoints").exists()


def test_restart_begins_with_new_workers(scene: Scene, undisturbed: str) -> None:
    run = scene.train("--on-failure", "restart", faults=[Fault("kill", "round", 1, MIDDLE)])
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 1
    assert result["rows_reloaded"] == ROWS
    started = run.events("worker_started")
    assert sorted(event["worker"] for event in started) == [0, 0, 1, 1]
    assert len({event["pid"] for event in started}) == 4
    assert [event["round"] for event in run.events("ring")] == [0, MIDDLE - 1]


def test_shrink_goes_on_with_the_others(scene: Scene, undisturbed: str) -> None:
    run = scene.train("--on-failure", "shrink", "--workers", "3", faults=[Fault("kill", "round", 2, MIDDLE)])
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 1
    assert len(run.events("worker_started")) == 3
    assert [event["workers"] for event in run.events("ring")] == [3, 2]
    # They take over the lost rows, and keep their own.
    assert {event["worker"] for event in run.events("reload")} == {0, 1}
    assert result["rows_reloaded"] == ROWS // 3
    assert run.events("worker_lost")[0]["time"] <= run.events("recovered")[0]["time"]


def test_shrink_down_to_one(scene: Scene, undisturbed: str) -> None:
    faults = [Fault("kill", "round", 0, 3), Fault("kill", "round", 2, MIDDLE)]
    run = scene.train("--on-failure", "shrink", "--workers", "3", faults=faults)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert [event["workers"] for event in run.events("ring")] == [3, 2, 1]
    assert ROWS // 3 <= result["rows_reloaded"] <= ROWS


def test_too_many_failures_stop_the_run(scene: Scene, undisturbed: str) -> None:
    faults = [Fault("kill", "round", 1, number) for number in (2, 4, 6)]
    run = scene.train("--max-failures", "1", faults=faults)
    assert run.wait() == 1
    assert len(run.events("worker_lost")) == 2
    assert "dray resume" in run.stderr
    scene.wait_for_nobody()
    assert scene.resume("--workers", "1").finish()["model_digest"] == undisturbed
