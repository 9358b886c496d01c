"""The way of events and samples from where they are made to the sinks.

An event (kinds.py) is a step of a run ("round 12 is done"), a `Sample` a measurement of one process. `Telemetry` hands
both to every sink: the run directory, the terminal, those of other packages. A sink never disturbs the run.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from dray.errors import DrayError
from dray.events.kinds import Event, Warned
from dray.events.visible import escaped
from dray.masking import masked
from dray.s3 import redact

DRIVER = -1
"""The `worker` of the driver's own samples."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One second of one process; worker -1 is the driver."""

    time: float
    worker: int
    host: str
    cpu_cores: float
    memory_bytes: int
    host_cpu_percent: float
    sent_bytes: int
    received_bytes: int


class Sink(Protocol):
    """Receives what a run reports. `Telemetry` calls it under a lock, from any thread, and closes it once."""

    def event(self, event: Event) -> None: ...

    def sample(self, samples: list[Sample]) -> None: ...

    def close(self) -> None: ...


class Telemetry:
    """Hands events and samples to the sinks, in order, one at a time. Any thread may call it.

    A sink that raises is dropped and the others are told by a warning: a full disk under the log must not end
    hours of training.
    """

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        # Reentrant: dropping a sink emits a warning to the others.
        self._lock = threading.RLock()

    def emit(self, event: Event) -> Event:
        with self._lock:
            for sink in list(self._sinks):
                self._call(sink, lambda sink=sink: sink.event(event))
        return event

    def sample(self, samples: Sequence[Sample]) -> None:
        with self._lock:
            for sink in list(self._sinks):
                self._call(sink, lambda sink=sink: sink.sample(list(samples)))

    def close(self) -> None:
        """Close every sink; later calls do nothing. A sink that fails is reported to those not yet closed."""
        with self._lock:
            while self._sinks:
                sink = self._sinks[0]
                self._call(sink, sink.close)
                with suppress(ValueError):
                    self._sinks.remove(sink)

    def _call(self, sink: Sink, action: Any) -> None:
        if sink not in self._sinks:
            return
        try:
            action()
        except Exception as error:
            self._sinks.remove(sink)
            with suppress(Exception):
                sink.close()
            what, fix = (error.what, error.fix) if isinstance(error, DrayError) else (f"{error!r}", "")
            self.emit(Warned(f"{type(sink).__name__} stopped recording this run: {what}", fix))


def to_line(event: Event) -> str:
    """Return an event as a line of events.jsonl, without its end."""
    return dumps({"time": round(event.time, 3), "kind": event.kind, **event.data})


def dumps(document: Any, indent: int | None = None, show: Callable[[str], str] = masked) -> str:
    """Return `document` as strict JSON: numbers that JSON lacks become null, passwords in addresses and secrets of the
    environment `***`.

    With `show=str` texts stay as they are: names of files and values of data, which may look like passwords.
    """
    return redact(as_json(document, show, indent))


def as_json(document: Any, show: Callable[[str], str] = str, indent: int | None = None) -> str:
    """Return `document` as strict JSON, with what `show` makes of each text."""
    return escaped(json.dumps(_plain(document, show), indent=indent, allow_nan=False, ensure_ascii=False))


def _plain(value: Any, show: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return show(value)
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {show(str(key)): _plain(item, show) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, show) for item in value]
    if hasattr(value, "item"):  # numpy scalars
        return _plain(value.item(), show)
    if hasattr(value, "model_dump"):  # pydantic
        return _plain(value.model_dump(mode="json"), show)
    return show(str(value))
