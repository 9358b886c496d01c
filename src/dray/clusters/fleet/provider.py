"""Fleets behind the contract of all clusters (`Provider`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dray.clusters import known as store
from dray.clusters.fleet.checks import Problem, warnings_of
from dray.clusters.fleet.file import FleetFile, make_host, read_fleet
from dray.clusters.fleet.host.sending import modules
from dray.clusters.fleet.layout import indices, node_name
from dray.clusters.fleet.session import Session, silent, versions_here
from dray.clusters.fleet.ssh import HostError, tunnel, wait_for
from dray.clusters.fleet.up import WAIT_S, add, fleet_of, up
from dray.clusters.fleet.view import status_of
from dray.clusters.known import Known
from dray.clusters.provider import Provider, Status, Tell
from dray.errors import ClusterError, ConfigError, nearest

DRAIN_S = 30.0
_POLL_S = 0.3
_REACH_S = 2.0
_DRAIN_CALL_S = 20.0


class Fleet(Provider):
    """Clusters of machines that are reached by SSH."""

    kind = "fleet"
    changes = "A fleet changes by dray cluster add HOST and dray cluster remove HOST."

    def up(self, file: str | None, tell: Tell = silent, *, wait_s: float | None = None) -> Status:
        if file is None:
            raise ConfigError(
                "No fleet file is given.", fix="dray cluster up fleet.yaml; docs/guides/fleet.md has one."
            )
        return up(read_fleet(file), tell, wait_s=WAIT_S if wait_s is None else wait_s)

    def add(self, known: Known, host: Mapping[str, Any], tell: Tell = silent) -> Status:
        return add(known, make_host(host), tell)

    def remove(self, known: Known, host: str, tell: Tell = silent, *, drain_s: float = DRAIN_S) -> None:
        """Take one machine out: Ray puts nothing more on it, its tasks have `drain_s` to go elsewhere, then it ends.

        One that does not answer any more is forgotten.
        """
        wait_for(_remove(known, host, tell, drain_s))

    def status(self, known: Known) -> Status:
        return wait_for(_status(known))

    def logs(self, known: Known, node: str | None, *, errors: bool, lines: int) -> Iterator[str]:
        """Yield the last lines of a node (host/1), of a machine, or of all, each as "node: file: line".

        A machine that does not answer has one line that says so.
        """
        yield from wait_for(_logs(known, node, errors, lines))

    def down(self, known: Known, tell: Tell = silent) -> None:
        wait_for(_down(known, tell))

    def cleanup(self, known: Known, limit_bytes: int, tell: Tell = silent) -> dict[str, dict[str, int]]:
        """Remove session directories on every machine, the oldest first; never one that a process uses."""
        return wait_for(_cleanup(known, limit_bytes, tell))

    @contextmanager
    def endpoint(self, known: Known) -> Iterator[str]:
        """Give the job server through an SSH tunnel; it asks for the cluster's token all the same."""
        fleet = fleet_of(known)
        host, _, port = known.dashboard.removeprefix("http://").rpartition(":")
        with tunnel(fleet, fleet.head_host, host, int(port)) as here:
            yield f"http://127.0.0.1:{here}"


async def _status(known: Known) -> Status:
    fleet = fleet_of(known)
    hosts = [machine.host for machine in fleet.machines]
    async with Session(fleet, known.details["cluster"]) as session:
        problems = {problem.host: problem for problem in await session.connect(hosts)}
        (facts, more), view = await asyncio.gather(session.look(hosts), _view(session, known))
        problems |= {problem.host: problem for problem in more}
        # Both at the same agent take their turns; the view needs no second look.
        cut_off: dict[str, str] = {}
        if view is not None and problems:
            cut_off = await _cut_off(session, view)
        warnings = warnings_of(fleet, facts, versions_here())
        return status_of(known, fleet, facts, problems, view, warnings, cut_off)


async def _view(session: Session, known: Known) -> dict[str, Any] | None:
    if session.fleet.head_host not in session.machines:
        return None
    try:
        return await session.view(known.address)
    except HostError:
        return None


async def _cut_off(session: Session, view: dict[str, Any]) -> dict[str, str]:
    """Return the nodes that the head does not reach, by name, with why."""
    alive = [node for node in view["nodes"] if node["alive"]]
    targets = [[node["address"], node["port"]] for node in alive]
    answers, _ = await session.ask_all([session.fleet.head_host], "reach", targets=targets, limit_s=_REACH_S)
    found = answers.get(session.fleet.head_host, {})
    names = {f"{node['address']}:{node['port']}": node["name"] for node in alive}
    return {names[where]: why for where, why in found.items()}


async def _logs(known: Known, node: str | None, errors: bool, lines: int) -> list[str]:
    fleet = fleet_of(known)
    wanted = which(fleet, node)
    async with Session(fleet, known.details["cluster"]) as session:
        problems = await session.connect(wanted)

        async def one(host: str) -> list[str]:
            answer = await session.ask(host, "logs", nodes=wanted[host], errors=errors, lines=lines)
            return [f"{node_name(host, int(index))}: {file}: {line}" for index, file, line in answer]

        answers, more = await session.each([host for host in wanted if host in session.machines], one)
    told = [f"{problem.host}: {problem.reason} ({problem.words})" for problem in problems + more]
    return told + [line for host in wanted for line in answers.get(host, [])]


