"""Hands on what a run elsewhere told, to the sinks that a run here would have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from dray.events.kinds import Event, Warned
from dray.events.reading import read_event
from dray.events.telemetry import Sample, Sink

SKEW_S = 30.0
"""Clocks that differ by less are taken for equal: a log comes a few seconds late."""

_LAST = 1e11
"""Seconds since 1970: no clock says more."""


class Relay:
    """Feeds sinks from marked lines. A sink that fails is dropped; the run is elsewhere and knows nothing of it."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._shift: float | None = None

    def hear(self, document: dict[str, Any]) -> None:
        """Hand on what the document tells; what is not as dray writes it is passed over."""
        for told in _each_of(document, "events"):
            if isinstance(told.get("kind"), str) and isinstance(told.get("data"), dict):
                self._event(read_event(self._here(told["time"]), told["kind"], told["data"]))
        samples = []
        for told in _each_of(document, "samples"):
            with suppress(TypeError):  # of a dray that measures something else
                samples.append(Sample(**{**told, "time": self._here(told["time"])}))
        if samples:
            self._each(lambda sink: sink.sample(samples))

    def warn(self, message: str, fix: str = "") -> None:
        self._event(Warned(message, fix))

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


def _each_of(document: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """The documents of a list that have a time."""
    found = document.get(name)
    for told in found if isinstance(found, list) else ():
        moment = told.get("time") if isinstance(told, dict) else None
        if isinstance(moment, int | float) and 0 <= moment < _LAST:
            yield told
