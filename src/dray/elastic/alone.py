"""A group of one, in this process, without Ray."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dray.elastic.group import Call, GroupEvent, Kept, Member, Raised, Ready, Returned
from dray.elastic.watch import Watch
from dray.learners.checkpoint import Checkpoint
from dray.learners.learner import InputGone, Op, WorkerSide
from dray.learners.registry import find
from dray.learners.status import Stopped

TICK_S = 0.25
_NOTHING_YET = object()


class _Later:
    """What a call will have made when it has run."""

    def __init__(self) -> None:
        self.value: Any = _NOTHING_YET


class Alone:
    """The worker runs in the caller's thread, inside `poll`, and another thread watches it.

    The other way round costs a tenth of the speed: libgomp lets the threads of a team sleep at every barrier when
    there are more threads in its care than CPUs, and it counts the main thread as one of them.
    """

    ring_host = "127.0.0.1"

    def __init__(self, threads: int, watch: Watch, *, on_copy: Callable[[Checkpoint], None], learner: str) -> None:
        self._worker = find(learner).worker_side(0, threads)
        self._watch = watch
        self._on_copy = on_copy
        self._copied = (0, 0)
        """Fit and step of the newest checkpoint."""
        self._ready: list[GroupEvent] = []
        self._waiting: deque[tuple[int, Op[..., Any], tuple[Any, ...], list[_Later]]] = deque()
        self._member = Member(0, socket.gethostname(), os.getpid(), threads)
        self._numbers = itertools.count()

    def start(self, worker: int) -> None:  # noqa: ARG002  (there is one)
        self._ready.append(Ready(self._member))

    def expected(self) -> frozenset[int]:
        return frozenset()

    def leaving(self) -> dict[int, str]:
        return {}

    def call(self, worker: int, op: Op[..., Any], *inputs: Any, **_: Any) -> Call:  # noqa: ARG002
        number, kept = next(self._numbers), [_Later() for _ in range(op.keeps)]
        self._waiting.append((number, op, inputs, kept))
        return Call(number, list(kept))

    def post(self, worker: int, op: Op[..., Any], *inputs: Any, **_: Any) -> list[Any]:
        return self.call(worker, op, *inputs).kept

    def fetch(self, kept: Sequence[Kept]) -> list[Any]:
        return [_value_of(one) for one in kept]

    def tell(self, worker: int, op: Op[..., Any], *inputs: Any, **_: Any) -> None:  # noqa: ARG002
        op(self._worker, *inputs)

    def share(self, value: Any) -> Any:
        return value

    def poll(self, timeout_s: float) -> list[GroupEvent]:  # noqa: ARG002  (it takes what the call takes)
        found, self._ready = self._ready, []
        if found or not self._waiting:
            return found
        # All calls that wait, in one go: to begin watching takes longer than a step of a small recommender.
        with self._watched(), _signals_stop(self._worker):
            while self._waiting:
                number, op, inputs, kept = self._waiting.popleft()
                try:
                    value = self._call(op, inputs, kept)
                except Stopped:
                    raise
                except Exception as error:
                    return [*found, Raised(0, number, error)]
                del inputs  # in one process they may be the rows themselves
                found.append(Returned(0, number, value))
        return found

    def _call(self, op: Op[..., Any], inputs: tuple[Any, ...], kept: list[_Later]) -> Any:
        value = op(self._worker, *(_value_of(one) for one in inputs))
        if kept:
            value, *others = value
            for later, other in zip(kept, others, strict=True):
                later.value = other
        return value

    def end(self, worker: int) -> None:  # noqa: ARG002
        self._worker.stop()

    def close(self) -> None:
        self._worker.stop()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        done = threading.Event()

        def look() -> None:
            while not done.wait(TICK_S):
                self._look()

        watcher = threading.Thread(target=look, name="dray-watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            self._look()

    def _look(self) -> None:
        status = self._worker.status(self._watch.rounds_told)
        self._watch.look({0: status})
        is_new = status.copied_round > 0 and (status.fit, status.copied_round) > self._copied
        if is_new and (copy := self._worker.latest()) is not None:
            self._copied = copy.fit, copy.round
            self._on_copy(copy)


def _value_of(argument: Any) -> Any:
    if not isinstance(argument, _Later):
        return argument
    if argument.value is _NOTHING_YET:
        raise InputGone("A call that was to come first has failed.", fix="")
    return argument.value


@contextmanager
def _signals_stop(worker: WorkerSide) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop the worker between two batches or rounds, then do what they would have done.

    Raised at once, they could hit a callback of the native library, which cannot pass them on. A second signal does
    not wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    received: list[tuple[int, FrameType | None]] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append((number, frame))
        worker.stop()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    except Stopped:
        if not received:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number, frame in received:
        handler = before[number]
        if callable(handler):
            handler(number, frame)
        else:
            signal.raise_signal(number)
