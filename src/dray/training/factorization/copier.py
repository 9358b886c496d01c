"""Fetches where the training stands every few seconds, in a thread of its own, for `dray resume` and lost machines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.learner import InputGone
from dray.training.factorization.copies import Copy, Written, as_bytes
from dray.training.keeper import Keeper

EVERY_S = 5.0
SHARE = 0.05
"""Never spend more of the time than this on fetching."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the training stands, with its blocks wherever they are."""

    copy: Copy
    best: Copy | None
    """The best epoch's, where the run may stop early."""
    halvings: int
    rounds: tuple[Step, ...]


class Copier:
    """`offer` and `flush` are called from one thread."""

    def __init__(self, keeper: Keeper, fetch: Callable[[Sequence[Any]], list[Any]]) -> None:
        self._keeper = keeper
        self._fetch = fetch
        self._newest: Stand | None = None
        self._thread: threading.Thread | None = None
        self._copied_at = time.monotonic()
        self._cost_s = 0.0

    def offer(self, stand: Stand, *, last: bool = False) -> None:
        """Take a copy if it is time for one; of the last epoch only if something happens before the model is saved."""
        self._newest = stand
        due = self._copied_at + max(EVERY_S, self._cost_s / SHARE)
        if not last and time.monotonic() >= due and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._copy, args=(stand,), name="dray-copy", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """See a copy through that is being taken."""
        if self._thread is not None:
            self._thread.join()

    def flush(self) -> None:
        """Take a copy of the newest now."""
        self.close()
        if self._newest is not None and self._newest.copy.epoch > self._keeper.latest.round:
            self._copy(self._newest)

    def _copy(self, stand: Stand) -> None:
        began = time.monotonic()
        with suppress(InputGone):  # a machine went with it; the next copy is another one
            content = as_bytes(self._written(stand))
            self._keeper.offer(Checkpoint(stand.copy.epoch, content, stand.rounds))
        self._copied_at = time.monotonic()
        self._cost_s = self._copied_at - began

    def _written(self, stand: Stand) -> Written:
        best = stand.best if stand.best is not None and stand.best.epoch != stand.copy.epoch else None
        return Written(
            stand.copy.epoch,
            stand.halvings,
            stand.best.epoch if stand.best is not None else 0,
            tuple(self._fetch(stand.copy.users)),
            tuple(self._fetch(stand.copy.items)),
            tuple(self._fetch(best.users)) if best else (),
            tuple(self._fetch(best.items)) if best else (),
        )
