"""The newest model of a training, kept in memory and, in a thread of its own, in the run directory."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from dray.errors import StorageError
from dray.events.kinds import CheckpointWritten, Warned
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import START, Checkpoint, Step
from dray.runs.checkpoints import Checkpoints, WrittenCheckpoint


class CheckpointWriter:
    """A checkpoint that cannot be written is a warning, and the next one tries again: training goes on."""

    def __init__(self, checkpoints: Checkpoints | None, telemetry: Telemetry, latest: Checkpoint = START) -> None:
        """Without `checkpoints` the newest model is kept in memory only."""
        self.latest = latest
        self.written = 0
        """Checkpoints written so far."""
        self._checkpoints = checkpoints
        self._telemetry = telemetry
        self._written_round = latest.round
        self._news = threading.Event()
        self._closing = False
        self._warned = False
        self._writer = threading.Thread(target=self._write_all, name="dray-checkpoints", daemon=True)
        self._writer.start()

    def offer(self, checkpoint: Checkpoint) -> None:
        """Take in a checkpoint if it is newer. Any thread may call it; it returns at once."""
        if checkpoint.is_newer(self.latest):
            self.latest = checkpoint
            self._news.set()

    def forget_model(self) -> None:
        """Drop the newest model's bytes: the training is over. What is in the run directory stays there."""
        self.latest = replace(self.latest, model=None)

    def close(self, *, write: bool) -> None:
        """Stop; with `write`, only after the newest model is in the run directory."""
        self._closing = True
        self._news.set()
        self._writer.join()
        if write:
            self._write()

    def _write_all(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._closing:
                return
            self._write()

    def _write(self) -> None:
        latest = self.latest
        if self._checkpoints is None or latest.round <= self._written_round or latest.model is None:
            return
        started = time.perf_counter()
        try:
            self._checkpoints.write(as_written(latest, latest.model))
        except StorageError as error:
            if not self._warned:
                self._warned = True
                self._telemetry.emit(
                    Warned(
                        f"The checkpoint of round {latest.round} could not be written: {error.what}",
                        "Training goes on; later checkpoints are tried again.",
                    )
                )
            return
        self._written_round = latest.round
        self.written += 1
        self._telemetry.emit(CheckpointWritten(latest.round, round(time.perf_counter() - started, 3)))


def as_written(checkpoint: Checkpoint, model: bytes) -> WrittenCheckpoint:
    rounds = tuple(asdict(done) for done in checkpoint.rounds)
    return WrittenCheckpoint(checkpoint.round, model, rounds, dict(checkpoint.start), dict(checkpoint.baseline))


def as_checkpoint(written: WrittenCheckpoint | None) -> Checkpoint:
    if written is None:
        return START
    rounds = tuple(Step(done["round"], done["seconds"], _metrics(done["metrics"])) for done in written.rounds)
    return Checkpoint(written.round, written.model, rounds, _metrics(written.start), _metrics(written.baseline))


def _metrics(kept: Mapping[str, float | None]) -> dict[str, float]:
    """JSON has no NaN: a metric without a value comes back as null."""
    return {name: math.nan if value is None else value for name, value in kept.items()}
