"""The workers of a run: which are ready, starting, leaving or lost, and which are asked for instead."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

from dray.config.run_file import Level
from dray.elastic.group import Group, GroupEvent, Lost, Member, Raised, Ready, Returned
from dray.elastic.policy import Limits, to_start
from dray.elastic.watch import Watch
from dray.errors import ClusterError, DrayError, WorkerError
from dray.events.kinds import WorkerLeaving, WorkerLeft, WorkerLost, WorkerStarted
from dray.events.telemetry import Telemetry
from dray.learners.learner import Op

TICK_S = 0.5

R = TypeVar("R")


class Membership:
    """A group with its membership. It replaces lost workers as far as its level says; the rest is the caller's."""

    def __init__(
        self,
        group: Group,
        telemetry: Telemetry,
        watch: Watch,
        level: Level,
        limits: Limits,
        *,
        first: int,
        threads: int,
        cluster: str,
        reasons: tuple[str, ...],
    ) -> None:
        self.group = group
        self.watch = watch
        self.level = level
        self.limits = limits
        self.first = first
        """Workers that the run begins with."""
        self.threads = threads
        self.cluster = cluster
        self.reasons = reasons
        self.ready: dict[int, Member] = {}
        self.starting: set[int] = set()
        self.leaving: frozenset[int] = frozenset()
        self.failures = 0
        self.last_loss = ""
        """Which worker was lost last, and why, for the user."""
        self.phase = "start"
        self.begun = False
        self.changed = True
        """Something has happened that may call for another decision."""
        self._telemetry = telemetry
        self._expected: frozenset[int] = frozenset()
        self._short = False
        self._seen: set[int] = set()
        self._given_up: set[int] = set()

    @property
    def alone(self) -> bool:
        """The one worker is this process."""
        return self.cluster == "none"

    @property
    def count(self) -> int:
        """How many workers are ready."""
        return len(self.ready)

    @property
    def expected(self) -> frozenset[int]:
        return self._expected

    def begin(self) -> None:
        """Ask for the workers, and wait for those that the run begins with."""
        self._ask_for_workers()
        deadline = time.monotonic() + self.limits.wait_s
        while self.expected or len(self.ready) < self.limits.min_workers:
            self.require_some()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{len(self.ready)} of at least {self.limits.min_workers} workers have started within "
                    f"{self.limits.wait_s:g} s. {self.last_loss}".rstrip(),
                    fix="Look at the cluster's state with: ray status",
                )
            self.step()
        self.begun = True

    def require_some(self) -> None:
        """Raise if there is no worker and none can be expected, or if too many were lost."""
        self.replace_lost()
        if self.failures and self.level == "stop":
            raise WorkerError(
                f"A worker was lost, and the run was to stop then (on_failure: stop). {self.last_loss}",
                fix="Start it again.",
            )
        if self.failures > self.limits.failures_in_round + len(self._seen):
            raise WorkerError(
                f"{self.failures} workers were lost before training began. {self.last_loss}",
                fix="Look for the cause in the run's events (worker_lost): memory, a library that is missing there.",
            )
        if not self.ready and not self.starting:
            raise WorkerError(
                f"No worker is left. {self.last_loss}".rstrip(), fix="Look at the cluster's state with: ray status"
            )

    def replace_lost(self) -> None:
        """Ask for others in place of those that were lost.

        Not at once when one is: finding out whether its node still answers may take a second, and workers that wait
        in a ring for it are to be freed first.
        """
        if self._short and self.level != "stop":
            self._short = False
            self._ask_for_workers()
            self._look_around()

    def step(self, timeout_s: float = TICK_S) -> list[GroupEvent]:
        """Return what has happened, after taking it into account."""
        self.replace_lost()
        found = self.group.poll(timeout_s)
        for event in found:
            if isinstance(event, Ready):
                self._welcome(event.member)
            elif isinstance(event, Lost):
                self._miss(event)
        self._look_around()
        return found

    def fail(self, worker: int, error: Exception, *, replace: bool = True, cause: str | None = None) -> Lost:
        """A worker raised what is not a user's mistake: end it, as if it had died. In one process that is the end.

        Without `replace` no other worker is started in its place: it would fail there in the same way. `cause` is what
        happened if the worker itself did not raise.
        """
        if self.alone:
            raise error
        trace = "".join(traceback.format_exception(error))
        what = error.what if isinstance(error, DrayError) else f"{type(error).__name__}: {error}"
        lost = Lost(worker, cause or f"it raised {what}", 0.0, error)
        if not replace:
            self._given_up.add(worker)
        self.group.end(worker)
        self._miss(lost, trace)
        self._look_around()  # the replacement just asked for is expected: no other worker need load the rows
        return lost

    def run(self, op: Op[..., R], tasks: Sequence[Sequence[Any]]) -> list[R]:
        """Have every task, the inputs of one call, done by some worker, again by another if one is lost.

        Return the results in the order of the tasks.
        """
        todo = deque(range(len(tasks)))
        doing: dict[int, tuple[int, int]] = {}
        results: dict[int, R] = {}
        while len(results) < len(tasks):
            busy = {worker for worker, _ in doing.values()}
            for worker in [worker for worker in self.ready if worker not in busy and worker not in self.leaving]:
                if todo:
                    index = todo.popleft()
                    doing[self.group.call(worker, op, *tasks[index]).number] = worker, index
            self.require_some()
            for event in self.step():
                if isinstance(event, Returned):
                    _, index = doing.pop(event.call)
                    results[index] = event.value
                elif isinstance(event, Raised):
                    refuse_mistakes(event.error)
                    event = self.fail(event.worker, event.error)
                if isinstance(event, Lost):
                    void = [call for call, (worker, _) in doing.items() if worker == event.worker]
                    todo.extendleft(doing.pop(call)[1] for call in void)
        return [results[index] for index in range(len(tasks))]

    def restart(self) -> None:
        """End all workers and ask for new ones."""
        for worker in list(self.starting):
            self.group.end(worker)
        self.starting.clear()
        for worker in list(self.ready):
            self.dismiss(worker, "all workers start again (on_failure: restart)")
        self._ask_for_workers()

    def dismiss(self, worker: int, why: str) -> None:
        """End a worker that is not needed any more."""
        self.group.end(worker)
        if (member := self.ready.pop(worker, None)) is not None:
            self._telemetry.emit(WorkerLeft(worker, member.host, why))
        self.changed = True

    def _welcome(self, member: Member) -> None:
        self.starting.discard(member.worker)
        self.ready[member.worker] = member
        self.changed = True
        again = member.worker in self._seen
        self._seen.add(member.worker)
        self._telemetry.emit(WorkerStarted(member.worker, member.host, member.pid, member.threads, replacement=again))

    def _miss(self, lost: Lost, trace: str | None = None) -> None:
        member = self.ready.pop(lost.worker, None)
        self.starting.discard(lost.worker)
        self.failures += 1
        where = f" on {member.host}" if member else ""
        self.last_loss = f"Worker {lost.worker}{where}: {lost.cause.rstrip('.')}."
        self.changed = True
        if trace is None and lost.error is not None:
            trace = str(lost.error)
        self._telemetry.emit(
            WorkerLost(
                worker=lost.worker,
                host=member.host if member else None,
                pid=member.pid if member else None,
                cause=lost.cause,
                noticed_after_s=round(lost.silent_s, 3),
                round=self.watch.rounds_told + (self.phase == "train"),
                phase=self.phase,
                detail=trace or None,
            )
        )
        self._short = True

    def _ask_for_workers(self) -> None:
        staying = self.ready.keys() - self.leaving
        wanted = to_start(
            self.level, self.limits, staying, self.starting, self.first, self.begun, given_up=self._given_up
        )
        # Those asked for in place of leaving ones have numbers beyond the maximum, and count.
        room = self.limits.max_workers - len(staying) - len(self.starting)
        for slot in wanted[: max(0, room)]:
            # The number of a leaving worker is in use until it is gone.
            worker = slot if slot not in self.ready else self._free_number()
            self.starting.add(worker)
            self.group.start(worker)

    def _free_number(self) -> int:
        worker = self.limits.max_workers
        while worker in self.ready or worker in self.starting:
            worker += 1
        return worker

    def _look_around(self) -> None:
        leaving = self.group.leaving()
        for worker in leaving.keys() - self.leaving:
            host = self.ready[worker].host if worker in self.ready else ""
            self._telemetry.emit(WorkerLeaving(worker, host, leaving[worker]))
        if frozenset(leaving) != self.leaving:
            self.leaving = frozenset(leaving)
            self.changed = True
            self._ask_for_workers()  # a leaving worker is replaced before it goes
        expected = self.group.expected()
        if expected != self._expected:
            self._expected = expected
            self.changed = True


def refuse_mistakes(error: Exception) -> None:
    """Raise what no other worker would do better: a mistake in the data or the configuration."""
    if isinstance(error, DrayError) and not isinstance(error, WorkerError):
        raise error
