"""How many workers with how many threads, and starting them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dray.threads.decide import threads_in_process
from dray.threads.limits import cpus_of_this_process
from dray.workers.group import Group

if TYPE_CHECKING:
    from dray.cluster.cluster import Node

SMALL_CELLS = 50_000_000
"""Rows x features below which a second worker costs more than it brings."""


@dataclass(frozen=True, slots=True)
class Crew:
    """A started group, and why it is as it is."""

    group: Group
    threads: int
    cluster: str
    reasons: tuple[str, ...]

    @property
    def workers(self) -> int:
        """As asked: 0 is this process."""
        return 0 if self.cluster == "none" else len(self.group.members)


def choose_workers(
    asked: int | Literal["auto"], cluster: str, nodes: Sequence[Node], row_groups: int, cells: int
) -> tuple[int, str]:
    """Return the number of workers, 0 for this process, and the reason. Pure."""
    if asked != "auto":
        return asked, "as asked"
    if cluster == "local":
        return 0, "one process is the fastest way on one machine"
    if cells < SMALL_CELLS:
        return 1, f"{cells:,} cells are too few to share"
    workers = max(1, min(len(nodes), row_groups))
    return workers, f"one on each of {len(nodes)} nodes" if workers == len(nodes) else f"{row_groups} row groups"


@contextmanager
def started_crew(
    asked: int | Literal["auto"], threads: int | None, cluster: str, row_groups: int, cells: int
) -> Iterator[Crew]:
    """Start the workers; end them, and the cluster if it was started here, when the block is left."""
    if asked == 0 or (asked == "auto" and cluster == "local"):
        from dray.workers.alone import Alone

        _, reason = choose_workers(asked, cluster, [], row_groups, cells)
        decided = threads_in_process(cpus_of_this_process(), threads)
        group: Group = Alone(decided)
        try:
            yield Crew(group, decided, "none", (f"workers: this process ({reason})", f"threads: {decided}"))
        finally:
            group.close()
        return

    from dray.cluster.connect import connect
    from dray.cluster.joined import JoinedCluster
    from dray.workers.ray_group import RayGroup

    with connect(cluster, workers=1 if asked == "auto" else asked, threads=threads) as connected:
        workers, reason = choose_workers(asked, cluster, connected.nodes(), row_groups, cells)
        if asked == "auto" and isinstance(connected, JoinedCluster):
            connected.decide(workers, threads)
        group = RayGroup(connected, workers)
        try:
            reasons = (f"workers: {workers} ({reason})", *connected.reasons)
            yield Crew(group, connected.threads, cluster, reasons)
        finally:
            group.close()
