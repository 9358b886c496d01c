"""Follow what a job prints, to its end: nothing lost, nothing twice, whatever the connection does.

Ray offers two ways. One request gives all of a log so far: at once, but all of it every time. A stream gives what
comes, from the beginning on, up to two seconds late. So the first seconds of a job are asked for, the rest is streamed,
and the end is asked for again as soon as the job is over. How far it has come is a count of characters, so that each
can go on where another stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Protocol

from dray.errors import DrayError
from dray.jobs.client import JobInfo, Unreachable

POLL_S = 0.2
POLL_FOR_S = 4.0
POLL_BYTES = 200_000
STATUS_S = 1.0
SELDOM_S = 5.0
TRIES = 3
SILENCE_S = 60.0
"""A stream that has said nothing for so long is opened anew: a connection may die without a word."""
PATIENCE_S = 120.0


class Followed(Protocol):
    """What is needed of an endpoint: `client.Jobs`, but for its words."""

    def info(self, job: str) -> JobInfo: ...

    def logs(self, job: str) -> str: ...

    def tail(self, job: str) -> AsyncIterator[str]: ...


class ConnectionLost(DrayError):  # noqa: N818  (says what it is)
    """The endpoint is out of reach. Whether the job still runs is not known."""

    exit_code = 1


class Follower:
    """The log of one job. `pieces` may be called again, after an interruption: it goes on where it was."""

    def __init__(self, jobs: Followed, job: str, *, how_to_follow: str = "", patience_s: float = PATIENCE_S) -> None:
        self.job = job
        self.info: JobInfo | None = None
        """As last heard."""
        self._jobs = jobs
        self._how_to_follow = how_to_follow
        self._patience_s = patience_s
        self._seen = 0
        self._fruitless = 0
        """Streams in a row through which nothing came, not even the beginning."""
        self._running_since: float | None = None

    def pieces(self, until: Callable[[], bool] = lambda: False) -> Iterator[str]:
        """Yield what comes, until the job is over, or `until` says so between two pieces."""
        contact, stream, failed = time.monotonic(), None, 0
        try:
            while not until():
                try:
                    info = self.info = self._jobs.info(self.job)
                except Unreachable as error:
                    self._be_patient(contact, error)
                    _close(stream)
                    stream = None
                    time.sleep(STATUS_S)
                    continue
                contact = time.monotonic()
                pause_s = self._pause_s(info)
                if pause_s is None:
                    if stream is not None and not stream.useful:
                        self._fruitless = 0 if stream.works else self._fruitless + 1
                        _close(stream)
                        stream = None
                        continue
                    stream = stream or Stream(lambda: self._jobs.tail(self.job), skip=self._seen)
                    for piece in stream.pieces(STATUS_S):
                        self._seen += len(piece)
                        yield piece
                    continue
                if info.status != "PENDING":
                    new = self._new_piece()
                    yield new or ""
                    failed += new is None and info.over
                    if failed == TRIES:
                        yield "(The rest of the log cannot be read: it is not UTF-8 text, or the node is gone.)\n"
                    if info.over and (new is not None or failed == TRIES):
                        return
                    pause_s = pause_s if new is not None else STATUS_S
                time.sleep(pause_s)
        finally:
            _close(stream)

    def _pause_s(self, info: JobInfo) -> float | None:
        """How long to wait between two looks at the whole log; None when it is better streamed."""
        if info.over or info.status == "PENDING":
            return POLL_S
        now = time.monotonic()
        if self._running_since is None:
            self._running_since = now
        if now - self._running_since < POLL_FOR_S and self._seen < POLL_BYTES:
            return POLL_S
        # A proxy that lets no stream through is asked now and then instead.
        return SELDOM_S if self._fruitless >= TRIES else None

    def _new_piece(self) -> str | None:
        """What is new in the log; None where Ray fails to read it."""
        try:
            piece = self._jobs.logs(self.job)[self._seen :]
        except Unreachable:
            return None
        self._seen += len(piece)
        return piece

    def _be_patient(self, contact: float, error: Unreachable) -> None:
        silent_s = time.monotonic() - contact
        if silent_s >= self._patience_s:
            since = datetime.fromtimestamp(time.time() - silent_s).astimezone()
            raise ConnectionLost(
                f"The head has not answered since {since:%H:%M:%S}, for {silent_s:.0f} s: {error.what} "
                f"The job {self.job} may still run; if the head of the cluster is gone, the job is gone too.",
                fix="Once the head answers, follow the job again: "
                f"{self._how_to_follow or f'dray job logs {self.job} --follow'}. "
                "If the head is gone, go on with the run from its last checkpoint: dray resume RUN --cluster NAME.",
            ) from None


class Stream:
    """A log as it is streamed, read by a thread. What `skip` characters long was seen before is left out."""

    def __init__(self, open_: Callable[[], AsyncIterator[str]], skip: int) -> None:
        self._open = open_
        self._skip = skip
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._last = time.monotonic()
        self._ended = False
        self.works = False
        """Whether anything came, be it what was known."""
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="dray-job-log", daemon=True)
        self._thread.start()

    @property
    def useful(self) -> bool:
        """Whether more may come of it."""
        return not self._ended and time.monotonic() - self._last < SILENCE_S

    def pieces(self, for_s: float) -> Iterator[str]:
        """Yield what comes within so many seconds, or until it ends."""
        deadline = time.monotonic() + for_s
        while (left := deadline - time.monotonic()) > 0 and not self._ended:
            try:
                piece = self._heard.get(timeout=left)
            except queue.Empty:
                return
            if piece is None:
                self._ended = True
                return
            self._last = time.monotonic()
            yield piece

    def close(self) -> None:
        def cancel() -> None:
            if self._task is not None:
                self._task.cancel()

        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(cancel)
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self._task = self._loop.create_task(self._read())
            # However it ended: whether the job is over tells its status, not the end of a stream.
            with contextlib.suppress(Exception, asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            self._heard.put(None)

    async def _read(self) -> None:
        async for text in self._open():
            self.works = True
            known = min(self._skip, len(text))
            self._skip -= known
            if known < len(text):
                self._heard.put(text[known:])


def _close(stream: Stream | None) -> None:
    if stream is not None:
        stream.close()
