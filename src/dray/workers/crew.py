"""The workers of a run: how many with how many threads, who is there, who was lost, who is asked for instead."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dray.config.run_file import Level, WorkerRange
from dray.errors import ClusterError, DrayError, WorkerError
from dray.learners.xgboost import Standing
from dray.telemetry.events import Telemetry
from dray.threads.decide import threads_in_process
from dray.threads.limits import cpus_of_this_process
from dray.workers.group import Done, Group, Happening, Lost, Member, Raised, Ready
from dray.workers.policy import Limits, to_start
from dray.workers.roles import Role
from dray.workers.watch import Watch

if TYPE_CHECKING:
    from dray.cluster.cluster import Node

SMALL_CELLS = 50_000_000
"""Rows x features below which a second worker costs more than it brings."""
TICK_S = 0.5

Asked = int | Literal["auto"] | WorkerRange


@dataclass(frozen=True)
class Terms:
    """What holds when a worker is lost."""

    level: Level = "elastic"
    failures: int = 100
    failures_in_round: int = 5
    heartbeat_s: float = 8.0
    wait_s: float = 300.0

    def limits(self, low: int, high: int) -> Limits:
        return Limits(low, high, self.failures_in_round, self.failures, self.wait_s)


class Crew:
    """A group with its membership. It replaces who is lost as far as its level says; the rest is the caller's."""

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
        """Who was lost last, and why, for the user."""
        self.phase = "start"
        self.begun = False
        self.changed = True
        """Something has happened that may call for another decision."""
        self._telemetry = telemetry
        self._expected: frozenset[int] = frozenset()
        self._short = False
        self._seen: set[int] = set()

    @property
    def alone(self) -> bool:
        """The one worker is this process."""
        return self.cluster == "none"

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
        """Raise if nobody is there and nobody can be expected, or if too many were lost."""
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
        """Ask for others in place of those who were lost.

        Not at once when one is: finding out whether its node still answers may take a second, and whoever waits in a
        ring for it is to be freed first.
        """
        if self._short and self.level != "stop":
            self._short = False
            self._ask_for_workers()
            self._look_around()

    def step(self, timeout_s: float = TICK_S) -> list[Happening]:
        """Return what has happened, after taking it into account."""
        self.replace_lost()
        found = self.group.happenings(timeout_s)
        for happening in found:
            if isinstance(happening, Ready):
                self._welcome(happening.member)
            elif isinstance(happening, Lost):
                self._miss(happening)
        self._look_around()
        return found

    def fail(self, worker: int, error: Exception) -> Lost:
        """A worker raised what is nobody's mistake: end it, as if it had died. In one process that is the end."""
        if self.alone:
            raise error
        trace = "".join(traceback.format_exception(error))
        what = error.what if isinstance(error, DrayError) else f"{type(error).__name__}: {error}"
        lost = Lost(worker, f"it raised {what}", 0.0, error)
        self.group.end(worker)
        self._miss(lost, trace)
        self._look_around()  # the replacement just asked for is expected: nobody else need load the rows
        return lost

    def run(self, method: str, tasks: Sequence[Sequence[Any]]) -> list[Any]:
        """Have every task done by some worker, again by another if one is lost; return the results in order."""
        todo = deque(range(len(tasks)))
        doing: dict[int, tuple[int, int]] = {}
        results: dict[int, Any] = {}
        while len(results) < len(tasks):
            busy = {worker for worker, _ in doing.values()}
            for worker in [worker for worker in self.ready if worker not in busy and worker not in self.leaving]:
                if todo:
                    index = todo.popleft()
                    doing[self.group.call(worker, method, *tasks[index])] = worker, index
            self.require_some()
            for happening in self.step():
                if isinstance(happening, Done):
                    _, index = doing.pop(happening.call)
                    results[index] = happening.value
                elif isinstance(happening, Raised):
                    refuse_mistakes(happening.error)
                    happening = self.fail(happening.worker, happening.error)
                if isinstance(happening, Lost):
                    void = [call for call, (worker, _) in doing.items() if worker == happening.worker]
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
            self._telemetry.emit("left", worker=worker, host=member.host, why=why)
        self.changed = True

    def _welcome(self, member: Member) -> None:
        self.starting.discard(member.worker)
        self.ready[member.worker] = member
        self.changed = True
        again = member.worker in self._seen
        self._seen.add(member.worker)
        self._telemetry.emit(
            "worker_started",
            worker=member.worker,
            host=member.host,
            pid=member.pid,
            threads=member.threads,
            replacement=again,
        )

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
            "worker_lost",
            worker=lost.worker,
            host=member.host if member else None,
            pid=member.pid if member else None,
            cause=lost.cause,
            noticed_after_s=round(lost.silent_s, 3),
            round=self.watch.rounds_told + (self.phase == "train"),
            phase=self.phase,
            **({"detail": trace} if trace else {}),
        )
        self._short = True

    def _ask_for_workers(self) -> None:
        staying = self.ready.keys() - self.leaving
        wanted = to_start(self.level, self.limits, staying, self.starting, self.first, self.begun)
        # Those asked for in place of who is leaving have numbers beyond the maximum, and count.
        room = self.limits.max_workers - len(staying) - len(self.starting)
        for slot in wanted[: max(0, room)]:
            # The number of one who is leaving is in use till it is gone.
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
            host = self.ready[worker].host if worker in self.ready else None
            self._telemetry.emit("leaving", worker=worker, host=host, why=leaving[worker])
        if frozenset(leaving) != self.leaving:
            self.leaving = frozenset(leaving)
            self.changed = True
            self._ask_for_workers()  # one who leaves is replaced before it goes
        expected = self.group.expected()
        if expected != self._expected:
            self._expected = expected
            self.changed = True


