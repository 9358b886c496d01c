"""Batches in this process, one after the other: for debugging, and where moving items costs more than running them.

What ends a process ends this one: an exit, a crash and a full memory are not survived here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dray.batch import run_items
from dray.batch.executor import Batch, BatchEvent, Done, Packed, Trouble
from dray.errors import ConfigError


class ThisProcess:
    """An executor with one slot: a batch runs when the engine asks what has happened."""

    slots = 1
    task_overhead_s = 0.0
    freezes = False
    name = "here"

    def __init__(self, function: Callable[[Any], Any], limit_s: float | None = None) -> None:
        if limit_s is not None and threading.current_thread() is not threading.main_thread():
            raise ConfigError(
                "Time limits need the main thread when items run in this process.", fix='Use where="processes".'
            )
        self._function = function
        self._limit_s = limit_s
        self._batches: list[Batch] = []

    def freeze(self, item: Any) -> Any:
        return item

    def pack(self, items: Sequence[Any]) -> Packed:
        return Packed(list(items))

    def split(self, payload: Any, spans: Sequence[tuple[int, int]]) -> list[Packed]:
        return [Packed(payload[start:stop]) for start, stop in spans]

    def text(self, payload: Any, offset: int) -> str:
        return run_items.text_of(payload[offset])

    def unpack(self, results: Any) -> list[Any]:
        values: list[Any] = results
        return values

    def submit(self, batch: Batch) -> None:
        self._batches.append(batch)

    def waiting(self) -> int:
        return len(self._batches)

    def poll(self, timeout_s: float) -> list[BatchEvent]:  # noqa: ARG002
        if not self._batches:
            return []
        batch = self._batches.pop(0)
        with _previous_alarm(self._limit_s):
            values, troubles, seconds = run_items.run(
                self._function, batch.payload, self._limit_s, catch=(Exception, SystemExit)
            )
        return [Done(batch.number, values, [Trouble(*trouble) for trouble in troubles], seconds)]

    def release(self, keys: Sequence[Hashable]) -> None:
        pass

    def close(self, good: bool) -> None:  # noqa: ARG002
        self._batches.clear()


@contextmanager
def _previous_alarm(limit_s: float | None) -> Iterator[None]:
    """Put the program's own handler of SIGALRM back."""
    before = None if limit_s is None else signal.getsignal(signal.SIGALRM)
    try:
        yield
    finally:
        if limit_s is not None:
            signal.signal(signal.SIGALRM, before)
