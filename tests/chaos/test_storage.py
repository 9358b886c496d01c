"""Storage that fails for a while: the run waits or goes on, and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.scene import OFTEN, ROUNDS, Fault, Scene, wait_until
from faulty_s3 import serve_faulty
from s3_server import S3Server

MIDDLE = ROUNDS // 2
DISK_BYTES = 4 << 20


def test_a_burst_of_errors_while_loading(scene: Scene, undisturbed: str, s3_server: S3Server) -> None:
    shutil.copytree(scene.data, s3_server.directory / "data")
    scene.data = "s3://bucket/data"
    with serve_faulty(s3_server) as faulty:
        # Both workers hold on with their first rows, till the store fails.
        run = scene.train(faults=[Fault("wait", "load", times=2)], env=faulty.reached.environment)
        scene.faults.wait(times=2)
        faulty.fail("slow_down", seconds=2, matching=".parquet")
        scene.faults.release()
        result = run.finish()
        assert faulty.failed > 0
    assert result["model_digest"] == undisturbed
    assert result["failures"] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few megabytes where the run directory will be."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    place = tmp_path / "run"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("may not mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_at_a_checkpoint(small_disk: Path, scene: Scene, undisturbed: str) -> None:
    # It fills up in one round and is free again in a later one.
    faults = [Fault("wait", "round", 0, MIDDLE), Fault("wait", "round", 0, MIDDLE + 2)]
    run = scene.train(faults=faults, constants=OFTEN)
    scene.faults.wait(fault=0)
    ballast = small_disk / "ballast"
    fill(ballast)
    scene.faults.release(fault=0)
    wait_until(lambda: "could not be written" in run.stderr, 30, lambda: f"nothing is said: {run.stderr}")
    ballast.unlink()
    scene.faults.release(fault=1)
    result = run.finish()
    assert result["model_digest"] == undisturbed
    assert any("could not be written" in warning for warning in result["warnings"])
    # What happened meanwhile was kept in memory, and is told in the end.
    assert [event["round"] for event in run.events("round")] == list(range(1, ROUNDS + 1))


def fill(path: Path) -> None:
    """Write till nothing fits any more."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
