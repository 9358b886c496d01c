"""A run's trouble on a cluster that others own: it takes what room there is, and leaves the cluster as it was."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from chaos.conftest import ROWS
from chaos.scene import OFTEN, ROUNDS, Fault, Scene, kill, wait_until
from living import named

MIDDLE = ROUNDS // 2
RAY = str(Path(sys.executable).with_name("ray"))
START_S = 90


class Joined:
    """A scene with a Ray cluster in it, whose processes have the scene's plan of faults too."""

    def __init__(self, scene: Scene, port: int, token: str) -> None:
        self.scene = scene
        self.env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        self.flags = ("--cluster", f"127.0.0.1:{port}")
        self._port = port

    def start_node(self, cpus: int) -> psutil.Process:
        """Start a node of the cluster, the first of them as its head; return its raylet."""
        before = set(self._raylets())
        what = [f"--address=127.0.0.1:{self._port}"]
        if not before:
            what = ["--head", f"--port={self._port}", "--include-dashboard=false", f"--temp-dir={self.scene.temporary}"]
        subprocess.run(
            [
                *(RAY, "start", *what, f"--num-cpus={cpus}"),
                *("--object-store-memory=100000000", "--disable-usage-stats"),
            ],
            env={**self.scene.environment, **self.env},
            capture_output=True,
            check=True,
            timeout=START_S,
        )
        [raylet] = set(self._raylets()) - before
        return raylet

    def stop(self) -> None:
        for process in self.scene.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _raylets(self) -> list[psutil.Process]:
        return named(self.scene.processes(), "raylet")


@contextmanager
def cluster(scene: Scene, cpus: int) -> Iterator[Joined]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    joined = Joined(scene, port, secrets.token_hex(32))
    try:
        joined.start_node(cpus)
        yield joined
    finally:
        joined.stop()
        for left in scene.temporary.iterdir():  # the cluster's own, not the run's
            if left.name.startswith(("session_", "ray", "prom_")):
                subprocess.run(["rm", "-rf", left], check=True)


@pytest.fixture
def two_cpus(scene: Scene) -> Iterator[Joined]:
    with cluster(scene, 2) as joined:
        yield joined


def test_room_for_two_of_three(two_cpus: Joined, scene: Scene, undisturbed: str) -> None:
    run = scene.train(*two_cpus.flags, "--workers", "1-3", faults=[Fault("kill", "round", 1, MIDDLE)], env=two_cpus.env)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 1
    assert [event["workers"] for event in run.events("ring")] == [2, 2]
    assert {event["worker"] for event in run.events("reload")} == {1}

    # No room for the least: it waits, says so, and gives up.
    run = scene.train(*two_cpus.flags, "--workers", "3-4", "--wait", "3", "--out", "other", env=two_cpus.env)
    assert run.wait() == 2
    assert "room for at least 3 workers" in run.stderr
    assert "3 workers of 1 CPUs did not get them" in run.stderr
    assert not run.directory.exists()  # nothing has begun


def test_the_driver_is_killed(two_cpus: Joined, scene: Scene, undisturbed: str) -> None:
    held = Fault("wait", "round", round=MIDDLE, times=2)
    run = scene.train(*two_cpus.flags, faults=[held], constants=OFTEN, env=two_cpus.env)
    workers = [psutil.Process(strike.pid) for strike in scene.faults.wait(times=2)]
    run.wait_event("checkpoint", lambda event: event["round"] == MIDDLE - 1)
    kill(run.pid)
    run.wait()
    wait_until(lambda: not any(worker.is_running() for worker in workers), 10, "workers are left")
    again = scene.resume(env=two_cpus.env)
    assert again.finish()["model_digest"] == undisturbed
    assert again.events("resumed")[-1]["round"] == MIDDLE - 1


def test_below_the_least_it_waits_and_then_stops(scene: Scene, undisturbed: str) -> None:
    with cluster(scene, 1) as joined:
        raylet = joined.start_node(1)
        held = Fault("wait", "round", 0, MIDDLE)
        # The wait counts from the first start on, when two workers have to load their libraries on a busy machine too.
        run = scene.train(
            *joined.flags, "--workers", "2-2", "--wait", "10", faults=[held], constants=OFTEN, env=joined.env
        )
        scene.faults.wait()
        raylet.kill()
        run.wait_event("worker_lost")
        scene.faults.release()
        assert run.wait() == 1
        assert any("worker" in event["why"] for event in run.events("waiting"))
        assert "dray resume" in run.stderr
        again = scene.resume("--workers", "1", env=joined.env)
        assert again.finish()["model_digest"] == undisturbed
        assert again.events("resumed")[-1]["round"] >= MIDDLE - 1
        assert sum(event["rows"] for event in again.events("worker_loaded")[-1:]) <= ROWS
