"""Bring a fleet up: look at every machine, then start what is missing, then wait till all have joined.

Nothing is started as long as anything is wrong with any machine; what fails later is taken back.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from dray.clusters import known as store
from dray.clusters.fleet.checks import (
    Problem,
    failure,
    find_problems,
    machine_of,
    missing_nodes,
    warnings_of,
    why_not_started,
)
from dray.clusters.fleet.file import FleetFile, HostSpec, make_fleet
from dray.clusters.fleet.host.sending import modules
from dray.clusters.fleet.layout import HEAD, Node, nodes_of
from dray.clusters.fleet.pairs import blocked_pairs
from dray.clusters.fleet.session import Session, owner_here, silent, versions_here
from dray.clusters.fleet.ssh import HostError, load_asyncssh, wait_for
from dray.clusters.fleet.view import status_of
from dray.clusters.known import Known
from dray.clusters.provider import Status, Tell
from dray.errors import ClusterError, DrayError

WAIT_S = 120.0
_POLL_S = 0.2
_REACH_S = 3.0


def up(fleet: FleetFile, tell: Tell = silent, *, wait_s: float = WAIT_S) -> Status:
    """Bring a fleet up, or repair it: what runs is left as it is. All machines at once.

    A machine that cannot take part is a ClusterError that names it with the reason, and everything is as it was.
    """
    load_asyncssh()
    before = _known(fleet.name)
    if before:
        if before.kind != "fleet":
            raise ClusterError(f"There is a cluster {fleet.name} already, on {before.kind}.", fix="Give another name:.")
        fleet = merged(fleet, fleet_of(before))
    return wait_for(_bring_up(fleet, before, None, tell, wait_s))


def add(known: Known, spec: HostSpec, tell: Tell = silent, *, wait_s: float = WAIT_S) -> Status:
    """Add one machine to a fleet that runs, or repair one that is in it; the others are left alone."""
    load_asyncssh()
    fleet = fleet_of(known).with_host(spec)
    return wait_for(_bring_up(fleet, known, spec.host, tell, wait_s))


def fleet_of(known: Known) -> FleetFile:
    values, cluster = known.details.get("fleet"), known.details.get("cluster")
    if not isinstance(values, dict) or not isinstance(cluster, str):
        raise store.damaged(known.name, "its fleet is missing")
    try:
        return make_fleet(values)
    except DrayError as error:
        raise store.damaged(known.name, error.what.rstrip(".")) from error


def _known(name: str) -> Known | None:
    return store.read(name) if name in store.names() else None


def merged(fleet: FleetFile, running: FleetFile) -> FleetFile:
    """Return the fleet file with the machines that were added since; refuse one that means another cluster."""
    if fleet.head_host != running.head_host:
        raise ClusterError(
            f"There is a cluster {fleet.name} already, with its head on {running.head_host}, not on {fleet.head_host}.",
            fix=f"Give this one another name:, or dray cluster down {fleet.name} first.",
        )
    for key in ("ports", "docker", "tls", "dashboard_host"):
        if getattr(fleet, key) != getattr(running, key):
            raise ClusterError(
                f"The cluster {fleet.name} runs with other {key}: than the file says.",
                fix=f"dray cluster down {fleet.name} first, or change {key}: back.",
            )
    named = {machine.host for machine in fleet.machines}
    added = [machine for machine in running.machines if machine.host not in named]
    return fleet.model_copy(update={"hosts": (*fleet.hosts, *added), "head": fleet.head_host})


async def _bring_up(fleet: FleetFile, before: Known | None, only: str | None, tell: Tell, wait_s: float) -> Status:
    cluster = before.details["cluster"] if before else secrets.token_hex(8)
    hosts = list(dict.fromkeys([only, fleet.head_host] if only else [machine.host for machine in fleet.machines]))
    async with Session(fleet, cluster, tell) as session:
        facts = await _inspect(session, hosts, only)
        start = Start(session, facts, wait_s, only)
        try:
            store.save(_known_of(fleet, cluster, start.address))
            await start.run(store.make_token(fleet.name))
            view = await start.wait()
        except BaseException as error:
            left = await start.undo()
            if not left:  # otherwise it stays known as it is, so that `down` finds what is left
                store.save(before) if before else store.remove(fleet.name)
            if isinstance(error, _NotUpError | HostError):
                problems = error.problems if isinstance(error, _NotUpError) else [error.problem]
                raise failure(fleet.name, [*problems, *left], start.outcome(left, before)) from None
            raise
        facts = start.facts()
        warnings = warnings_of(fleet, facts, versions_here())
        for host in hosts:
            tell(host, "done", "is up")
        return status_of(_known_of(fleet, cluster, start.address), fleet, facts, {}, view, warnings)


class _NotUpError(Exception):
    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


def _known_of(fleet: FleetFile, cluster: str, head_address: str) -> Known:
    details = {"cluster": cluster, "fleet": fleet.model_dump(mode="json")}
    dashboard = "127.0.0.1" if fleet.dashboard_host in ("0.0.0.0", "::") else fleet.dashboard_host  # noqa: S104
    return Known(
        name=fleet.name,
        kind="fleet",
        address=f"{head_address}:{fleet.ports.gcs}",
        dashboard=f"http://{dashboard}:{fleet.ports.dashboard}",
        details=details,
    )


async def _inspect(session: Session, hosts: list[str], only: str | None) -> dict[str, Any]:
    """Return what the machines have, when nothing is wrong with any of them; environments are made on the way."""
    fleet = session.fleet
    outcome = "Nothing was started."
    if problems := await session.connect(hosts):
        raise failure(fleet.name, problems, outcome)
    facts, problems = await session.look(hosts)
    if problems:
        raise failure(fleet.name, problems, outcome)
    head = facts[fleet.head_host]
    looked_at = {host: facts[host] for host in hosts if not only or host == only}
    problems = find_problems(fleet, session.cluster, looked_at, head)
    # What is installed may be mended; anything else is told before something is installed.
    if problems := [problem for problem in problems if problem.reason not in ("not installed", "version differs")]:
        raise _told(session, problems, outcome)
    wanting = [host for host in hosts if session.wants_install(host, facts[host])]
    installed, problems = await session.each(wanting, session.install)
    for host, versions in installed.items():
        facts[host]["versions"] = versions
    problems += find_problems(fleet, session.cluster, looked_at, head)
    if only and not head["nodes"].get(str(HEAD), {}).get("alive"):
        problems.append(Problem(fleet.head_host, "did not start", "its head does not run", "dray cluster up FILE"))
    if problems:
        raise _told(session, problems, outcome)
    if only:  # the others take part in this alone, as far as they answer
        hosts = [machine.host for machine in fleet.machines]
        await session.connect(hosts)
    if problems := await blocked_pairs(session, hosts, only):
        raise _told(session, problems, outcome)
    return facts


def _told(session: Session, problems: list[Problem], outcome: str) -> ClusterError:
    for problem in problems:
        session.tell(problem.host, "failed", f"{problem.reason}: {problem.words}")
    return failure(session.fleet.name, problems, outcome)


class Start:
    """The start of what is missing, and what it takes to undo it."""

    def __init__(self, session: Session, facts: Mapping[str, Any], wait_s: float, only: str | None) -> None:
        self._session = session
        self._fleet = session.fleet
        self._facts = facts
        self._deadline = time.monotonic() + wait_s
        self.head = session.fleet.head_host
        self.address = machine_of(self._fleet.machine(self.head), facts[self.head]).address
        self._hosts = [host for host in facts if not only or host == only]
        self._nodes = {host: self._nodes_of(host) for host in self._hosts}
        self._missing = {host: missing_nodes(nodes, facts[host]) for host, nodes in self._nodes.items()}
        # Without its head a cluster is none: its nodes end by themselves a minute later.
        self._anew = not facts[self.head]["nodes"].get(str(HEAD), {}).get("alive")
        if self._anew:
            self._missing = dict(self._nodes)
        self._claimed_before = {host for host in self._hosts if facts[host]["state"].get("cluster") == session.cluster}

    def _nodes_of(self, host: str) -> list[Node]:
        spec = self._fleet.machine(host)
        return nodes_of(self._fleet, spec, machine_of(spec, self._facts[host]), self.address)

    def facts(self) -> dict[str, Any]:
        """Return what is known of the machines once everything has joined."""
        return {
            host: {**seen, "nodes": {**seen["nodes"], **{str(n.index): n.noted() for n in self._missing.get(host, ())}}}
            for host, seen in self._facts.items()
        }

    async def run(self, token: str) -> None:
        """Start what is missing; _NotUpError with the machines where that failed."""
        session = self._session
        if self._anew:
            running = [host for host in self._hosts if self._facts[host]["nodes"]]
            self._check((await session.each(running, self._clear))[1])
        busy = [host for host in self._hosts if self._missing[host]]
        values = {"token": token, "owner": owner_here(), "launcher": modules("launcher")}
        self._check((await session.ask_all(busy, "claim", **values))[1])
        if self._anew:
            self._check(await self._start({self.head: [node for node in self._nodes[self.head] if node.is_head]}))
            await self._head_listens()
        workers = {host: [node for node in self._missing[host] if not node.is_head] for host in busy}
        workers = {host: nodes for host, nodes in workers.items() if nodes}
        self._check(await self._blocked(workers))
        self._check(await self._start(workers))

    async def _clear(self, host: str) -> None:
        await self._session.ask(host, "stop", nodes=list(self._facts[host]["nodes"]))

    async def _start(self, nodes: Mapping[str, list[Node]]) -> list[Problem]:
        left_s = max(1.0, self._deadline - time.monotonic())

        async def one(host: str) -> list[Problem]:
            wanted = nodes[host]
            what = "the head" if wanted[0].is_head else f"{len(wanted)} workers" if len(wanted) > 1 else "a worker"
            self._session.tell(host, "working", f"starts {what}")
            asked = [node.to_agent() for node in wanted]
            answer = await self._session.ask(
                host, "start", nodes=asked, limit_s=left_s, timeout_s=left_s + 30, launcher=modules("launcher")
            )
            return [why_not_started(host, words) for words in answer.values()]

        answers, problems = await self._session.each(nodes, one)
        return problems + [problem for found in answers.values() for problem in found]

    async def _head_listens(self) -> None:
        """Return when the head's port answers on its own machine: a container has started before what is in it."""
        target = [self.address, self._fleet.ports.gcs]
        while await self._session.ask(self.head, "reach", targets=[target], limit_s=_REACH_S):
            if time.monotonic() > self._deadline:
                raise _NotUpError([why_not_started(self.head, f"nothing listens at {target[0]}:{target[1]}")])
            await asyncio.sleep(_POLL_S)

    async def _blocked(self, hosts: Collection[str]) -> list[Problem]:
        """Find the machines that do not reach the head's port."""
        targets = [[self.address, self._fleet.ports.gcs]]
        answers, problems = await self._session.ask_all(
            [host for host in hosts if host != self.head], "reach", targets=targets, limit_s=_REACH_S
        )
        fix = f"open the ports of the cluster between its machines ({self._fleet.ports.gcs}, and those in ports:)"
        return problems + [
            Problem(host, "port blocked", f"{where} of the head: {why}", fix)
            for host, found in answers.items()
            for where, why in found.items()
        ]

    async def wait(self) -> dict[str, Any]:
        """Return Ray's view once every node is in it; _NotUpError with those that are not."""
        expected = {node.name: host for host, nodes in self._nodes.items() for node in nodes}
        for host in self._hosts:
            self._session.tell(host, "waiting", "for its nodes to join")
        while True:
            try:
                view = await self._session.view(f"{self.address}:{self._fleet.ports.gcs}")
                joined = {node["name"] for node in view["nodes"] if node["alive"]}
                fix = "raise --wait, or see dray cluster logs"
                absent = [
                    Problem(host, "did not join", name, fix) for name, host in expected.items() if name not in joined
                ]
            except HostError as error:
                view, absent = {}, [error.problem]
            if not absent:
                break
            if time.monotonic() > self._deadline:
                raise _NotUpError(absent)
            await asyncio.sleep(_POLL_S)
        self._check(await self._deaf(view))
        return view

    async def _deaf(self, view: Mapping[str, Any]) -> list[Problem]:
        """Find the machines whose nodes the head does not reach: Ray would take them for dead a minute later."""
        hosts = {f"{node['address']}:{node['port']}": node["name"].rpartition("/")[0] for node in view["nodes"]}
        targets = [[node["address"], node["port"]] for node in view["nodes"] if node["alive"]]
        answers, problems = await self._session.ask_all([self.head], "reach", targets=targets, limit_s=_REACH_S)
        fix = f"open the ports from {self._fleet.ports.nodes} on, and {self._fleet.ports.workers}, between the machines"
        return problems + [
            Problem(hosts[where], "port blocked", f"the head does not reach {where}: {why}", fix)
            for where, why in answers.get(self.head, {}).items()
        ]

    def _check(self, problems: list[Problem]) -> None:
        if problems:
            raise _NotUpError(problems)

    async def undo(self) -> list[Problem]:
        """Take back what was started here; return the machines where that failed, with what to do."""

        async def one(host: str) -> None:
            some = {"nodes": [node.index for node in self._missing[host]]} if host in self._claimed_before else {}
            try:
                kept = await self._session.ask(host, "stop", **some)
            except HostError as error:
                fix = f"dray cluster down {self._fleet.name} when {host} answers"
                raise HostError(replace(error.problem, fix=fix)) from error
            if kept:
                self._session.tell(host, "failed", kept)

        # A task that was cancelled may still clean up; one machine less does not keep the others from it.
        return (await self._session.each([host for host in self._hosts if self._missing[host]], one))[1]

    def outcome(self, left: list[Problem], before: Known | None) -> str:
        """Return what runs after all was taken back but on the machines in `left`."""
        if left:
            hosts = ", ".join(problem.host for problem in left)
            return f"What was started on {hosts} could not be ended, and may still run."
        return "What ran before still does." if before and not self._anew else "Nothing was left running."
