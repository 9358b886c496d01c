"""Starting the workers of a run: how many, with how many threads, in this process or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dray.config.run_file import Level, WorkerRange
from dray.elastic.membership import Membership
from dray.elastic.policy import Limits
from dray.elastic.watch import Watch
from dray.errors import ClusterError
from dray.events.kinds import Waiting
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import Checkpoint
from dray.learners.registry import find
from dray.threads.decide import threads_in_process
from dray.threads.limits import cpus_of_this_process

if TYPE_CHECKING:
    from dray.clusters.cluster import Node

SMALL_CELLS = 50_000_000
"""Rows x features below which a second worker costs more than it brings."""
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


def trains_alone(asked: Asked, cluster: str) -> bool:
    """Whether this process trains by itself, and no worker is started."""
    return asked == 0 or (asked == "auto" and cluster == "local")


@contextmanager
def started_workers(
    asked: Asked,
    threads: int | None,
    cluster: str,
    row_groups: int,
    cells: int,
    telemetry: Telemetry,
    *,
    terms: Terms | None = None,
    on_copy: Callable[[Checkpoint], None] | None = None,
    rounds_told: int = 0,
    learner: str,
) -> Iterator[Membership]:
    """Start the workers; end them, and the cluster if it was started here, when the block is left."""
    terms, on_copy = terms or Terms(), on_copy or _ignore
    if trains_alone(asked, cluster):
        from dray.elastic.alone import Alone

        *_, reason = choose_workers(asked, cluster, [], row_groups, cells)
        decided = threads_in_process(cpus_of_this_process(), threads)
        watch = Watch(telemetry, shared=True, rounds_told=rounds_told)
        alone = Alone(decided, watch, on_copy=on_copy, learner=learner)
        reasons: tuple[str, ...] = (f"workers: this process ({reason})", f"threads: {decided}")
        membership = Membership(
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
            membership.begin()
            yield membership
        finally:
            alone.close()
        return

    from dray.clusters.connect import connect
    from dray.clusters.joined import JoinedCluster
    from dray.clusters.placement import PLACE_TIMEOUT_S, SOON_S
    from dray.elastic.ray_group import RayGroup

    first_guess = asked.max if isinstance(asked, WorkerRange) and cluster == "local" else asked
    guess = first_guess if isinstance(first_guess, int) else 1
    may_grow, rows_move = isinstance(asked, WorkerRange), find(learner).layout == "keyed"
    with connect(cluster, workers=guess, threads=threads, may_grow=may_grow, rows_move=rows_move) as connected:
        low, high, reason = choose_workers(asked, cluster, connected.nodes(), row_groups, cells)
        if isinstance(connected, JoinedCluster) and not isinstance(asked, int):
            connected.decide(high, threads, may_grow=isinstance(asked, WorkerRange))
        watch = Watch(telemetry, shared=False, rounds_told=rounds_told)
        group = RayGroup(connected, watch, heartbeat_s=terms.heartbeat_s, on_copy=on_copy, learner=learner)
        try:
            # More may come later, so what is there is enough to begin with.
            patience_s = SOON_S if isinstance(asked, WorkerRange) else PLACE_TIMEOUT_S
            given = group.reserve(high, at_least=0, timeout_s=patience_s)
            if len(given) < low or (len(given) < high and not isinstance(asked, WorkerRange)):
                given = _wait_for_places(group, low, high, terms.wait_s, telemetry, fixed=isinstance(asked, int))
            count = f"{high}" if low == high or not isinstance(asked, WorkerRange) else f"{low} to {high}"
            membership = Membership(
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
            membership.begin()
            yield membership
        finally:
            group.close()


def _ignore(_copy: Checkpoint) -> None:
    """Nothing keeps models here."""


def _wait_for_places(group: Any, low: int, high: int, wait_s: float, telemetry: Telemetry, *, fixed: bool) -> list[int]:
    """Wait for the places that a run needs to begin: others may be freed, or an autoscaler may bring them."""
    if fixed:
        return list(group.reserve(high, at_least=high, timeout_s=0.01))  # it has waited already: say what is short
    telemetry.emit(Waiting(f"Waiting for room for at least {low} workers.", wait_s))
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return list(group.reserve(high, at_least=low, timeout_s=2.0))
        except ClusterError:
            if time.monotonic() > deadline:
                raise
