"""Wait for pods to come and to go, tell how they do, and give up when it will not get better."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dray.clusters.kubernetes import readiness
from dray.clusters.kubernetes.api import Api
from dray.clusters.kubernetes.readiness import Trouble
from dray.clusters.kubernetes.render import OF_CLUSTER
from dray.clusters.provider import State, Tell
from dray.errors import ClusterError

PAUSE_S = 1.0
GONE_S = 120.0
"""Pods have 30 s to end; a node that does not answer takes longer."""


class Watch:
    """Remembers since when each pod has had its trouble, and what was told."""

    def __init__(self, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._since: dict[tuple[str, str], float] = {}
        self._told: dict[str, tuple[State, str]] = {}

    def tell(self, name: str, state: State, words: str) -> None:
        """Tell what is new."""
        if self._told.get(name) != (state, words):
            self._told[name] = (state, words)
            self._tell(name, state, words)

    def look(self, pods: Sequence[Any], cluster: Any = None) -> list[Trouble]:
        """Tell how the pods do; return what keeps them from running."""
        found = []
        for pod in pods:
            self.tell(pod["metadata"]["name"], *readiness.state_of(pod))
            if (trouble := readiness.trouble_of(pod)) and not readiness.is_going(pod):
                found.append(trouble)
        if cluster and (trouble := readiness.trouble_of_cluster(cluster)):
            self.tell(trouble.pod, "failed", f"{trouble.reason} {trouble.message}")
            found.append(trouble)
        now = self._clock()
        # By kind of trouble: pulling an image goes back and forth between ErrImagePull and ImagePullBackOff.
        self._since = {_kind(t): self._since.get(_kind(t), now) for t in found}
        return found

    def hopeless(self, troubles: Sequence[Trouble]) -> Trouble | None:
        """Return a trouble that has lasted longer than such ones do that pass."""
        now = self._clock()
        for trouble in troubles:
            grace_s = readiness.GRACE_S.get(trouble.reason)
            if grace_s is not None and now - self._since[_kind(trouble)] >= grace_s:
                return trouble
        return None


def _kind(trouble: Trouble) -> tuple[str, str]:
    return trouble.pod, "image" if "Image" in trouble.reason else trouble.reason


def wait_until_up(api: Api, name: str, workers: int, limit_s: float, tell: Tell, *, exactly: bool = False) -> None:
    """Return when the head and the workers are ready; raise with the reason when they will not be."""
    watch, end = Watch(tell), time.monotonic() + limit_s
    while True:
        cluster, pods = api.get("RayCluster", name), pods_of(api, name)
        if cluster is None:
            raise ClusterError(f"The RayCluster {name} was deleted by another client.", fix="Start it again.")
        if readiness.is_up(cluster, pods, workers, exactly=exactly):
            watch.look(pods)
            return
        troubles = watch.look(pods, cluster)
        if trouble := watch.hopeless(troubles):
            raise ClusterError(f"The cluster {name} does not start. {trouble}.", fix=trouble.fix)
        if time.monotonic() >= end:
            raise _too_late(name, pods, workers, limit_s, troubles)
        time.sleep(PAUSE_S)


def wait_until_gone(api: Api, name: str, tell: Tell) -> None:
    """Return when no pod of the cluster is left."""
    watch, end = Watch(tell), time.monotonic() + GONE_S
    while pods := pods_of(api, name):
        for pod in pods:
            watch.tell(pod["metadata"]["name"], "working", "ending")
        if time.monotonic() >= end:
            names = ", ".join(pod["metadata"]["name"] for pod in pods)
            raise ClusterError(
                f"After {GONE_S:.0f} s these pods are still there: {names}.",
                fix="Look at them with kubectl describe pod, then run it again.",
            )
        time.sleep(PAUSE_S)


def pods_of(api: Api, name: str) -> list[Any]:
    """Return all pods of a cluster or a job, the head first, then by name."""
    pods = api.find("Pod", f"{OF_CLUSTER}={name}")
    return sorted(pods, key=lambda pod: (not readiness.is_head(pod), pod["metadata"]["name"]))


def _too_late(
    name: str, pods: Sequence[Any], workers: int, limit_s: float, troubles: Sequence[Trouble]
) -> ClusterError:
    if not pods:
        return ClusterError(
            f"After {limit_s:.0f} s there is no pod of {name}: no operator acts on its RayCluster.",
            fix="Check that the KubeRay operator runs, and watches this namespace.",
        )
    ready = sum(readiness.is_worker(pod) and readiness.is_ready(pod) for pod in pods)
    head = "the head is ready" if any(readiness.is_head(p) and readiness.is_ready(p) for p in pods) else "no head"
    why = "; ".join(str(trouble) for trouble in troubles[:3]) or "no reason is given"
    return ClusterError(
        f"After {limit_s:.0f} s {head}, {ready} of {workers} workers are: {why}.",
        fix=troubles[0].fix if troubles else "Look at the pods with kubectl describe pod, or raise start_deadline_s.",
    )
