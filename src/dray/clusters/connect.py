"""Get a run its cluster: start one here, or join one that runs."""

from __future__ import annotations

import sys

from dray.clusters.cluster import Cluster
from dray.clusters.joined import JoinedCluster, join
from dray.clusters.local.cluster import LocalCluster
from dray.clusters.resolve import Here, Remote, resolve
from dray.errors import ClusterError
from dray.threads.decide import threads_on_this_machine
from dray.threads.limits import cpus_of_this_process


def connect(
    cluster: str, *, workers: int, threads: int | None = None, may_grow: bool = False, rows_move: bool = False
) -> Cluster:
    """Return the cluster for that many workers, connected; close it, or use it as a context manager.

    `cluster` is a word that means `Here` (an embedded Ray) or `Attached` (`resolve.py`). A Ray that this process has
    already joined is used and not shut down. What cannot work is a `ClusterError` at once: too few CPUs (unless it
    `may_grow`), nothing at the address, another token or version. `rows_move` between the workers, so that an embedded
    one needs room for them.

    Call it in a thread that lives as long as the cluster, best the main one: the kernel ends Ray's processes with
    the thread that started them. To save time, do other work in a second thread meanwhile; this one only waits.
    """
    where = resolve(cluster)
    if isinstance(where, Remote):
        raise ClusterError(
            f"{cluster} takes jobs, and this process cannot join it.",
            fix="Use local, auto or host:port here; the commands of dray send themselves there as jobs.",
        )
    if cluster == "spark":
        from dray.clusters.spark.cluster import open_on_spark

        return open_on_spark(_current_address(), workers=workers, threads=threads, may_grow=may_grow)
    if current := _current_address():
        if cluster not in ("local", "auto") and not _same(cluster, current):
            raise ClusterError(
                f"This process is already connected to the Ray cluster at {current}, not to {cluster}.",
                fix='Call ray.shutdown() first, or use the one that is there: cluster="auto".',
            )
        return JoinedCluster(cluster, workers=workers, threads=threads, leave=False, may_grow=may_grow)
    if not isinstance(where, Here):
        return join(cluster, workers=workers, threads=threads, may_grow=may_grow)
    cpus = cpus_of_this_process()
    decision = threads_on_this_machine(cpus, workers, threads)
    return LocalCluster(workers, decision, max(cpus, workers * decision.threads), rows_move=rows_move)


def joins(cluster: str) -> bool:
    """Whether `connect` would use a Ray that runs apart from this command: one that is named, or joined already."""
    return not isinstance(resolve(cluster), Here) or _current_address() is not None


def _current_address() -> str | None:
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().gcs_address)


def _same(asked: str, current: str) -> bool:
    host, _, port = asked.rpartition(":")
    # Ray resolves loopback names to the network card's address, so there the port alone tells.
    return asked == current or (host in ("localhost", "127.0.0.1", "::1") and current.endswith(f":{port}"))
