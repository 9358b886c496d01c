"""How long something has failed to answer, in time that this process was awake to hear it.

A process that was stopped (Ctrl-Z, a full pipe, a file system that hangs) finds on waking that a minute has passed in
which nothing answered. That says nothing about the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class AwakeClock:
    """Seconds that this process has been awake. `tick` is called in every turn of the loop that listens."""

    def __init__(self, longest_turn_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A turn that takes longer counts for `longest_turn_s`: the process was stopped, or busy elsewhere."""
        self._longest_turn_s = longest_turn_s
        self._clock = clock
        self._ticked_at = clock()
        self.now = 0.0

    def tick(self) -> float:
        """Return the time on this clock, after counting what has passed since the last tick."""
        ticked_at = self._clock()
        self.now += min(ticked_at - self._ticked_at, self._longest_turn_s)
        self._ticked_at = ticked_at
        return self.now


class Silence:
    """Of one other process: it lasts from a question that is not answered until the next answer of any kind."""

    def __init__(self, clock: AwakeClock) -> None:
        self._clock = clock
        self._since: float | None = None

    def ask(self) -> None:
        """A question goes out, possibly in place of one that failed."""
        if self._since is None:
            self._since = self._clock.now

    def hear(self, *, still_asked: bool) -> None:
        """Something was heard; `still_asked` says whether a question is still on its way."""
        self._since = self._clock.now if still_asked else None

    @property
    def seconds(self) -> float:
        return 0.0 if self._since is None else self._clock.now - self._since
