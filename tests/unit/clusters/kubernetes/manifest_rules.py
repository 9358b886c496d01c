"""Conditions that everything dray renders keeps, whatever the settings are: KubeRay's own, and those of safety.

Pure. KubeRay notices some of them only in its operator: the manifest is taken, and nothing happens. What settings can
break is refused by `dray.clusters.kubernetes.rules`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Manifest = Mapping[str, Any]

TOKEN_SINCE = (2, 52)
_MEMORY = re.compile(r"\d+(Gi|Mi)")


def broken_rules(manifest: Manifest) -> set[str]:
    """Return the rules that a RayCluster or a RayJob breaks."""
    spec = manifest["spec"]
    cluster = spec if manifest["kind"] == "RayCluster" else spec.get("rayClusterSpec")
    found = set(_job(spec)) if manifest["kind"] == "RayJob" else set()
    if cluster:
        found |= set(_cluster(cluster))
        for container in _containers(spec, cluster):
            found |= set(_container(container))
    return found


def _job(spec: Manifest) -> Iterator[str]:
    shutdown, retries = spec.get("shutdownAfterJobFinishes", False), spec.get("backoffLimit", 0)
    ttl = spec.get("ttlSecondsAfterFinished", 0)
    rules = (spec.get("deletionStrategy") or {}).get("deletionRules")
    if (ttl and not shutdown) or ttl < 0 or retries < 0 or (rules and shutdown):
        yield "ttl"
    if retries and spec.get("clusterSelector"):  # each try has a new cluster
        yield "retries"
    if not spec.get("rayClusterSpec") and not spec.get("clusterSelector"):
        yield "cluster"
    start, limit = spec.get("preRunningDeadlineSeconds", 0), spec.get("activeDeadlineSeconds")
    # Without a deadline for its start, a job with a bad image would wait for ever.
    if (start < 1 and spec.get("rayClusterSpec")) or (limit is not None and limit <= max(0, start)):
        yield "deadline"


def _cluster(cluster: Manifest) -> Iterator[str]:
    head = cluster["headGroupSpec"]
    numbers = re.match(r"(\d+)\.(\d+)", cluster.get("rayVersion", ""))
    asks = (cluster.get("authOptions") or {}).get("mode") == "token"
    if not asks or not numbers or (int(numbers[1]), int(numbers[2])) < TOKEN_SINCE:
        yield "token"
    service = ((head.get("headService") or {}).get("spec") or {}).get("type")
    if {head.get("serviceType"), service} - {None, "ClusterIP"} or head.get("enableIngress"):
        yield "exposure"
    scales = cluster.get("enableInTreeAutoscaling") and (cluster.get("autoscalerOptions") or {}).get("version") == "v2"
    for group in (head, *cluster.get("workerGroupSpecs", [])):
        if scales and group["template"]["spec"].get("restartPolicy", "Never") != "Never":
            yield "autoscaler"
        params = group.get("rayStartParams", {})
        twice = group.get("resources") and params.keys() & {"num-cpus", "num-gpus", "memory", "resources"}
        if twice or not all(isinstance(value, str) for value in params.values()):
            yield "params"
    for group in cluster.get("workerGroupSpecs", []):
        if not group.get("minReplicas", 0) <= group.get("replicas", 0) <= group.get("maxReplicas", 0):
            yield "replicas"


def _containers(spec: Manifest, cluster: Manifest) -> Iterator[Manifest]:
    for group in (cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])):
        yield from group["template"]["spec"]["containers"]
    if cluster.get("enableInTreeAutoscaling"):
        yield cluster.get("autoscalerOptions") or {}
    if "submitterPodTemplate" in spec:
        yield from spec["submitterPodTemplate"]["spec"]["containers"]


def _container(container: Manifest) -> Iterator[str]:
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not limits or requests != limits:  # Ray counts on the limits
        yield "requests"
    for amounts in (requests, limits):
        if "memory" in amounts and not _MEMORY.fullmatch(str(amounts["memory"])):  # 8G is 7 % less, 8m nothing
            yield "memory"
        if not all(str(amount).isdigit() for resource, amount in amounts.items() if "/" in resource):
            yield "gpu"
    given = {variable["name"]: variable for variable in container.get("env", [])}
    mode, token = given.get("RAY_AUTH_MODE", {}), given.get("RAY_AUTH_TOKEN", {})
    if "name" in container and (mode.get("value") != "token" or "valueFrom" not in token):
        yield "token"
