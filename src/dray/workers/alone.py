"""A group of one, in this process, without Ray."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dray.workers.group import Member
from dray.workers.watch import Watch
from dray.workers.worker import Stopped, Worker

TICK_S = 0.25


class Alone:
    """The worker runs in the caller's thread, and another thread watches it.

    The other way round costs a tenth of the speed: libgomp lets the threads of a team sleep at every barrier when
    there are more threads in its care than CPUs, and it counts the main thread as one of them.
    """

    ring_host = "127.0.0.1"

    def __init__(self, threads: int) -> None:
        self.members: Sequence[Member] = [Member(0, socket.gethostname(), os.getpid(), threads)]
        self._worker = Worker(0, threads)

    def each(self, method: str, arguments: Sequence[Sequence[Any]], watch: Watch) -> list[Any]:
        [own] = arguments
        with _watched(self._worker, watch), _signals_stop(self._worker):
            return [getattr(self._worker, method)(*own)]

    def close(self) -> None:
        self._worker.stop()


@contextmanager
def _watched(worker: Worker, watch: Watch) -> Iterator[None]:
    done = threading.Event()

    def look() -> None:
        while not done.wait(TICK_S):
            watch.look([worker.status(watch.rounds_told)])

    watcher = threading.Thread(target=look, name="dray-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        watch.look([worker.status(watch.rounds_told)])


@contextmanager
def _signals_stop(worker: Worker) -> Iterator[None]:
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
