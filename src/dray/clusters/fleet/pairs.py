"""Whether every machine reaches every other one on the cluster's ports, asked before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import FleetFile, HostSpec
from dray.clusters.fleet.session import Session

_REACH_S = 3.0
_SHOWN = 12


async def blocked_pairs(session: Session, hosts: Iterable[str], only: str | None) -> list[Problem]:
    """Return which machines do not reach which others; with `only` of the pairs with that one.

    Ray's own check is between a node and the head, and training is between all of them.
    """
    hosts = [host for host in hosts if host in session.machines]

    async def listen(host: str) -> Any:
        spec = session.fleet.machine(host)
        return await session.ask(host, "listen", address=spec.address or "", ranges=ranges_of(session.fleet, spec))

    try:
        open_, problems = await session.each(hosts, listen)

        async def reach(host: str) -> Any:
            targets = targets_of(host, open_, only)
            return await session.ask(host, "reach", targets=targets, limit_s=_REACH_S) if targets else {}

        answers, more = await session.each(open_, reach)
    finally:
        with suppress(Exception):  # an agent that ends closes them too
            await session.ask_all(hosts, "listen", address="", ranges={})
    return problems + more + find_blocked(session.fleet, open_, answers)


def ranges_of(fleet: FleetFile, spec: HostSpec) -> dict[str, tuple[int, int]]:
    """Return the ports that a machine must be reached at, by their key in `ports:`."""
    ports = fleet.ports
    return {"nodes": ports.node_range(spec.workers), "workers": ports.worker_range, "ring": ports.ring_range}


def targets_of(host: str, opened: Mapping[str, Any], only: str | None) -> list[list[Any]]:
    return [
        [found["address"], port]
        for other, found in opened.items()
        if other != host and (only is None or only in (host, other))
        for ports in found["ports"].values()
        for port in ports
    ]


def find_blocked(
    fleet: FleetFile, opened: Mapping[str, Any], answers: Mapping[str, Mapping[str, str]]
) -> list[Problem]:
    """Return a problem for each pair of machines and each range, from what each of them does not reach."""
    found = []
    for host, failed in answers.items():
        for other, there in opened.items():
            for key, ports in there["ports"].items():
                shut = {port: failed[where] for port in ports if (where := f"{there['address']}:{port}") in failed}
                if shut and other != host:
                    numbers = f"port{'s' if len(shut) > 1 else ''} {', '.join(map(str, shut))}"
                    words = f"{other} at {there['address']}, {numbers}: {next(iter(shut.values()))}"
                    first, last = ranges_of(fleet, fleet.machine(other))[key]
                    fix = f"open the ports {first}-{last} (ports.{key}) from every machine to every other one"
                    found.append(Problem(host, "port blocked", words, fix))
    if len(found) > _SHOWN:
        more = f"and {len(found) - _SHOWN} more like these"
        return [*found[:_SHOWN], Problem(found[_SHOWN].host, "port blocked", more)]
    return found
