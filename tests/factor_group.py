"""Workers of a recommender in this process: real ones, which are lost, leave and come when a test says so.

Values travel as through Ray's store: pickled, and with arrays that cannot be written to.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from dray.config.run_file import RunConfig
from dray.elastic import keyed_units, running_attempt
from dray.elastic.group import Call as MadeCall
from dray.elastic.group import GroupEvent, Lost, Member, Raised, Ready, Returned
from dray.elastic.membership import Membership
from dray.elastic.starting import Terms
from dray.elastic.watch import Watch
from dray.events.telemetry import Telemetry
from dray.learners.configs import make_config
from dray.learners.factorization.result import FactorResult
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import InputGone, Op, PeerCut
from dray.training import session
from dray.training import train as training
from fake_group import Recorder

What = Literal["lost", "lost after", "its node", "leaves", "inputs gone", "raises"]
_NOTHING = object()


@dataclass(frozen=True)
class Fault:
    """What happens when a worker is called for the nth time, over all of its replacements."""

    worker: int
    method: str
    call: int = 1
    what: What = "lost"


class Kept:
    """A value that stays with the worker that made it, until it is made, or for ever."""

    def __init__(self, maker: int) -> None:
        self.maker = maker
        self.content: Any = _NOTHING
        self.gone = False

    def put(self, value: Any) -> None:
        self.content = _stored(value)

    @property
    def waits(self) -> bool:
        return self.content is _NOTHING and not self.gone

    def value(self) -> Any:
        if self.gone or self.content is _NOTHING:
            raise InputGone("It went with its machine.", fix="")
        return _read(self.content)


@dataclass
class Awaited:
    """For a method that waits itself."""

    get: Callable[[], Any]


@dataclass
class Call:
    number: int
    worker: int
    op: Op[..., Any]
    arguments: tuple[Any, ...]
    kept: list[Kept]

    @property
    def method(self) -> str:
        return self.op.name


@dataclass
class FactorGroup:
    """Calls of a worker run in the order of their lane; workers and lanes take turns, so that some get ahead."""

    faults: list[Fault] = field(default_factory=list)
    no_room: set[int] = field(default_factory=set)
    """Workers that do not start as long as they are named here."""
    alive: dict[int, FactorWorker] = field(default_factory=dict)
    going: dict[int, str] = field(default_factory=dict)
    cut: dict[tuple[int, int], int] = field(default_factory=dict)
    """How often a worker will not reach what another one made: taker and maker."""
    made: list[Call] = field(default_factory=list)
    ring_host: str = "127.0.0.1"
    on_call: Callable[[Call], None] = lambda call: None
    slow: set[tuple[int, str]] = field(default_factory=set)
    """Workers and methods that do not run as long as they are named here."""
    on_idle: Callable[[], None] = lambda: None
    """Called when nothing else happens."""

    def __post_init__(self) -> None:
        self.struck: list[Fault] = []
        self.ran: list[Call] = []
        """Calls in the order in which they ran; `made` has the order in which they were asked for."""
        self.told: list[tuple[int, str]] = []
        self._starting: list[int] = []
        self._pending: list[Call] = []
        self._kept: list[Kept] = []
        self._happened: list[GroupEvent] = []
        self._numbers = itertools.count()
        self._counts: Counter[tuple[int, str]] = Counter()
        self._turns = itertools.count()
        self._happened_at = time.monotonic()

    def lose(self, worker: int, *, with_copies: bool = False) -> None:
        """Have a worker die. What it had made outlives it, unless its whole node is gone."""
        self._gone(worker, with_copies=with_copies)
        self._happened.append(Lost(worker, "it was killed", 0.1))

    def of(self, method: str) -> list[Call]:
        return [call for call in self.made if call.method == method]

    # The contract

    def start(self, worker: int) -> None:
        assert worker not in self.alive and worker not in self._starting
        self._starting.append(worker)

    def expected(self) -> frozenset[int]:
        return frozenset(worker for worker in self._starting if worker not in self.no_room)

    def leaving(self) -> dict[int, str]:
        return {worker: why for worker, why in self.going.items() if worker in self.alive}

    def call(self, worker: int, op: Op[..., Any], *inputs: Any) -> MadeCall:
        assert worker in self.alive, f"worker {worker} is not there to {op.name}"
        kept = [Kept(worker) for _ in range(op.keeps)]
        self._kept += kept
        plain = tuple(one if isinstance(one, Kept) else _stored(one) for one in inputs)  # as they are now
        call = Call(next(self._numbers), worker, pickle.loads(pickle.dumps(op)), plain, kept)
        self.made.append(call)
        self._pending.append(call)
        return MadeCall(call.number, list(kept))

    def post(self, worker: int, op: Op[..., Any], *inputs: Any) -> list[Any]:
        return self.call(worker, op, *inputs).kept

    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        return [_value_of(one) for one in kept]

    def tell(self, worker: int, op: Op[..., Any], *inputs: Any) -> None:
        self.told.append((worker, op.name))
        op(self.alive[worker], *inputs)

    def share(self, value: Any) -> Any:
        return value

    def poll(self, timeout_s: float) -> list[GroupEvent]:
        found, self._happened = self._happened, []
        found = found or self._start_one() or self._run_one()
        if not found:
            self.on_idle()
        now = time.monotonic()
        self._happened_at = now if found else self._happened_at
        assert now - self._happened_at < 10, f"nothing happens any more; pending: {self._pending}"
        return found

    def end(self, worker: int) -> None:
        self._starting = [other for other in self._starting if other != worker]
        if worker in self.alive:
            self._gone(worker, with_copies=False)

    def close(self) -> None:
        for worker in list(self.alive):
            self.end(worker)

    # How it works

    def _start_one(self) -> list[GroupEvent]:
        for worker in self._starting:
            if worker not in self.no_room:
                self._starting.remove(worker)
                self.alive[worker] = FactorWorker(worker, 1)
                return [Ready(Member(worker, f"host-{worker}", 1000 + worker, 1))]
        return []

    def _run_one(self) -> list[GroupEvent]:
        """Run the first call of some lane of a worker that has all that it needs."""
        order = sorted((worker, lane) for worker in self.alive for lane in ("beside", "main"))
        first = next(self._turns) % len(order) if order else 0
        for lane in order[first:] + order[:first]:
            call = next((call for call in self._pending if (call.worker, call.op.lane) == lane), None)
            if call is None or (call.worker, call.method) in self.slow:
                continue
            if not any(isinstance(one, Kept) and one.waits for one in call.arguments):
                return self._run(call)
        return []

    def _run(self, call: Call) -> list[GroupEvent]:
        worker = call.worker
        self.on_call(call)
        if worker not in self.alive:  # it was told to go just now
            found, self._happened = self._happened, []
            return found
        what = self._struck(call)
        if what in ("lost", "its node"):
            self._gone(worker, with_copies=what == "its node")
            return [Lost(worker, "it was killed", 0.1)]
        if what == "leaves":
            self.going[worker] = "its node is taken away"
        if what == "inputs gone":
            for one in call.arguments:
                if isinstance(one, Kept):
                    one.gone = True
        self._pending.remove(call)
        self.ran.append(call)
        try:
            if what == "raises":
                raise RuntimeError("a fault of the test")
            given = [self._given(call, one) if isinstance(one, Kept) else _read(one) for one in call.arguments]
            value = call.op(self.alive[worker], *given)
        except Exception as error:
            for one in call.kept:
                one.gone = True
            return [Raised(worker, call.number, error)]
        if call.kept:
            value, *others = value
            for one, other in zip(call.kept, others, strict=True):
                one.put(other)
        found: list[GroupEvent] = [Returned(worker, call.number, _read(_stored(value)))]
        if what == "lost after":
            self._gone(worker, with_copies=False)
            found.append(Lost(worker, "it was killed", 0.1))
        return found

    def _given(self, call: Call, one: Kept) -> Any:
        awaited = Awaited(lambda: self._reached(call.worker, one))
        return awaited if call.op.lazy else awaited.get()

    def _reached(self, taker: int, one: Kept) -> Any:
        if left := self.cut.get((taker, one.maker), 0):
            self.cut[taker, one.maker] = left - 1
            raise PeerCut(f"No connection from worker {taker} to worker {one.maker}.", fix="Let them reach each other.")
        return one.value()

    def _struck(self, call: Call) -> What | None:
        key = (call.worker, call.method)
        self._counts[key] += 1
        for fault in self.faults:
            if (fault.worker, fault.method, fault.call) == (*key, self._counts[key]):
                self.struck.append(fault)
                return fault.what
        return None

    def _gone(self, worker: int, *, with_copies: bool) -> None:
        self.alive.pop(worker).stop()
        self.going.pop(worker, None)
        self._pending = [call for call in self._pending if call.worker != worker]
        for one in self._kept:
            if one.maker == worker and (with_copies or one.content is _NOTHING):
                one.gone = True


def _stored(value: Any) -> tuple[bytes, list[bytes]]:
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return content, [bytes(buffer.raw()) for buffer in buffers]


def _read(stored: tuple[bytes, list[bytes]]) -> Any:
    content, buffers = stored
    return pickle.loads(content, buffers=buffers)


def _value_of(one: Any) -> Any:
    return one.value() if isinstance(one, Kept) else one


def train_together(
    values: dict[str, Any], workers: int = 2, *faults: Fault, group: FactorGroup | None = None, least: int = 1
) -> tuple[FactorResult, FactorGroup, Recorder]:
    """Train with so many workers in this process, with these faults; all of them must have happened."""
    group = group or FactorGroup()
    group.faults += faults
    told = Recorder()
    with together(group, workers, least):
        result = training.train(make_config(values), sinks=[told])
    assert isinstance(result, FactorResult)
    assert len(group.struck) == len(group.faults), f"only {group.struck} of {group.faults} happened"
    return result, group, told


@contextmanager
def together(group: FactorGroup, workers: int, least: int = 1) -> Iterator[None]:
    """Have trainings run on this group in place of what they ask for."""

    @contextmanager
    def started(*arguments: Any, terms: Terms, rounds_told: int = 0, **_: Any) -> Iterator[Membership]:
        telemetry: Telemetry = arguments[5]
        watch = Watch(telemetry, shared=True, rounds_told=rounds_told)
        membership = Membership(
            *(group, telemetry, watch, terms.level, terms.limits(least, workers)),
            first=workers,
            threads=1,
            cluster="auto",
            reasons=(),
        )
        try:
            membership.begin()
            yield membership
        finally:
            group.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "started_workers", started)
        for module in (running_attempt, keyed_units):
            patch.setattr(module, "GRACE_S", 0.0)  # losses are reported at once here
        yield


def train_alone(values: dict[str, Any]) -> tuple[FactorResult, Recorder]:
    """Train in this process as `--workers 0` does."""
    told = Recorder()
    config: RunConfig = make_config({"workers": 0, "threads": 1, **values})
    result = training.train(config, sinks=[told])
    assert isinstance(result, FactorResult)
    return result, told
