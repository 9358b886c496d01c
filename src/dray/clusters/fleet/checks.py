"""What keeps machines from being one cluster, said before anything is started. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dray.clusters.fleet.file import FleetFile, HostSpec
from dray.clusters.fleet.layout import HEAD, Machine, Node, nodes_of
from dray.errors import ClusterError

Reason = Literal[
    "unreachable", "host key", "login", "not usable", "version differs", "not installed", "no memory", "no disk",
    "port in use", "port blocked", "already used", "did not start", "did not join",
]  # fmt: skip
_DISK_BYTES = 1 << 30
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one machine cannot take part."""

    host: str
    reason: Reason
    words: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.reason} ({self.words})" if self.words else f"{self.host}: {self.reason}"


def machine_of(spec: HostSpec, facts: Mapping[str, Any]) -> Machine:
    return Machine(
        address=spec.address or facts["address"],
        cpus=facts["cpus"],
        memory_bytes=facts["memory"]["total"],
        shm_bytes=facts["shm"],
    )


def missing_nodes(nodes: Iterable[Node], facts: Mapping[str, Any]) -> list[Node]:
    """Return the nodes that do not run."""
    return [node for node in nodes if not facts["nodes"].get(str(node.index), {}).get("alive")]


def find_problems(
    fleet: FleetFile, cluster: str, facts: Mapping[str, Mapping[str, Any]], head: Mapping[str, Any]
) -> list[Problem]:
    """Return everything that is wrong with the machines; `head` is what is known of the head's."""
    found: list[Problem] = []
    head_address = machine_of(fleet.machine(fleet.head_host), head).address
    for host, seen in facts.items():
        spec = fleet.machine(host)
        machine = machine_of(spec, seen)
        to_start = missing_nodes(nodes_of(fleet, spec, machine, head_address), seen)
        found += _of_use(spec, cluster, seen)
        found += _of_address(fleet, host, machine.address)
        found += _of_versions(fleet, host, seen["versions"], head["versions"])
        if to_start:
            found += _of_room(spec, to_start, seen)
    return found + _of_same(facts)


def _of_use(spec: HostSpec, cluster: str, seen: Mapping[str, Any]) -> list[Problem]:
    host = spec.host
    found = []
    state = seen["state"]
    if state.get("cluster", cluster) != cluster and any(node["alive"] for node in seen["nodes"].values()):
        owner = state.get("owner", "another user")
        words = f"{seen['directory']} belongs to a cluster {state.get('name')} that {owner} started"
        found.append(Problem(host, "already used", words, "take that one down, or give this one another name"))
    found += [
        Problem(host, "already used", f"{other} runs there", "take it down, or leave the machine out")
        for other in seen["used_by"]
    ]
    if seen["unfit"] and not found:
        fix = "set directory: to one that is empty or not there yet; dray keeps its own files there and nothing else"
        found.append(Problem(host, "not usable", seen["unfit"], fix))
    if not seen["writable"]:
        words = f"{seen['user']} may not write to {seen['directory']}"
        found.append(Problem(host, "not usable", words, "set directory: to a place that may be written"))
    if seen["path_too_long"]:
        words = f"the path {seen['directory']} is {seen['path_too_long']} characters too long for Ray's sockets"
        found.append(Problem(host, "not usable", words, "set directory: to a shorter path"))
    if seen["missing"]:
        words = f"{', '.join(seen['missing'])} cannot be read there"
        found.append(Problem(host, "not usable", words, "put the files there, or change tls:"))
    return found


def _of_address(fleet: FleetFile, host: str, address: str) -> list[Problem]:
    try:
        here_only = ipaddress.ip_address(address).is_loopback
    except ValueError:
        return [Problem(host, "not usable", f'its address "{address}" is no IP address', f"set address: for {host}")]
    if here_only and len(fleet.machines) > 1:
        words = f"the other machines cannot reach it at {address}"
        return [Problem(host, "not usable", words, f"set address: for {host}")]
    return []


def _of_versions(fleet: FleetFile, host: str, here: Mapping[str, Any], head: Mapping[str, Any]) -> list[Problem]:
    where = fleet.docker.image if fleet.docker else (fleet.machine(host).venv or fleet.venv or "~/.dray/venv")
    if not here:
        return [Problem(host, "not installed", f"no Python in {where}", "make it, or leave venv: out")]
    if not here["ray"]:
        return [Problem(host, "not installed", f"no Ray in {where}", "pip install dray 'ray[default]' there")]
    if host == fleet.head_host and not here["dashboard"]:
        words = f"Ray in {where} has no dashboard, and so no job server"
        return [Problem(host, "not installed", words, "pip install 'ray[default]' there")]
    found = []
    for name in ("ray", "python", "dray"):
        if head.get(name) and here[name] != head[name]:
            has = f"{name} {here[name]}" if here[name] else f"no {name}"
            words = f"{has}, {fleet.head_host} has {head[name]}"
            found.append(Problem(host, "version differs", words, "use the same version on all machines"))
    return found


