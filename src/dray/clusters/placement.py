"""Placements of workers: CPUs reserved on some node, one placement group a worker.

One group for all would be all or nothing; a worker that comes later, or moves to another node, needs its own.
A placement that cannot be had yet stays asked for: that is what an autoscaler looks at.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dray.clusters.cluster import Cluster, Node
from dray.errors import ClusterError

PLACE_TIMEOUT_S = 10.0
SOON_S = 2.0
"""A placement for which there is room is given within this time."""


_ASIDE_S = 60.0
"""By then Ray has found out about a dead node itself."""


class Placements:
    """The placements of one run's workers. One thread uses it; `close` gives them back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[int, Any] = {}
        self._asked_at: dict[int, float] = {}
        self._given: set[int] = set()
        self._aside: list[tuple[float, Any]] = []

    def ask(self, worker: int) -> None:
        """Ask for a placement, unless the worker has one on a node that lives and stays."""
        from ray.util.placement_group import placement_group

        self._tidy()
        if worker in self._groups:
            if self._is_good(worker):
                return
            # Given back at once, the CPUs of a node that has just died would be given out again, to wait there in vain.
            self._aside.append((time.monotonic(), self._groups.pop(worker)))
            self._given.discard(worker)
        self._groups[worker] = placement_group([{"CPU": self._cluster.threads}], strategy="PACK")
        self._asked_at[worker] = time.monotonic()

    def wait(self, at_least: int, timeout_s: float = PLACE_TIMEOUT_S) -> list[int]:
        """Wait for all placements that were asked for; return those that are given, or raise if these are too few."""
        deadline = time.monotonic() + timeout_s
        for worker, group in self._groups.items():
            if group.wait(max(0.01, deadline - time.monotonic())):
                self._given.add(worker)
        if len(self._given) < at_least:
            raise busy(self._cluster.nodes(), at_least, self._cluster.threads, timeout_s)
        return sorted(self._given)

    def with_room(self, workers: Collection[int]) -> frozenset[int]:
        """Return those whose placement is given, or was asked for only just now."""
        self._tidy()
        now = time.monotonic()
        for worker in workers:
            if worker not in self._given and _table(self._groups[worker]).get("state") == "CREATED":
                self._given.add(worker)
        return frozenset(w for w in workers if w in self._given or now - self._asked_at[w] < SOON_S)

    def options(self, worker: int) -> dict[str, Any]:
        """Return the options with which a worker starts fastest on its placement."""
        return self._cluster.actor_options(self._groups[worker], 0)

    def leaving(self, nodes: Mapping[int, str]) -> dict[int, str]:
        """Return the workers on nodes that are about to go away, given the node of every worker, and why."""
        draining = self._cluster.draining()
        return {worker: draining[node] for worker, node in nodes.items() if node in draining}

    def give_back(self, worker: int) -> None:
        self._given.discard(worker)
        if (group := self._groups.pop(worker, None)) is not None:
            _remove(group)

    def close(self) -> None:
        for worker in list(self._groups):
            self.give_back(worker)
        for _, group in self._aside:
            _remove(group)
        self._aside = []

    def _is_good(self, worker: int) -> bool:
        group = self._groups[worker]
        if _table(group).get("state") != "CREATED":
            return worker not in self._given  # still asked for; or taken away with its node
        node = self._node_of(group)
        return node is not None and node.answers()

    def _node_of(self, group: Any) -> Node | None:
        nodes = set(_table(group).get("bundles_to_node_id", {}).values())
        return next((node for node in self._cluster.nodes() if node.id in nodes), None)

    def _tidy(self) -> None:
        """Give back what was put aside, once its node is known to be gone, or after all there again."""
        now = time.monotonic()
        for entry in list(self._aside):
            since, group = entry
            if now - since > _ASIDE_S or self._node_of(group) is None:
                self._aside.remove(entry)
                _remove(group)


def _remove(group: Any) -> None:
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def _table(group: Any) -> dict[str, Any]:
    from ray.util.placement_group import placement_group_table

    return dict(placement_group_table(group))


def busy(nodes: Sequence[Node], workers: int, threads: int, waited_s: float) -> ClusterError:
    """Return the error that says which nodes are taken."""
    held = "; ".join(f"{node.address}: {node.free_cpus:g} of {node.cpus:g} free" for node in nodes)
    return ClusterError(
        f"{workers} workers of {threads} CPUs did not get them within {waited_s:g} s, other jobs hold them ({held}).",
        fix="Wait for those jobs or stop them (`ray status` shows them), or use fewer workers or threads.",
    )
