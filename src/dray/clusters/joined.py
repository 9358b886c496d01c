"""A Ray cluster that was there before the run and stays after it."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from typing import Any

from dray.clusters.cluster import Cluster, Node
from dray.clusters.environment import environment_for_ray, refresh_authentication
from dray.clusters.probe import probe
from dray.clusters.quiet import OPTIONS, quiet
from dray.clusters.ray_private import MissingPartError, draining_nodes
from dray.errors import ClusterError
from dray.threads.decide import Decision, threads_per_worker, workers_that_fit

JOIN_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 3.0


class JoinedCluster(Cluster):
    """A running cluster; `close()` leaves it, or does not even that when this process had joined it by itself."""

    def __init__(self, name: str, *, workers: int, threads: int | None, leave: bool, may_grow: bool = False) -> None:
        self.name = name
        self._leave = leave
        try:
            self.decide(workers, threads, may_grow=may_grow)
        except BaseException:
            self.close()
            raise

    def decide(self, workers: int, threads: int | None, *, may_grow: bool = False) -> None:
        """Decide the threads anew, for that many workers, or for those that there is room for if more may come."""
        nodes = self.nodes()
        if may_grow:
            workers = min(workers, workers_that_fit([node.cpus for node in nodes], threads or 1))
        if workers:
            decision = decide_on(nodes, workers, threads)
        else:
            decision = Decision(threads or 1, (f"{threads or 1} threads each: no node has room yet.",))
        self.threads = decision.threads
        self.reasons = decision.reasons

    def nodes(self) -> list[Node]:
        draining = self.draining()  # Ray puts nothing on them any more, however free they are
        # A head without CPUs (a fleet's, KubeRay's, Spark's) takes no worker.
        return [node for node in super().nodes() if node.cpus and node.id not in draining]

    def draining(self) -> dict[str, str]:
        now = time.time()
        return {
            node: "its node is being drained" + (f", {deadline / 1000 - now:.0f} s are left" if deadline else "")
            for node, deadline in draining_nodes().items()
        }

    def close(self) -> None:
        import ray

        if self._leave:
            self._leave = False
            ray.shutdown()
            refresh_authentication()


def decide_on(nodes: list[Node], workers: int, asked: int | None) -> Decision:
    """Decide on the CPUs that are free now; when they are too few for anything, on all that exist.

    The second case is worth a short wait (`placement.place`), since they may become free.
    """
    free = [node.free_cpus for node in nodes]
    totals = [node.cpus for node in nodes]
    use = free if workers_that_fit(free, asked or 1) >= workers else totals
    threads = threads_per_worker(use, workers, asked)
    if asked is not None:
        return Decision(threads, (f"{threads} threads for each worker, as asked.",))
    where = f"{sum(use):g} {'free ' if use is free else ''}CPUs on {len(nodes)} nodes"
    return Decision(threads, (f"{threads} threads each: {where} for {workers} workers.",))


def join(address: str, *, workers: int, threads: int | None, may_grow: bool = False) -> JoinedCluster:
    """Join the cluster at host:port, or with "auto" the one of this machine. Fails within `JOIN_TIMEOUT_S`."""
    target = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
    if target != "auto":
        check_reachable(target)
    found = _probe(target)
    variables = {"RAY_AUTH_MODE": "token"} if found.get("token") else {}
    import ray

    with environment_for_ray(variables), quiet():
        refresh_authentication()
        try:
            ray.init(address=found["address"], **OPTIONS)
        except Exception as error:
            raise ClusterError(
                f"The Ray cluster at {found['address']} cannot be joined: {str(error).strip().splitlines()[0]}",
                fix="Check with `ray status --address ...` that it is healthy.",
            ) from error
    return JoinedCluster(address, workers=workers, threads=threads, leave=True, may_grow=may_grow)


def check_reachable(address: str) -> None:
    """Refuse what is not an address, and an address at which nothing listens."""
    if "://" in address:
        raise ClusterError(
            f"{address} is the address of a proxy or a job server; dray joins the cluster itself.",
            fix="Run dray on a machine of the cluster with --cluster auto, or give the head's host:port (6379).",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClusterError(
            f'"{address}" is not the address of a cluster.',
            fix="Use --cluster local, --cluster auto, or the head's host:port, such as 10.0.0.5:6379.",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ClusterError(
            f"Nothing answers at {address}: {error.strerror or error}.",
            fix="Check the host, the port (6379 unless changed) and the firewall; `ray status` on the head tells more.",
        ) from error


def _probe(target: str) -> dict[str, Any]:
    """Ask in a thread: what is no Ray may never answer, and Ray's own client cannot be interrupted."""
    found: dict[str, Any] = {}

    def ask() -> None:
        try:
            found.update(probe(target))
        except MissingPartError:  # Ray itself will try, and say in its own time what is wrong
            found.update(address=target)
        except Exception as error:
            found.update(problem="unknown", detail=f"{type(error).__name__}: {error}"[:300])

    thread = threading.Thread(target=ask, name="dray-probe", daemon=True)
    # Ray's client writes every attempt to the terminal.
    with environment_for_ray({"RAY_BACKEND_LOG_LEVEL": "fatal"}):
        refresh_authentication()
        thread.start()
        thread.join(JOIN_TIMEOUT_S)
    answer = dict(found) or {"problem": "silent", "address": target}
    refuse(answer, target)
    return answer


def refuse(found: dict[str, Any], target: str) -> None:
    """Raise for what a probe found, unless it can be joined."""
    import ray

    address = found.get("address", target)
    match found.get("problem"):
        case "none":
            raise ClusterError(
                "No Ray cluster runs on this machine.",
                fix="Start one (`ray start --head`), name one (--cluster host:port), or use --cluster local.",
            )
        case "token":
            raise ClusterError(
                f"The Ray cluster at {address} refuses this process's token, or wants one.",
                fix="Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's: "
                "`ray get-auth-token` on its head prints it.",
            )
        case "silent":
            raise ClusterError(
                f"What listens at {address} does not answer as a Ray cluster within {JOIN_TIMEOUT_S:g} s.",
                fix="Give the head's own port (6379 unless changed), not that of its dashboard or its client server.",
            )
        case "elsewhere":
            raise ClusterError(
                f"This machine is not part of the Ray cluster at {address}.",
                fix=f"Run dray on one of its machines, or add this one: `ray start --address {address}`.",
            )
        case "unknown":
            raise ClusterError(
                f"The Ray cluster at {address} cannot be joined: {found.get('detail', '')}.",
                fix="Check with `ray status --address ...` that it is healthy and has this machine's version of Ray.",
            )
    here = {"ray": ray.__version__, "python": platform.python_version()}
    for name, version in here.items():
        if found.get(name) and found[name] != version:
            raise ClusterError(
                f"The cluster at {address} has {name} {found[name]}, this machine {version}.",
                fix=f"Use the same {name} on both: Ray does not mix versions.",
            )
