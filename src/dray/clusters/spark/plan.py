"""How many Ray nodes to put into a Spark session, and how large. Pure.

One node an executor at most: a node is a Spark task, and a task that takes the executor's cores has it for itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dray.errors import ClusterError
from dray.threads.decide import threads_per_worker

LEAVE_ONE_FROM = 8
"""An executor with so many cores leaves one to Spark's own tasks and Ray's processes. Of fewer, one is too much."""

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_TAGS = "spark.databricks.clusterUsageTags."


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of a Spark session."""

    master: str
    settings: Mapping[str, str]
    executors: int
    """Those that have come so far."""
    slots: int
    """Tasks that they run at a time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The Ray nodes to ask for."""

    nodes: int
    cpus: int
    gpus: int
    threads: int
    """For each worker, as far as known: the environment that the nodes start with."""
    may_come: bool
    """More executors come when tasks wait for them, after minutes."""

    @property
    def reason(self) -> str:
        cpus = f"{self.cpus} CPU" if self.cpus == 1 else f"{self.cpus} CPUs"
        return f"Ray on Spark: {self.nodes} {'node' if self.nodes == 1 else 'nodes'} of {cpus}, one an executor."


def check_master(master: str) -> None:
    """Refuse a Spark in which Ray cannot run, or has no reason to."""
    if master.startswith("k8s://"):
        raise ClusterError(
            f"Ray does not run inside Spark on Kubernetes ({master}).",
            fix="Start Ray beside it: dray cluster up --on kubernetes, then --cluster NAME.",
        )
    if master == "local" or master.startswith("local["):
        raise ClusterError(
            f"This Spark session has no executors: it runs in one process of this machine ({master}).",
            fix="Use --cluster local, or give Spark a cluster (a standalone master, YARN, a Databricks cluster with "
            "workers).",
        )
    if master != "yarn" and not master.startswith(("spark://", "local-cluster[")):
        raise ClusterError(
            f"Ray does not run inside Spark on {master}.",
            fix="Use a standalone master (spark://host:7077), YARN or Databricks.",
        )


def executors_expected(master: str, settings: Mapping[str, str]) -> int | None:
    """Return how many executors there will be, if that can be known."""
    if scales(settings):
        return None
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return int(found[1])
    return _number(settings, "spark.executor.instances")


def scales(settings: Mapping[str, str]) -> bool:
    """Whether executors come and go with the work."""
    return (
        settings.get("spark.dynamicAllocation.enabled", "").lower() == "true"
        or settings.get(f"{_TAGS}clusterScalingType", "") == "autoscaling"
    )


def cores_of_an_executor(session: Session) -> int:
    """Return the cores that Spark gives out on each of its executors."""
    if cores := _number(session.settings, "spark.executor.cores"):
        return cores
    if found := _LOCAL_CLUSTER.fullmatch(session.master):
        return int(found[2])
    cores_of_a_task = _number(session.settings, "spark.task.cpus") or 1
    return max(1, session.slots * cores_of_a_task // max(1, session.executors))


def executors_needed(workers: int, threads: int | None, cores: int) -> int:
    """Return how many executors workers of that many threads fill."""
    there = _cpus(cores, threads)
    return math.ceil(workers / max(1, there // threads)) if threads else workers


def plan(session: Session, workers: int, threads: int | None, *, may_grow: bool = False) -> Plan:
    """Return the nodes for that many workers; all executors for 1, or if it may grow.

    1 is also what a run asks for that decides on its workers once it sees the nodes.
    """
    cores = cores_of_an_executor(session)
    cpus = _cpus(cores, threads)
    may_come = scales(session.settings)
    everything = may_grow or workers == 1
    there = session.executors
    if may_come:
        most = _number(session.settings, "spark.dynamicAllocation.maxExecutors") or _number(
            session.settings, f"{_TAGS}clusterMaxWorkers"
        )
        wanted = executors_needed(workers, threads, cores)
        there = max(there, min(wanted, most) if most else wanted)
    if there < 1:
        raise ClusterError(
            "This Spark session has no executor.",
            fix="Look at Spark's own pages why none has come: no worker is up, or none has the memory asked for.",
        )
    nodes = there if everything else min(there, executors_needed(workers, threads, cores))
    if may_grow and workers > nodes:
        workers = nodes
    decided = threads_per_worker([cpus] * nodes, workers, threads)
    gpus = int(float(session.settings.get("spark.executor.resource.gpu.amount", "0") or 0))
    return Plan(nodes, cpus, gpus, decided, may_come)


def _cpus(cores: int, threads: int | None) -> int:
    if threads == cores:  # asked for in so many words
        return cores
    return cores - 1 if cores >= LEAVE_ONE_FROM else cores


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "").strip()
    return int(text) if text.isdigit() and int(text) > 0 else None