def refuse_mistakes(error: Exception) -> None:
    """Raise what no other worker would do better: a mistake in the data or the configuration."""
    if isinstance(error, DrayError) and not isinstance(error, WorkerError):
        raise error


def choose_workers(
    asked: Asked, cluster: str, nodes: Sequence[Node], row_groups: int, cells: int
) -> tuple[int, int, str]:
    """Return the least and the most workers, 0 for this process, and the reason. Pure."""
    if isinstance(asked, WorkerRange):
        return asked.min, asked.max, "as asked"
    if asked != "auto":
        return min(1, asked), asked, "as asked"
    if cluster == "local":
        return 0, 0, "one process is the fastest way on one machine"
    if cells < SMALL_CELLS:
        return 1, 1, f"{cells:,} cells are too few to share"
    workers = max(1, min(len(nodes), row_groups))
    reason = f"one on each of {len(nodes)} nodes" if workers == len(nodes) else f"{row_groups} row groups"
    return 1, workers, reason


@contextmanager
def started_crew(
    asked: Asked,
    threads: int | None,
    cluster: str,
    row_groups: int,
    cells: int,
    telemetry: Telemetry,
    *,
    terms: Terms | None = None,
    on_copy: Callable[[Standing], None] | None = None,
    rounds_told: int = 0,
    role: Role = "boosting",
) -> Iterator[Crew]:
    """Start the workers; end them, and the cluster if it was started here, when the block is left."""
    terms, on_copy = terms or Terms(), on_copy or _ignore
    if asked == 0 or (asked == "auto" and cluster == "local"):
        from dray.workers.alone import Alone

        *_, reason = choose_workers(asked, cluster, [], row_groups, cells)
        decided = threads_in_process(cpus_of_this_process(), threads)
        watch = Watch(telemetry, shared=True, rounds_told=rounds_told)
        alone = Alone(decided, watch, on_copy=on_copy, role=role)
        reasons: tuple[str, ...] = (f"workers: this process ({reason})", f"threads: {decided}")
        crew = Crew(
            alone,
            telemetry,
            watch,
            "stop",
            terms.limits(1, 1),
            first=1,
            threads=decided,
            cluster="none",
            reasons=reasons,
        )
        try:
            crew.begin()
            yield crew
        finally:
            alone.close()
        return

    from dray.cluster.connect import connect
    from dray.cluster.joined import JoinedCluster
    from dray.cluster.placement import PLACE_TIMEOUT_S, SOON_S
    from dray.workers.ray_group import RayGroup

    first_guess = asked.max if isinstance(asked, WorkerRange) and cluster == "local" else asked
    guess = first_guess if isinstance(first_guess, int) else 1
    may_grow, rows_move = isinstance(asked, WorkerRange), role == "factorization"
    with connect(cluster, workers=guess, threads=threads, may_grow=may_grow, rows_move=rows_move) as connected:
        low, high, reason = choose_workers(asked, cluster, connected.nodes(), row_groups, cells)
        if isinstance(connected, JoinedCluster) and not isinstance(asked, int):
            connected.decide(high, threads, may_grow=isinstance(asked, WorkerRange))
        watch = Watch(telemetry, shared=False, rounds_told=rounds_told)
        group = RayGroup(connected, watch, heartbeat_s=terms.heartbeat_s, on_copy=on_copy, role=role)
        try:
            # More may come later, so what is there is enough to begin with.
            patience_s = SOON_S if isinstance(asked, WorkerRange) else PLACE_TIMEOUT_S
            given = group.reserve(high, at_least=0, timeout_s=patience_s)
            if len(given) < low or (len(given) < high and not isinstance(asked, WorkerRange)):
                given = _wait_for_places(group, low, high, terms.wait_s, telemetry, fixed=isinstance(asked, int))
            count = f"{high}" if low == high or not isinstance(asked, WorkerRange) else f"{low} to {high}"
            crew = Crew(
                group,
                telemetry,
                watch,
                terms.level,
                terms.limits(low, high),
                first=len(given),
                threads=connected.threads,
                cluster=cluster,
                reasons=(f"workers: {count} ({reason})", *connected.reasons),
            )
            crew.begin()
            yield crew
        finally:
            group.close()


def _ignore(_copy: Standing) -> None:
    """Nobody keeps models here."""


def _wait_for_places(group: Any, low: int, high: int, wait_s: float, telemetry: Telemetry, *, fixed: bool) -> list[int]:
    """Wait for the places that a run needs to begin: others may be freed, or an autoscaler may bring them."""
    if fixed:
        return list(group.reserve(high, at_least=high, timeout_s=0.01))  # it has waited already: say who is short
    telemetry.emit("waiting", why=f"Waiting for room for at least {low} workers.", limit_s=wait_s)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return list(group.reserve(high, at_least=low, timeout_s=2.0))
        except ClusterError:
            if time.monotonic() > deadline:
                raise
