"""Reserve the CPUs of all workers at once, or say who is short of what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.cluster.cluster import Cluster, Node
from dray.errors import ClusterError
from dray.threads.decide import threads_per_worker

PLACE_TIMEOUT_S = 10.0


def place(cluster: Cluster, workers: int, threads: int, *, timeout_s: float = PLACE_TIMEOUT_S) -> Any:
    """Return a placement group with one bundle of `threads` CPUs for each worker, on as few nodes as possible.

    Ray itself waits for ever for what cannot be had. CPUs that do not exist are refused at once, those that others
    hold after `timeout_s`. Remove it with `remove`.
    """
    from ray.util.placement_group import placement_group

    threads_per_worker([node.cpus for node in cluster.nodes()], workers, threads)
    group = placement_group([{"CPU": threads}] * workers, strategy="PACK")
    try:
        if group.wait(timeout_s):
            return group
    except BaseException:
        remove(group)
        raise
    remove(group)
    raise busy(cluster.nodes(), workers, threads, timeout_s)


def remove(group: Any) -> None:
    """Give the CPUs back. Actors that still live on them are ended."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def busy(nodes: Sequence[Node], workers: int, threads: int, waited_s: float) -> ClusterError:
    """Return the error that says which nodes are taken."""
    held = "; ".join(f"{node.address}: {node.free_cpus:g} of {node.cpus:g} free" for node in nodes)
    return ClusterError(
        f"{workers} workers of {threads} CPUs did not get them within {waited_s:g} s, other jobs hold them ({held}).",
        fix="Wait for those jobs or stop them (`ray status` shows them), or use fewer workers or threads.",
    )
