"""Clusters on Kubernetes behind the contract of all clusters (`Provider`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dray.clusters.known import Known
from dray.clusters.kubernetes import readiness, up
from dray.clusters.kubernetes.api import Api, RefusedError
from dray.clusters.kubernetes.forward import forward
from dray.clusters.kubernetes.images import versions_of
from dray.clusters.kubernetes.quantities import parse_bytes, parse_cpus
from dray.clusters.kubernetes.render import DASHBOARD_PORT, render_cluster, render_job, to_yaml
from dray.clusters.kubernetes.settings import read_settings, take_settings
from dray.clusters.kubernetes.waiting import pods_of
from dray.clusters.provider import NodeStatus, Provider, Status, Tell
from dray.config.run_file import read_run_file
from dray.errors import ClusterError, nearest

_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL|Traceback|\w*Error|\w*Exception|OOMKilled)\b|\bE\d{4} ")

T = TypeVar("T", int, float)


class Kubernetes(Provider):
    """Clusters by KubeRay, with a pod for each node."""

    kind = "kubernetes"
    changes = "On Kubernetes, dray cluster scale --workers N changes the number of workers; ended pods leave nothing."

    def up(self, file: str | None, tell: Tell, *, wait_s: float | None = None) -> Status:
        deadline = {} if wait_s is None else {"start_deadline_s": wait_s}
        return self.status(up.up(read_settings(file, **deadline), tell))

    def render(self, file: str | None) -> str:
        """Return the manifests of a RayCluster, or of a RayJob where the file is a run file."""
        values = read_run_file(file) if file else {}
        if "data" in values or "label" in values:
            return to_yaml(render_job(*take_settings(values, origin=str(file))))
        return to_yaml(render_cluster(read_settings(file)))

    def scale(self, known: Known, workers: int, tell: Tell) -> Status:
        up.scale(known, workers, tell)
        return self.status(known)

    def status(self, known: Known) -> Status:
        api = up.api_of(known)
        cluster = api.get("RayCluster", known.name)
        if cluster is None:
            raise up.gone(known)
        pods = [pod for pod in pods_of(api, known.name) if not readiness.is_submitter(pod)]
        return Status(
            name=known.name,
            kind=known.kind,
            address=known.address,
            dashboard=known.dashboard,
            nodes=tuple(_node(pod, cluster) for pod in pods),
            warnings=tuple(_warnings(cluster, pods)),
        )

    def logs(self, known: Known, node: str | None, *, errors: bool, lines: int) -> Iterator[str]:
        api = up.api_of(known)
        for pod in _chosen(pods_of(api, known.name), node):
            for line in _pod_log(api, pod, lines):
                if not errors or _ERROR.search(line):
                    yield f"{pod['metadata']['name']}: {line}"

    def down(self, known: Known, tell: Tell) -> None:
        up.down(known, tell)

    @contextmanager
    def endpoint(self, known: Known) -> Iterator[str]:
        api = up.api_of(known)
        api.open_port(_head(api, known.name), DASHBOARD_PORT).close()  # an error belongs here, not to the first request
        # The head may be replaced while this is open: each connection asks for the one there is.
        with forward(lambda: api.open_port(_head(api, known.name), DASHBOARD_PORT)) as port:
            yield f"http://127.0.0.1:{port}"


def _head(api: Api, name: str) -> str:
    pods = pods_of(api, name)
    ready = [pod["metadata"]["name"] for pod in pods if readiness.is_head(pod) and readiness.is_ready(pod)]
    if not ready:
        why = next((str(trouble) for pod in pods if (trouble := readiness.trouble_of(pod))), "it is starting, or gone")
        raise ClusterError(f"The head of {name} is not ready: {why}.", fix=f"dray cluster status {name} tells more.")
    return str(ready[0])


def _node(pod: Any, cluster: Any) -> NodeStatus:
    container: dict[str, Any] = next(iter(pod.get("spec", {}).get("containers", [])), {})
    limits = container.get("resources", {}).get("limits", {})
    promised = versions_of(container.get("image", ""))
    trouble = readiness.trouble_of(pod)
    alive = readiness.is_ready(pod)
    why = f"{trouble.reason} {trouble.message}".strip() if trouble else readiness.state_of(pod)[1]
    return NodeStatus(
        name=pod["metadata"]["name"],
        host=pod.get("spec", {}).get("nodeName", ""),
        alive=alive,
        head=readiness.is_head(pod),
        cpus=_amount(parse_cpus, limits.get("cpu", 0)),
        memory_bytes=_amount(parse_bytes, limits.get("memory", 0)),
        ray=promised.ray if promised else cluster.get("spec", {}).get("rayVersion", ""),
        python=promised.python if promised else "",
        reason="" if alive else why,
    )


def _amount(parse: Callable[[str | int], T], quantity: str | int) -> T:
    """Return how much a container may use; nothing where that cannot be read."""
    try:
        return parse(quantity)
    except ValueError:
        return parse(0)


def _warnings(cluster: Any, pods: list[Any]) -> Iterator[str]:
    spec = cluster.get("spec", {})
    head = spec.get("headGroupSpec") or {}
    if (spec.get("authOptions") or {}).get("mode") != "token":
        yield "The cluster is open: it asks for no token (authOptions)."
    if head.get("serviceType", "ClusterIP") != "ClusterIP":
        yield f"The dashboard has an address outside of the cluster ({head['serviceType']})."
    wanted = sum(group.get("replicas", 0) for group in spec.get("workerGroupSpecs", []))
    ready = sum(readiness.is_worker(pod) and readiness.is_ready(pod) for pod in pods)
    if ready < wanted:
        yield f"{ready} of {wanted} workers are ready."
    if trouble := readiness.trouble_of_cluster(cluster):
        yield str(trouble)


def _chosen(pods: list[Any], node: str | None) -> list[Any]:
    if node is None:
        return pods
    names = [pod["metadata"]["name"] for pod in pods]
    found = [pod for pod in pods if node == pod["metadata"]["name"] or (node == "head" and readiness.is_head(pod))]
    if not found:
        raise ClusterError(
            f'There is no pod "{node}".{nearest(node, names)}', fix=f"Use head, or one of: {', '.join(names)}."
        )
    return found


def _pod_log(api: Api, pod: Any, lines: int) -> Iterator[str]:
    """Yield what the container said, before its last restart too; the reason when it has not said anything."""
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses", [])
    restarted = any(status["name"] == container and status.get("restartCount", 0) for status in statuses)
    if trouble := readiness.trouble_of(pod):
        yield f"ERROR {trouble.reason} {trouble.message}".rstrip()
    try:
        if restarted:
            yield from api.log(name, container, lines=lines, previous=True)
        yield from api.log(name, container, lines=lines)
    except RefusedError as error:
        if error.status not in (400, 404):  # it has not started, or has just gone
            raise