def which(fleet: FleetFile, node: str | None) -> dict[str, list[str] | None]:
    """Return machines and the nodes on each that a name means: nothing all, a host its nodes, host/1 that one."""
    if node is None:
        return {machine.host: None for machine in fleet.machines}
    if any(machine.host == node for machine in fleet.machines):
        return {node: None}
    names = {
        node_name(machine.host, index): (machine.host, index)
        for machine in fleet.machines
        for index in indices(fleet, machine)
    }
    if node not in names:
        raise ConfigError(
            f'"{node}" is neither a machine nor a node of the cluster {fleet.name}.{nearest(node, names)}',
            fix=f"Its nodes: {', '.join(names)}.",
        )
    host, index = names[node]
    return {host: [str(index)]}


async def _down(known: Known, tell: Tell) -> None:
    fleet = fleet_of(known)
    hosts = [machine.host for machine in fleet.machines]
    async with Session(fleet, known.details["cluster"], tell) as session:
        problems = await session.connect(hosts)

        async def one(host: str) -> None:
            tell(host, "working", "stops")
            tell(host, "done", ended("is down", await session.ask(host, "stop")))

        _, more = await session.each(list(session.machines), one)
    if not (left := problems + more):
        store.remove(fleet.name)
        return
    # What is left is still known, so that it can be ended later.
    names = {problem.host for problem in left}
    rest = tuple(machine for machine in fleet.machines if machine.host in names)
    head = fleet.head_host if fleet.head_host in names else rest[0].host
    smaller = fleet.model_copy(update={"hosts": rest, "head": head})
    _save(known, smaller)
    raise _left(fleet.name, left)


def ended(words: str, kept: str) -> str:
    """Return what is said of a machine at the end, with what was not removed there."""
    return f"{words}; {kept}" if kept else words


def _left(name: str, problems: list[Problem]) -> ClusterError:
    told = "; ".join(map(str, problems))
    forget = ", ".join(f"dray cluster remove {problem.host} --cluster {name}" for problem in problems)
    return ClusterError(
        f"The cluster {name} is down, but not on every machine. {told}.",
        fix=f"dray cluster down {name} again when they answer, or forget them: {forget}.",
    )


async def _remove(known: Known, host: str, tell: Tell, drain_s: float) -> None:
    fleet = fleet_of(known)
    fleet.machine(host)
    if host == fleet.head_host and len(fleet.machines) > 1:
        raise ConfigError(
            f"{host} is the head of the cluster {fleet.name}, which cannot do without it.",
            fix=f"dray cluster down {fleet.name} ends it all.",
        )
    async with Session(fleet, known.details["cluster"], tell) as session:
        problems = await session.connect({host, fleet.head_host})
        if host != fleet.head_host:
            await _drain(session, known, host, tell, drain_s)
        if host in session.machines:
            tell(host, "working", "stops")
            answers, more = await session.ask_all([host], "stop")
            if more:
                raise ClusterError(f"{more[0]}.", fix="Try again.")
            tell(host, "done", ended("is out", answers[host]))
        else:
            tell(host, "done", f"is forgotten: {problems[0].reason}")
    if host == fleet.head_host:
        store.remove(fleet.name)
        return
    _save(known, fleet.without_host(host))


async def _drain(session: Session, known: Known, host: str, tell: Tell, drain_s: float) -> None:
    """Have what runs there go elsewhere, as far as the head is there to arrange it."""
    view = await _view(session, known)
    if view is None:
        return
    mine = {node["id"] for node in view["nodes"] if node["alive"] and node["name"].startswith(f"{host}/")}
    if not mine:
        return
    tell(host, "working", "drains")
    await session.ask(
        session.fleet.head_host,
        "ask_ray",
        ask="drain",
        ids=sorted(mine),
        address=known.address,
        deadline_s=drain_s,
        limit_s=_DRAIN_CALL_S,
        launcher=modules("launcher"),
    )
    # A node that is drained ends by itself once nothing runs on it.
    deadline = time.monotonic() + drain_s
    while time.monotonic() < deadline and host in session.machines:
        view = await _view(session, known)
        if view is None or not mine & {node["id"] for node in view["nodes"] if node["alive"]}:
            return
        await asyncio.sleep(_POLL_S)


async def _cleanup(known: Known, limit_bytes: int, tell: Tell) -> dict[str, dict[str, int]]:
    fleet = fleet_of(known)
    hosts = [machine.host for machine in fleet.machines]
    async with Session(fleet, known.details["cluster"], tell) as session:
        problems = await session.connect(hosts)
        answers, more = await session.ask_all(hosts, "cleanup", limit_bytes=limit_bytes)
    for host, answer in answers.items():
        tell(host, "done", f"{answer['removed']} old sessions removed, {answer['freed_bytes'] / 1e6:.0f} MB")
    if problems + more:
        told = "; ".join(map(str, problems + more))
        raise ClusterError(f"Not every machine was cleaned up. {told}.", fix="Try again when they answer.")
    return answers


def _save(known: Known, fleet: FleetFile) -> None:
    store.save(replace(known, details={**known.details, "fleet": fleet.model_dump(mode="json")}))
