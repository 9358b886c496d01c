"""The contract of a Ray cluster that a run uses."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dray.clusters.ray_private import free_resources

_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True)
class Node:
    """One live machine (or one Ray node of it)."""

    id: str
    address: str
    cpus: float
    free_cpus: float
    memory_bytes: int
    port: int = 0
    """Of its raylet."""

    def answers(self) -> bool:
        """Whether its raylet takes a connection: Ray itself notices a dead node only after many seconds."""
        try:
            socket.create_connection((self.address, self.port), timeout=_ANSWER_S).close()
        except OSError:
            return False
        return True


class Cluster(ABC):
    """A cluster that this process is connected to, with the threads decided for the workers asked of it.

    One thread uses it at a time. Its maker closes it, best by `with`; `close()` may be called again.
    """

    name: str
    """What was asked for: "local", "auto" or an address."""
    threads: int
    """Threads (Ray CPUs) for each worker."""
    reasons: tuple[str, ...]
    """Why, in words for the user."""

    @abstractmethod
    def close(self) -> None:
        """Stop what was started for this run, and nothing else."""

    @property
    def logs(self) -> Path | None:
        """Where the workers' own output is, as long as the cluster is open; None when it is not on this machine."""
        return None

    def nodes(self) -> list[Node]:
        """Return the live nodes that stay, with what is free on them now."""
        import ray

        free = free_resources()
        nodes = []
        for entry in ray.nodes():
            if not entry["Alive"]:
                continue
            resources: dict[str, float] = entry["Resources"]
            cpus = resources.get("CPU", 0.0)
            nodes.append(
                Node(
                    id=entry["NodeID"],
                    address=entry["NodeManagerAddress"],
                    cpus=cpus,
                    free_cpus=cpus if free is None else free.get(entry["NodeID"], {}).get("CPU", 0.0),
                    memory_bytes=int(resources.get("memory", 0.0)),
                    port=int(entry.get("NodeManagerPort", 0)),
                )
            )
        return nodes

    def draining(self) -> dict[str, str]:
        """Return the nodes that were told to go, by id, and why: a spot node's notice, a scaling down."""
        return {}

    def actor_options(self, group: Any, index: int) -> dict[str, Any]:
        """Return the options with which worker `index` starts fastest on its bundle of the placement group.

        No runtime_env, which would make Ray start a fresh process: the raylets have idle ones ready, and a
        worker sets its threads itself (`threads.apply.set_environment`) before it loads any library.
        """
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        return {"num_cpus": self.threads, "scheduling_strategy": strategy}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
