"""Which nodes of a cluster see which files of this machine: asked of each node, in a task there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dray.clusters.cluster import Cluster
from dray.errors import ClusterError

ANSWER_S = 60.0
"""For a node to answer: it may have to start a process first."""


def unseen_files(cluster: Cluster, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that take workers and cannot read all of these files: by address, with what each misses."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(unreadable)
    nodes = cluster.nodes()
    asked = [
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(list(paths))
        for node in nodes
    ]
    found = {}
    for node, answer in zip(nodes, asked, strict=True):
        try:
            missing = tuple(ray.get(answer, timeout=ANSWER_S))
        except (GetTimeoutError, RayError) as error:
            raise ClusterError(
                f"The node {node.address} does not answer which files it sees: {str(error).strip().splitlines()[0]}",
                fix="Check with `ray status` that it is healthy, and that it has this version of dray.",
            ) from error
        if missing:
            found[node.address] = missing
    return found


def unreadable(paths: Sequence[str]) -> list[str]:
    """Return those of these files that this process cannot read."""
    return [path for path in paths if not os.access(path, os.R_OK)]
