"""Whether distributing pays: predicted times from what the first items cost. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dray.events.format import count, duration, size

START_PROCESS_S = 0.1
"""To start the processes of this machine, all at the same time."""
JOIN_CLUSTER_S = 3.0
NETWORK_BYTES_S = 200e6
"""What a driver sends to and takes from a cluster: a fast network, pickled on one core."""
WORTH = 1.2
"""A less simple way is recommended when it is so many times as fast."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the first items were measured to cost."""

    items: int
    item_s: float
    """Inside the function."""
    moving_s: float
    """To hand one item to another process and its result back."""
    item_bytes: float
    """Of an item and its result."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Predicted seconds by executor, and what to do. `str()` of it is for people."""

    cost: Cost
    total: int | None
    """Items altogether, if that is known; otherwise the times are for a thousand."""
    processes: int
    """On this machine."""
    cluster_cpus: float | None
    """Of the cluster that was named, or is joined; None when there is none."""
    here_s: float
    machine_s: float
    cluster_s: float | None
    recommended: str
    """here, processes or cluster."""
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        of = f"{count(self.total)} items" if self.total is not None else "1,000 items (how many there are is not known)"
        cost = self.cost
        cluster = (
            f"{duration(self.cluster_s)} ({self.cluster_cpus:g} CPUs)"
            if self.cluster_s is not None and self.cluster_cpus is not None
            else "no cluster is named or joined (cluster=)"
        )
        return "\n".join(
            [
                f"One item      {_short(cost.item_s)} in the function (mean of {count(cost.items)}), "
                f"{_short(cost.moving_s)} and {size(cost.item_bytes)} to move it and its result",
                f"For {of}:",
                f"  one process   {duration(self.here_s)}",
                f"  this machine  {duration(self.machine_s)} ({self.processes} processes)",
                f"  the cluster   {cluster}",
                f'Recommended   where="{self.recommended}": {self.why}',
            ]
        )


def judge(
    cost: Cost, total: int | None, processes: int, cluster_cpus: float | None = None, joined: bool = False
) -> Verdict:
    """Predict the time of all items in one process, on this machine and on the cluster; recommend one.

    One thread of the driver moves all items, wherever they run: that is a floor for both.
    """
    items = total if total is not None else 1000
    here = items * cost.item_s
    machine = START_PROCESS_S + max(_spread(items, processes, cost.item_s), items * cost.moving_s)
    cluster = None
    if cluster_cpus:
        start = 0.0 if joined else JOIN_CLUSTER_S
        network = items * cost.item_bytes / NETWORK_BYTES_S
        cluster = start + max(_spread(items, cluster_cpus, cost.item_s), items * cost.moving_s, network)
    if total is None:  # the start does not count for what has no end
        machine -= START_PROCESS_S
        cluster = cluster if cluster is None or joined else cluster - JOIN_CLUSTER_S
    recommended, why = _recommend(here, machine, cluster, cost, processes)
    return Verdict(cost, total, processes, cluster_cpus, here, machine, cluster, recommended, why)


def _spread(items: int, slots: float, item_s: float) -> float:
    """Seconds of that many items on so many slots: no less than one item, and whole rounds of long ones."""
    rounds = -(-items // max(1, int(slots))) if items < 100 * slots else items / slots
    return rounds * item_s


def _recommend(here: float, machine: float, cluster: float | None, cost: Cost, processes: int) -> tuple[str, str]:
    if cluster is not None and cluster * WORTH < min(here, machine):
        return "cluster", f"{min(here, machine) / cluster:.1f} times as fast as this machine."
    if machine * WORTH < here:
        why = f"{here / machine:.1f} times as fast as one process"
        return "processes", f"{why}; a cluster would not gain enough." if cluster is not None else f"{why}."
    if cost.moving_s > cost.item_s / max(1, processes):
        return "here", "moving the items costs as much as running them. Give the function more to do for each item."
    return "here", "it is over before other processes would have helped."


def _short(seconds: float) -> str:
    if seconds >= 1:
        return duration(seconds)
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
