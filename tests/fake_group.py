"""A group of workers in memory: it answers as it is told, and loses the workers that it is told to lose."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dray.elastic.group import Call as MadeCall
from dray.elastic.group import GroupEvent, Lost, Member, Raised, Ready, Returned
from dray.elastic.membership import Membership
from dray.elastic.policy import Level, Limits
from dray.elastic.watch import Watch
from dray.events.kinds import Event
from dray.events.telemetry import Sample, Telemetry
from dray.learners.learner import Op


class Recorder:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.samples: list[Sample] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, samples: list[Sample]) -> None:
        self.samples += samples

    def close(self) -> None:
        pass

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@dataclass(frozen=True)
class Call:
    number: int
    worker: int
    method: str
    arguments: tuple[Any, ...]
    lane: str


class Never:
    """The answer of a call that does not return."""


@dataclass(frozen=True)
class Asked(Op[..., Any]):
    """An op with a name, and nothing behind it: the group answers."""

    what: str

    @property
    def name(self) -> str:
        return self.what


class FakeGroup:
    """Does one thing a call of `poll`: the worker that was asked first answers first."""

    ring_host = "127.0.0.1"

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.starting: list[int] = []
        self.no_room: set[int] = set()
        """Workers that do not start as long as they are named here."""
        self.slow: set[int] = set()
        """Workers that have room and do not start as long as they are named here."""
        self.going: dict[int, str] = {}
        self.calls: list[Call] = []
        self.told: list[tuple[int, str, tuple[Any, ...]]] = []
        self.started: list[int] = []
        self.ended: list[int] = []
        self.pending: list[Call] = []
        self._happened: list[GroupEvent] = []
        self._answers: dict[str, Callable[..., Any]] = {}
        self._listeners: dict[str, Callable[..., None]] = {}
        self._numbers = itertools.count()
        self._happened_at = time.monotonic()
        self.on_idle: Callable[[], None] = lambda: None
        """Called when nothing else happens."""
        self.on_start: Callable[[int], None] = lambda worker: None

    def answer(self, method: str, how: Callable[..., Any]) -> None:
        """Have calls of a method answered so: a value, an exception, `Lost`, or `Never`."""
        self._answers[method] = how

    def listen(self, method: str, how: Callable[..., None]) -> None:
        """Have something happen when a worker is told something."""
        self._listeners[method] = how

    def lose(self, worker: int, cause: str = "it was killed") -> None:
        self.alive.discard(worker)
        self.pending = [call for call in self.pending if call.worker != worker]
        self._happened.append(Lost(worker, cause, 0.1))

    def of(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    # The contract

    def start(self, worker: int) -> None:
        assert worker not in self.alive and worker not in self.starting
        self.started.append(worker)
        self.starting.append(worker)

    def expected(self) -> frozenset[int]:
        return frozenset(worker for worker in self.starting if worker not in self.no_room)

    def leaving(self) -> dict[int, str]:
        return {worker: why for worker, why in self.going.items() if worker in self.alive}

    def call(self, worker: int, op: Op[..., Any], *inputs: Any) -> MadeCall:
        assert worker in self.alive, f"worker {worker} is not there to {op.name}"
        call = Call(next(self._numbers), worker, op.name, inputs, op.lane)
        self.calls.append(call)
        self.pending.append(call)
        return MadeCall(call.number, [])

    def tell(self, worker: int, op: Op[..., Any], *inputs: Any) -> None:
        assert worker in self.alive, f"worker {worker} is not there to {op.name}"
        self.told.append((worker, op.name, inputs))
        if op.name in self._listeners:
            self._listeners[op.name](worker, *inputs)

    def share(self, value: Any) -> Any:
        return value

    def poll(self, timeout_s: float) -> list[GroupEvent]:
        found = self._happened or self._next()
        if not found:
            self.on_idle()
            found = self._happened
        self._happened = []
        now = time.monotonic()
        self._happened_at = now if found else self._happened_at
        assert now - self._happened_at < 10, f"nothing happens any more; pending: {self.pending}"
        return found

    def end(self, worker: int) -> None:
        self.ended.append(worker)
        self.alive.discard(worker)
        self.starting = [other for other in self.starting if other != worker]
        self.pending = [call for call in self.pending if call.worker != worker]

    def close(self) -> None:
        for worker in sorted(self.alive):
            self.end(worker)

    def _next(self) -> list[GroupEvent]:
        for worker in self.starting:
            if worker not in self.no_room | self.slow:
                self.starting.remove(worker)
                self.alive.add(worker)
                self.on_start(worker)
                return [Ready(Member(worker, f"host-{worker}", 1000 + worker, 1))]
        for call in self.pending:
            value = self._answers.get(call.method, lambda *_: None)(call.worker, *call.arguments)
            if isinstance(value, Never):
                continue
            if isinstance(value, Lost):
                self.lose(call.worker, value.cause)
                self._happened = []
                return [value]
            self.pending.remove(call)
            if isinstance(value, Exception):
                return [Raised(call.worker, call.number, value)]
            return [Returned(call.worker, call.number, value)]
        return []


def make_membership(
    count: int, level: Level = "elastic", *, least: int = 1, first: int | None = None, **limits: Any
) -> tuple[Membership, FakeGroup, Recorder]:
    """A membership that has not begun."""
    group, told = FakeGroup(), Recorder()
    telemetry = Telemetry([told])
    watch = Watch(telemetry, shared=True)
    bounds = Limits(least, count, **limits)
    membership = Membership(
        group, telemetry, watch, level, bounds, first=first or count, threads=1, cluster="auto", reasons=()
    )
    return membership, group, told
