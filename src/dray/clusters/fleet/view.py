"""What the machines say and what Ray says, as one status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import FleetFile
from dray.clusters.fleet.layout import HEAD, indices, node_name
from dray.clusters.known import Known
from dray.clusters.provider import NodeStatus, Status


def status_of(
    known: Known,
    fleet: FleetFile,
    facts: Mapping[str, Mapping[str, Any]],
    problems: Mapping[str, Problem],
    view: Mapping[str, Any] | None,
    warnings: Sequence[str],
    cut_off: Mapping[str, str] | None = None,
) -> Status:
    """Return the status.

    `facts` are the machines that answered, `problems` those that did not. `view` is Ray's, None when the head does not
    answer; it lags a minute behind where a cable is cut, so the head says which nodes it does not reach (`cut_off`).
    """
    told = _newest(view["nodes"]) if view is not None else {}
    nodes = [
        _node(host.host, index, facts, problems, told if view is not None else None, cut_off or {})
        for host in fleet.machines
        for index in indices(fleet, host)
    ]
    ours = {node.name for node in nodes}
    strangers = [
        NodeStatus(
            name=name, host=node["address"], alive=True, reason="dray did not start it", **_resources(node["resources"])
        )
        for name, node in told.items()
        if name not in ours and node["alive"]
    ]
    return Status(
        name=known.name,
        kind="fleet",
        address=known.address,
        dashboard=known.dashboard,
        nodes=(*nodes, *strangers),
        running=tuple(_job(job) for job in view["jobs"]) if view is not None else (),
        warnings=tuple(warnings),
    )


def _newest(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return a node by name: the one that lives, or else the last that did. A node that was repaired is there twice."""
    found: dict[str, Mapping[str, Any]] = {}
    for node in sorted(nodes, key=lambda node: (node["alive"], node["started"])):
        found[node["name"]] = node
    return found


def _node(
    host: str,
    index: int,
    facts: Mapping[str, Mapping[str, Any]],
    problems: Mapping[str, Problem],
    told: Mapping[str, Mapping[str, Any]] | None,
    cut_off: Mapping[str, str],
) -> NodeStatus:
    name = node_name(host, index)
    by_ray = told.get(name) if told is not None else None
    seen = facts.get(host)
    noted = seen["nodes"].get(str(index), {}) if seen else {}
    alive, reason = _alive(by_ray, told is not None, noted if seen else None, problems.get(host), cut_off.get(name, ""))
    versions = seen["versions"] if seen else {}
    resources = _resources(by_ray["resources"]) if by_ray else {}
    if not resources.get("memory_bytes") and noted:
        resources = {
            "cpus": float(noted.get("cpus", 0)),
            "memory_bytes": noted.get("memory", 0),
            "object_store_bytes": noted.get("object_store", 0),
        }
    return NodeStatus(
        name=name,
        host=host,
        alive=alive,
        head=index == HEAD,
        ray=versions.get("ray", ""),
        python=versions.get("python", ""),
        reason=reason,
        **resources,
    )


def _alive(
    by_ray: Mapping[str, Any] | None,
    ray_answers: bool,
    noted: Mapping[str, Any] | None,
    problem: Problem | None,
    cut_off: str,
) -> tuple[bool, str]:
    if problem and cut_off:
        return False, f"{problem.reason} ({problem.words}), by the head too ({cut_off})"
    if not ray_answers:
        if problem:
            return False, f"{problem.reason} ({problem.words})"
        if noted is None:
            return False, "the head does not answer"
        return False, "the head does not answer" if noted.get("alive") else "its processes have ended"
    if noted is not None and not noted.get("alive"):
        was = by_ray["reason"] if by_ray and not by_ray["alive"] else ""
        words = "its processes have ended" if noted else "it was not started"
        return False, f"{words}: {was}" if was else words
    if by_ray is None:
        return False, f"{problem.reason} ({problem.words})" if problem else "it has not joined"
    if not by_ray["alive"]:
        words = f"Ray takes it for dead: {by_ray['reason']}".rstrip(": ")
        return False, f"{problem.reason} ({problem.words}), and {words}" if problem else words
    if cut_off:
        return False, f"the head does not reach it ({cut_off})"
    return True, f"SSH: {problem.reason} ({problem.words})" if problem else ""


def _resources(told: Mapping[str, float]) -> dict[str, Any]:
    return {
        "cpus": float(told.get("CPU", 0.0)),
        "memory_bytes": int(told.get("memory", 0)),
        "object_store_bytes": int(told.get("object_store_memory", 0)),
    }


def _job(job: Mapping[str, str]) -> str:
    return job["entrypoint"] or f"job {job['id']}"
