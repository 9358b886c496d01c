"""Makes a checkpoint of a recommender every few seconds, in a thread, for `dray resume` and lost machines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dray.learners.attempt import Attempt
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.factorization.blocks import Blocks, WrittenBlocks, as_bytes
from dray.learners.learner import InputGone

EVERY_S = 5.0
SHARE = 0.05
"""Never spend more of the time than this on fetching."""


@dataclass(frozen=True, slots=True)
class State:
    """A training after an epoch, with its blocks wherever they are."""

    blocks: Blocks
    best: Blocks | None
    """The best epoch's, where the run may stop early."""
    halvings: int
    rounds: tuple[Step, ...]


class Checkpointing:
    """`offer` and `flush` are called from one thread, with the attempt that is under way."""

    def __init__(self, fit: int) -> None:
        self._fit = fit
        self._newest: State | None = None
        self._thread: threading.Thread | None = None
        self._made_at = time.monotonic()
        self._cost_s = 0.0

    def offer(self, state: State, attempt: Attempt, *, last: bool = False) -> None:
        """Make a checkpoint if it is time for one; of the last epoch only if the model cannot be saved (`flush`)."""
        self._newest = state
        due = self._made_at + max(EVERY_S, self._cost_s / SHARE)
        if not last and time.monotonic() >= due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(
                target=self._make, args=(state, attempt), name="dray-checkpoint", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Wait for a checkpoint that is being made."""
        if self._thread is not None:
            self._thread.join()

    def flush(self, attempt: Attempt) -> None:
        """Make a checkpoint of the newest state now."""
        self.close()
        if self._newest is not None and self._newest.blocks.epoch > attempt.latest.round:
            self._make(self._newest, attempt)

    def _make(self, state: State, attempt: Attempt) -> None:
        began = time.monotonic()
        with suppress(InputGone):  # lost with a machine; the next checkpoint is of another epoch
            content = as_bytes(_written(state, attempt.fetch))
            attempt.offer(Checkpoint(state.blocks.epoch, content, state.rounds, fit=self._fit))
        self._made_at = time.monotonic()
        self._cost_s = self._made_at - began


def _written(state: State, fetch: Callable[[Sequence[Any]], list[Any]]) -> WrittenBlocks:
    best = state.best if state.best is not None and state.best.epoch != state.blocks.epoch else None
    return WrittenBlocks(
        state.blocks.epoch,
        state.halvings,
        state.best.epoch if state.best is not None else 0,
        tuple(fetch(state.blocks.users)),
        tuple(fetch(state.blocks.items)),
        tuple(fetch(best.users)) if best else (),
        tuple(fetch(best.items)) if best else (),
    )
