"""What of a Kubernetes object is read, and of which type it must be: all else is as if it were not there. Pure.

So that code that reads objects need not ask at every step, whatever a server answered.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_CONTAINER = {
    "name": str,
    "state": {
        "waiting": {"reason": str, "message": str},
        "running": {},
        "terminated": {"reason": str, "exitCode": int},
    },
    "lastState": {"terminated": {"reason": str, "exitCode": int}},
}
_GROUP = {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}
_OBJECT = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "uid": str, "generation": int, "creationTimestamp": str, "labels": {}, "annotations": {}},
    "spec": {
        "nodeName": str,
        "rayVersion": str,
        "containers": [{"name": str, "image": str, "resources": {"limits": {"cpu": str | int, "memory": str | int}}}],
        "authOptions": {"mode": str},
        "headGroupSpec": {"serviceType": str},
        "workerGroupSpecs": [_GROUP],
    },
    "status": {
        **dict.fromkeys(
            ("phase", "reason", "message", "jobStatus", "jobDeploymentStatus", "startTime", "endTime"), str
        ),
        "observedGeneration": int,
        "conditions": [{"type": str, "status": str, "reason": str, "message": str}],
        "containerStatuses": [_CONTAINER],
        "initContainerStatuses": [_CONTAINER],
    },
}


def sound(answer: Any) -> Json | None:
    """Return an object with only such values as are read of it; None if it has no name."""
    found = _fit(answer, _OBJECT)
    return found if isinstance(found, dict) and found.get("metadata", {}).get("name") else None


def _fit(value: Any, shape: Any) -> Any:
    """Return the value as far as it has the shape, None if it has not. Keys that the shape does not name stay."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return None
        fitting = {key: _fit(part, shape[key]) if key in shape else part for key, part in value.items()}
        return {key: part for key, part in fitting.items() if part is not None or key not in shape}
    if isinstance(shape, list):
        if not isinstance(value, list):
            return None
        return [part for part in (_fit(item, shape[0]) for item in value) if part is not None]
    return value if isinstance(value, shape) and not (shape is int and isinstance(value, bool)) else None
