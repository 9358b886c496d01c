"""Hands on what a run elsewhere told, to the sinks that a run here would have."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dray.telemetry.events import Event, Sample, Sink

SKEW_S = 30.0
"""Clocks that differ by less are taken for equal: a log comes a few seconds late."""


class Relay:
    """Feeds sinks from marked lines. A sink that fails is dropped; the run is elsewhere and knows nothing of it."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._shift: float | None = None

    def hear(self, document: dict[str, Any]) -> None:
        for event in document.get("events") or ():
            self._event(Event(self._here(float(event["time"])), event["kind"], event["data"]))
        samples = [Sample(**{**sample, "time": self._here(sample["time"])}) for sample in document.get("samples") or ()]
        if samples:
            self._each(lambda sink: sink.sample(samples))

    def warn(self, message: str, fix: str = "") -> None:
        self._event(Event(time.time(), "warning", {"message": message, "fix": fix}))

    def close(self) -> None:
        self._each(lambda sink: sink.close())
        self._sinks.clear()

    def _here(self, moment: float) -> float:
        """A time of the clock there, by the clock here: views show how long ago it was."""
        if self._shift is None:
            shift = time.time() - moment
            self._shift = shift if abs(shift) > SKEW_S else 0.0
        return moment + self._shift

    def _event(self, event: Event) -> None:
        self._each(lambda sink: sink.event(event))

    def _each(self, act: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                act(sink)
            except Exception:
                self._sinks.remove(sink)
                with suppress(Exception):
                    sink.close()
