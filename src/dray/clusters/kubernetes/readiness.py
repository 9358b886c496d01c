"""Whether the pods of a cluster are ready, and why they are not. Pure: Kubernetes objects in, words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.clusters.provider import State

Json = Mapping[str, Any]

GRACE_S = {
    "InvalidImageName": 0.0,
    "ErrImageNeverPull": 0.0,
    "ErrImagePull": 60.0,
    "ImagePullBackOff": 60.0,
    "CreateContainerConfigError": 30.0,
    "CreateContainerError": 30.0,
    "RunContainerError": 60.0,
    "CrashLoopBackOff": 45.0,
    "Failed": 60.0,
    "ReplicaFailure": 60.0,
}
"""Seconds after which a trouble will not pass. One that is not named (Unschedulable) may: nodes can come."""

_FIXES = {
    "Image": "Check image, and pull_secrets for a private registry.",
    "Unschedulable": "Ask for less (workers.cpu, workers.memory, workers.replicas), change node_selector or "
    "tolerations, or add nodes.",
    "CreateContainer": "Check that the Secrets and the keys under secrets are in the namespace.",
    "CrashLoop": "The log tells why: dray cluster logs, or kubectl logs.",
    "ReplicaFailure": "Change what the message names: a quota, a service account, a policy.",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod does not run."""

    pod: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.pod}: {self.reason}" + (f" ({self.message})" if self.message else "")

    @property
    def fix(self) -> str:
        return next((fix for word, fix in _FIXES.items() if word in self.reason), "kubectl describe pod tells more.")


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return not is_going(pod) and any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_pending(pod: Json) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Pending")


def is_head(pod: Json) -> bool:
    return _node_type(pod) == "head"


def is_worker(pod: Json) -> bool:
    return _node_type(pod) == "worker"


def is_submitter(pod: Json) -> bool:
    labels = pod["metadata"].get("labels", {})
    return "job-name" in labels or "batch.kubernetes.io/job-name" in labels


def trouble_of(pod: Json) -> Trouble | None:
    """Return what keeps a pod from running, if anything does."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        waiting = container.get("state", {}).get("waiting", {})
        reason = waiting.get("reason", "")
        if reason in GRACE_S:
            ended = container.get("lastState", {}).get("terminated", {})
            after = f"; it ended with {_ending(ended)}" if ended else ""
            return Trouble(name, reason, _short(waiting.get("message", "")) + after)
    if status.get("phase") == "Failed":
        ends = [c.get("state", {}).get("terminated") for c in status.get("containerStatuses", [])]
        how = next((_ending(end) for end in ends if end), status.get("reason", ""))
        return Trouble(name, "Failed", _short(f"{how} {status.get('message', '')}".strip()))
    for condition in status.get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Trouble(name, condition.get("reason", "Unschedulable"), _short(condition.get("message", "")))
    return None


def trouble_of_cluster(cluster: Json) -> Trouble | None:
    """Return why KubeRay cannot make the pods, if it says so: a quota, a service account that is not there."""
    for condition in cluster.get("status", {}).get("conditions", []):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            name = cluster["metadata"]["name"]
            return Trouble(name, "ReplicaFailure", _short(condition.get("message") or condition.get("reason", "")))
    return None


def state_of(pod: Json) -> tuple[State, str]:
    """Return how a pod does, as progress is told."""
    if is_going(pod):
        return "working", "ending"
    if is_ready(pod):
        return "done", "ready"
    if trouble := trouble_of(pod):
        hopeless = trouble.reason in GRACE_S
        return ("failed" if hopeless else "waiting"), f"{trouble.reason} {trouble.message}".strip()
    phase = pod.get("status", {}).get("phase", "Pending")
    return ("working", "starting") if phase == "Running" else ("waiting", _waiting_for(pod))


def is_up(cluster: Json, pods: Sequence[Json], workers: int, *, exactly: bool = False) -> bool:
    """Return whether the head and so many workers are ready; exactly: and none too many is left."""
    return (
        cluster.get("status", {}).get("observedGeneration", 0) >= cluster["metadata"].get("generation", 0)
        and any(is_head(pod) and is_ready(pod) for pod in pods)
        and sum(is_worker(pod) and is_ready(pod) for pod in pods) >= workers
        and not (exactly and sum(is_worker(pod) for pod in pods) > workers)
    )


def _node_type(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get("ray.io/node-type", ""))


def _waiting_for(pod: Json) -> str:
    for container in pod.get("status", {}).get("initContainerStatuses", []):
        if "running" in container.get("state", {}):
            return f"waiting ({container.get('name', 'init')})"
    return "on " + node if (node := pod.get("spec", {}).get("nodeName")) else "waiting for a node"


def _ending(terminated: Json) -> str:
    return f"{terminated.get('reason', 'Error')}, exit code {terminated.get('exitCode', '?')}"


def _short(message: str) -> str:
    words = " ".join(message.split()).rstrip(".")
    return words if len(words) <= 300 else words[:300] + "..."
