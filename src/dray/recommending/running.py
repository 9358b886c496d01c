"""Where tasks run: in this process, in processes of this machine, or on a cluster, by the map's engine."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from dray.errors import ConfigError, DrayError, WorkerError
from dray.ingesting.progress import without_progress
from dray.mapping.engine import Emit
from dray.mapping.map import run
from dray.mapping.options import Options
from dray.threads.limits import cpus_of_this_process

Report = TypeVar("Report")
Task = TypeVar("Task")
Workers = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Where:
    """How many do the tasks, and with how many threads each."""

    workers: Workers
    """0: this process; auto: as many as a cluster has room for."""
    threads: int
    cluster: str

    @staticmethod
    def of(workers: Workers, threads: int | None, cluster: str, tasks: int) -> Where:
        """Decide. This process is as fast as several on the same machine; a cluster that is named is meant."""
        if threads is not None and threads < 1:
            raise ConfigError(f"threads is {threads}.", fix="Give at least 1.")
        if workers != "auto" and workers < 0:
            raise ConfigError(f"workers is {workers}.", fix="Give 0 for this process, N for workers, or auto.")
        if workers == 0 or (workers == "auto" and cluster == "local"):
            return Where(0, threads or cpus_of_this_process(), cluster)
        if workers == "auto":
            return Where("auto", threads or 1, cluster)
        count = min(workers, max(1, tasks))
        return Where(count, threads or max(1, cpus_of_this_process() // count if cluster == "local" else 1), cluster)


@dataclass(frozen=True, slots=True)
class _Done(Generic[Report]):
    report: Report
    process: str
    peak_bytes: int


class Measured(Generic[Task, Report]):
    """A function of one task that also tells which process it ran in, and the most memory that one has had."""

    def __init__(self, function: Callable[[Task], Report]) -> None:
        self._function = function

    def __call__(self, task: Task) -> _Done[Report]:
        report = self._function(task)
        return _Done(report, f"{socket.gethostname()} {os.getpid()}", peak_memory_bytes())


class Runner:
    """Runs tasks and remembers the memory of all processes that did."""

    def __init__(self, where: Where, emit: Emit) -> None:
        self._where, self._emit = where, emit
        self._peaks: dict[str, int] = {}

    @property
    def workers(self) -> int:
        """How many other processes did a task."""
        return len(self._peaks)

    @property
    def peak_memory_bytes(self) -> int:
        """This process's peak and those of all that worked for it."""
        return peak_memory_bytes() + sum(self._peaks.values())

    def run(self, function: Callable[[Task], Report], tasks: Sequence[Task]) -> Iterator[Report]:
        """Yield what came of the tasks, as they are done; an error of ours is raised as itself."""
        if self._where.workers == 0:
            yield from map(function, tasks)
            return
        local = self._where.cluster == "local"
        options = Options(
            where="processes" if local else "cluster",
            cluster=None if local else self._where.cluster,
            workers=self._where.workers,
            batch=1,
            ordered=False,
            resources={"num_cpus": self._where.threads},
        )
        with closing(run(Measured(function), tasks, options, without_progress(self._emit))) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    cause = outcome.error.__cause__
                    if isinstance(cause, DrayError):
                        raise cause
                    raise WorkerError(f"A worker failed: {outcome.error.what}", fix=outcome.error.fix)
                done: _Done[Report] = outcome.value
                self._peaks[done.process] = max(done.peak_bytes, self._peaks.get(done.process, 0))
                yield done.report


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had, what it maps of files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
