"""The group of one process: what it hands on, and a run that is interrupted for real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.elastic.alone import Alone
from dray.elastic.watch import Watch
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import Checkpoint
from dray.learners.learner import Op

COMMAND = [sys.executable, "-c", "import sys; from dray.cli.main import main; sys.exit(main())", "train"]


def long_run(tmp_path: Path, *, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    values = np.random.default_rng(0).normal(size=(20_000, 3))
    table = pa.table({"a": values[:, 0], "b": values[:, 1], "y": (values.sum(axis=1) > 0).astype(int)})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=5_000)
    options = ["--label", "y", "--rounds", "1000000", "--workers", "0", "--out", str(tmp_path / "run")]
    return subprocess.Popen(
        [*prefix, *COMMAND, str(tmp_path / "data.parquet"), *options],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def rounds_told(tmp_path: Path) -> int:
    events = tmp_path / "run" / "events.jsonl"
    return events.read_text().count('"kind": "round"') if events.exists() else 0


def wait_for_rounds(process: subprocess.Popen[str], tmp_path: Path, more_than: int = 0) -> None:
    deadline = time.monotonic() + 60
    while rounds_told(tmp_path) <= more_than:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_training_in_order(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = long_run(tmp_path)
    wait_for_rounds(process, tmp_path)
    process.send_signal(number)
    _, words = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in words
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert (tmp_path / "run" / "checkpoints" / "latest.json").exists()


def test_a_run_that_was_started_deaf_to_ctrl_c_stays_so(tmp_path: Path) -> None:
    """As `dray train ... &` in a script: Ctrl-C is for the one in front. SIGTERM ends it."""
    process = long_run(tmp_path, prefix=("sh", "-c", "trap '' INT; exec \"$@\"", "sh"))
    wait_for_rounds(process, tmp_path)
    process.send_signal(signal.SIGINT)
    # What was on its way when the signal came is not yet a sign of life.
    wait_for_rounds(process, tmp_path, more_than=rounds_told(tmp_path) + 20)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    rings = (tmp_path / "run" / "events.jsonl").read_text().count('"kind": "ring"')
    assert rings == 1  # it was not so much as interrupted


@dataclass(frozen=True)
class Reach(Op[..., None]):
    """Have the worker be at a checkpoint of some fit."""

    checkpoint: Checkpoint

    def __call__(self, side: Any, *_: Any, **__: Any) -> None:
        side.fit = self.checkpoint.fit
        side.latest = lambda: self.checkpoint


def test_checkpoints_are_handed_on_when_they_are_newer_and_anew_in_another_fit() -> None:
    taken: list[tuple[int, int]] = []
    watch = Watch(Telemetry([]), shared=True)
    alone = Alone(1, watch, on_copy=lambda copy: taken.append((copy.fit, copy.round)), learner="factorization")
    for fit, done in ((1, 3), (1, 3), (1, 5), (2, 2), (2, 4), (1, 9)):
        alone.call(0, Reach(Checkpoint(done, b"model", (), fit=fit)))
        alone.poll(0.0)
    alone.close()
    assert taken == [(1, 3), (1, 5), (2, 2), (2, 4)]
