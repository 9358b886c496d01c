"""A group of one, in this process, without Ray."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from dray.workers.group import Member
from dray.workers.watch import Watch
from dray.workers.worker import Worker

TICK_S = 0.25


class Alone:
    """The worker runs in a thread of its own, so that the caller's thread can watch and hear Ctrl-C."""

    ring_host = "127.0.0.1"

    def __init__(self, threads: int) -> None:
        self.members: Sequence[Member] = [Member(0, socket.gethostname(), os.getpid(), threads)]
        self._worker = Worker(0, threads)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dray-worker")

    def each(self, method: str, arguments: Sequence[Sequence[Any]], watch: Watch) -> list[Any]:
        [own] = arguments
        future = self._pool.submit(getattr(self._worker, method), *own)
        try:
            working = True
            while working:
                working = bool(wait([future], timeout=TICK_S).not_done)
                watch.look([self._worker.status(watch.rounds_told)])
        except BaseException:
            self._worker.stop()
            raise
        return [future.result()]

    def close(self) -> None:
        self._worker.stop()
        self._pool.shutdown(wait=threading.current_thread() is threading.main_thread())
