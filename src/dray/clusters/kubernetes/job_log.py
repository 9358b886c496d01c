"""The log of a RayJob, from the pod that submits it: read by a thread, taken up again wherever it broke off."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from dray.clusters.kubernetes import readiness
from dray.clusters.kubernetes.api import Api
from dray.errors import ClusterError

SUBMITTER = "ray-job-submitter"
AHEAD = 10_000
"""Lines that wait to be heard; the thread that reads waits with more."""
_LOOK_S = 0.1
_TRIES = 3


class JobLog:
    """One thread calls it; another one, of its own, reads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lines: queue.Queue[str] = queue.Queue(AHEAD)
        self._pod = ""
        self._since: str | None = None
        self._thread: threading.Thread | None = None
        self._whole = False
        """All was read that there is."""
        self._last = False
        """The job is over: there will be no more."""

    def look(self, pods: list[Any]) -> None:
        """Start reading once there is something to read, and again after a break."""
        pod = submitter(pods)
        if pod is None or self._reads:
            return
        name = str(pod["metadata"]["name"])
        if name != self._pod:
            self._pod, self._since, self._whole = name, None, False
        if not self._whole:
            self._thread = threading.Thread(target=self._read, args=(name, self._since), name="job-log", daemon=True)
            self._thread.start()

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield what comes within so many seconds."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with suppress(queue.Empty):
                yield self._lines.get(timeout=left)

    def rest(self, pods: list[Any], seconds: float) -> Iterator[str]:
        """Yield what is left of the log of a job that is over; a silence of so many seconds ends it."""
        self._last = True
        for _ in range(_TRIES):
            self.look(pods)
            yield from self._until_silent(seconds)
            if self._whole or not self._pod:
                return

    def _until_silent(self, seconds: float) -> Iterator[str]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done = not self._reads
            try:
                line = self._lines.get(timeout=_LOOK_S)
            except queue.Empty:
                if done:
                    return
            else:
                yield line
                end = time.monotonic() + seconds

    @property
    def _reads(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _read(self, pod: str, since: str | None) -> None:
        with suppress(ClusterError):  # not started yet, or the connection broke: `look` starts again
            for moment, line in self._api.follow_log(pod, SUBMITTER, since):
                if since is None or not moment or moment > since:
                    self._lines.put(line)
                    self._since = moment or self._since
            # A server that goes away may end a log as if that were all: only behind the end of the job it is.
            self._whole = self._last


def submitter(pods: list[Any]) -> Any | None:
    """Return the newest pod of the submitter that has run."""
    found = [pod for pod in pods if readiness.is_submitter(pod) and not readiness.is_pending(pod)]
    found.sort(key=lambda pod: pod["metadata"].get("creationTimestamp", ""))
    return found[-1] if found else None
