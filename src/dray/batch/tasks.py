"""Tasks of dray's own commands: in this process, in processes of this machine, or on a cluster."""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from dray.batch.engine import Emit
from dray.batch.function import BatchFunction, Context, Tell, ignore, opened
from dray.batch.options import Options
from dray.batch.run import opened_engine, outcomes
from dray.errors import ConfigError, DrayError, WorkerError
from dray.events.kinds import Progress
from dray.threads.decide import threads_in_process, threads_on_this_machine
from dray.threads.limits import cpus_of_this_process

Report = TypeVar("Report")
Task = TypeVar("Task")
Count = int | Literal["auto"]

FEW_CELLS = 50_000_000
"""Rows x columns below which a second worker costs more than it brings."""


@dataclass(frozen=True, slots=True)
class Workers:
    """How many workers do the tasks, and with how many threads each."""

    count: Count
    """0: this process; auto: as many as a cluster has room for."""
    threads: int | None
    """None: as many as a node of the cluster has for each worker."""
    cluster: str

    @staticmethod
    def of(asked: Count, threads: int | None, cluster: str, tasks: int) -> Workers:
        """Decide. This process is as fast as several on the same machine; a cluster that is named is meant."""
        if threads is not None and threads < 1:
            raise ConfigError(f"threads is {threads}.", fix="Give at least 1.")
        if asked != "auto" and asked < 0:
            raise ConfigError(f"workers is {asked}.", fix="Give 0 for this process, N for workers, or auto.")
        if asked == 0 or (asked == "auto" and cluster == "local"):
            return Workers(0, threads or cpus_of_this_process(), cluster)
        if asked == "auto":
            return Workers("auto", threads or 1, cluster)
        count = min(asked, max(1, tasks))
        return Workers(count, threads or max(1, cpus_of_this_process() // count if cluster == "local" else 1), cluster)

    @staticmethod
    def for_threads(asked: Count, threads: int | None, cluster: str, tasks: int, cells: int) -> Workers:
        """Decide where one worker uses many threads: no more of them than CPUs, and one worker a node."""
        cpus = cpus_of_this_process()
        if asked == 0 or (asked == "auto" and cluster == "local"):
            return Workers(0, threads_in_process(cpus, threads), cluster)
        if asked == "auto":
            return Workers(1 if cells < FEW_CELLS else "auto", threads, cluster)
        count = min(asked, max(1, tasks))
        if cluster == "local":
            threads = threads_on_this_machine(cpus, count, threads).threads
        return Workers(count, threads, cluster)


@dataclass(frozen=True, slots=True)
class _Done(Generic[Report]):
    report: Report
    process: str
    peak_bytes: int


class Measured(BatchFunction[Task, _Done[Report]]):
    """A function of one task that also tells which process it ran in, and the most memory that one has had."""

    def __init__(self, function: Callable[[Task], Report] | BatchFunction[Task, Report]) -> None:
        self._function = function

    def open(self, context: Context) -> Callable[[Task], _Done[Report]]:
        call = opened(self._function, context)
        process = f"{socket.gethostname()} {os.getpid()}"
        return lambda task: _Done(call(task), process, peak_memory_bytes())


class TaskRun:
    """Runs tasks and remembers the memory of all processes that did. `tell` receives what tasks tell of themselves."""

    def __init__(self, workers: Workers, emit: Emit, tell: Tell = ignore) -> None:
        self._asked, self._emit, self._tell = workers, emit, tell
        self._peaks: dict[str, int] = {}
        self.workers = 0
        """How many other processes there were tasks for."""

    @property
    def peak_memory_bytes(self) -> int:
        """This process's peak and those of all that worked for it."""
        return peak_memory_bytes() + sum(self._peaks.values())

    def run(
        self, function: Callable[[Task], Report] | BatchFunction[Task, Report], tasks: Sequence[Task]
    ) -> Iterator[Report]:
        """Yield what came of the tasks, as they are done; an error of ours is raised as itself."""
        asked = self._asked
        if asked.count == 0:
            threads = asked.threads or cpus_of_this_process()
            yield from map(opened(function, Context(threads, own_process=False, tell=self._tell)), tasks)
            return
        local = asked.cluster == "local"
        options = Options(
            where="processes" if local else "cluster",
            cluster=None if local else asked.cluster,
            workers=asked.count,
            batch=1,
            ordered=False,
            resources={} if asked.threads is None else {"num_cpus": asked.threads},
            fills_nodes=asked.threads is None,
        )
        emit = without_progress(self._emit)
        with opened_engine(Measured(function), tasks, options, emit, tell=self._tell) as engine:
            self.workers = max(1, min(engine.executor.slots, len(tasks)))
            with closing(outcomes(engine)) as found:
                for outcome in found:
                    if outcome.error is not None:
                        cause = outcome.error.__cause__
                        if isinstance(cause, DrayError):
                            raise cause
                        raise WorkerError(f"A worker failed: {outcome.error.what}", fix=outcome.error.fix)
                    done: _Done[Report] = outcome.value
                    self._peaks[done.process] = max(done.peak_bytes, self._peaks.get(done.process, 0))
                    yield done.report


def without_progress(emit: Emit) -> Emit:
    """Drop the engine's progress in tasks: rows and users say more."""
    return lambda event: None if isinstance(event, Progress) else emit(event)


def peak_memory_bytes() -> int:
    """Return the most memory that this process has had, what it maps of files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