def _of_room(spec: HostSpec, nodes: Sequence[Node], seen: Mapping[str, Any]) -> list[Problem]:
    host = spec.host
    found = []
    workers = [node for node in nodes if node.index != HEAD]
    asked = sum(node.memory_bytes + node.object_store_bytes for node in workers)
    total, available = seen["memory"]["total"], seen["memory"]["available"]
    stores = sum(node.object_store_bytes for node in nodes)
    # A machine that is asked for nothing in particular gives what it has.
    free = available if spec.memory else total
    if workers and asked > free:
        words = f"{_size(asked)} asked for {len(workers)} workers, {_size(available)} free of {_size(total)}"
        found.append(Problem(host, "no memory", words, f"give {host} less memory: or fewer workers:"))
    if stores > seen["shm"]:
        words = f"{_size(stores)} asked for object stores, {_size(seen['shm'])} free in /dev/shm"
        found.append(Problem(host, "no memory", words, f"give {host} a smaller object_store:"))
    if seen["disk"] < _DISK_BYTES:
        words = f"{_size(seen['disk'])} free at {seen['directory']}"
        found.append(Problem(host, "no disk", words, "free some, at least 1 GB, or set directory:"))
    if seen["busy_ports"]:
        ports = ", ".join(map(str, seen["busy_ports"]))
        found.append(Problem(host, "port in use", ports, "end what listens there, or change ports:"))
    return found


def _of_same(facts: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Find machines that are in the fleet under two names: their directories are the same."""
    first: dict[tuple[str, str], str] = {}
    found = []
    for host, seen in facts.items():
        known = first.setdefault((seen["boot"], seen["directory"]), host)
        if known != host:
            found.append(Problem(host, "already used", f"it is the same machine as {known}", "name it once"))
    return found


def failure(name: str, problems: Sequence[Problem], outcome: str) -> ClusterError:
    """Return one error for all problems: each machine with its reason, and each fix once."""
    problems = sorted(set(problems), key=lambda problem: (problem.host, problem.reason, problem.words))
    told = "; ".join(map(str, problems))
    fixes = dict.fromkeys(problem.fix for problem in problems if problem.fix)
    text = "; ".join(fixes)
    return ClusterError(
        f"The cluster {name} is not up. {told}. {outcome}", fix=f"{text[0].upper()}{text[1:]}." if text else ""
    )


def why_not_started(host: str, words: str) -> Problem:
    """Return what the last words of `ray start` mean."""
    low = words.lower()
    if "version mismatch" in low:
        return Problem(host, "version differs", words, "use the same version on all machines")
    if "address already in use" in low or ("port" in low and "in use" in low):
        return Problem(host, "port in use", words, "end what listens there, or change ports:")
    if "no space left" in low:
        return Problem(host, "no disk", words, "free some disk, or set directory:")
    return Problem(host, "did not start", words, f"`dray cluster logs` after another try, or look on {host}")


def warnings_of(fleet: FleetFile, facts: Mapping[str, Mapping[str, Any]], here: Mapping[str, str]) -> list[str]:
    """Return what works but should be known."""
    found = []
    if fleet.dashboard_host not in _LOOPBACK:
        found.append(
            f"The dashboard listens on {fleet.dashboard_host}: anyone with the token and a way to it can run code "
            "there, and the token travels unencrypted."
        )
    head = facts.get(fleet.head_host, {}).get("versions", {})
    for name, version in here.items():
        if head.get(name) and head[name] != version:
            found.append(f"The cluster has {name} {head[name]}, this machine {version}.")
    for host, seen in facts.items():
        spec = fleet.machine(host)
        for index, node in seen["nodes"].items():
            if int(index) > spec.workers:
                found.append(f"{node.get('name', index)} runs, but {host} has only {spec.workers} workers in the file.")
            elif int(index) != HEAD and spec.cpus and node.get("cpus", spec.cpus) != spec.cpus:
                found.append(f"{node.get('name', index)} runs with {node['cpus']} CPUs, the file says {spec.cpus}.")
    return found


def _size(count: float) -> str:
    return f"{count / (1 << 30):.1f} GiB"
