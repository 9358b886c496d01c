"""A fleet whose machines are being talked to: all of them at the same time, each through its agent."""

from __future__ import annotations

import asyncio
import getpass
import platform
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import FleetFile, HostSpec
from dray.clusters.fleet.host.sending import modules
from dray.clusters.fleet.layout import indices, ports_of
from dray.clusters.fleet.ssh import HostError, Reached, reach
from dray.clusters.provider import Tell
from dray.rings.ports import VARIABLE as RING_VARIABLE

_OWN_VENV = "~/.dray/venv"
_INSTALL_S = 1800.0
_VIEW_S = 20.0


def silent(_host: str, _state: str, _words: str) -> None:
    """Hear nothing."""


def versions_here() -> dict[str, str]:
    return {"ray": _version("ray"), "python": platform.python_version(), "dray": _version("dray")}


def owner_here() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@dataclass
class Session:
    """Connections to the machines of a fleet. Use as an asynchronous context manager."""

    fleet: FleetFile
    cluster: str
    """The cluster's id, by which its directories are told from others of the same name."""
    tell: Tell = silent
    machines: dict[str, Reached] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(machine.close() for machine in self.machines.values()))

    async def each(
        self, hosts: Iterable[str], do: Callable[[str], Awaitable[Any]]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Do something for every host at once; return the answers and what went wrong."""
        hosts = list(hosts)
        found = await asyncio.gather(*(do(host) for host in hosts), return_exceptions=True)
        answers, problems = {}, []
        for host, outcome in zip(hosts, found, strict=True):
            if isinstance(outcome, HostError):
                problems.append(outcome.problem)
                self.tell(host, "failed", f"{outcome.problem.reason}: {outcome.problem.words}")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                answers[host] = outcome
        return answers, problems

    async def connect(self, hosts: Iterable[str]) -> list[Problem]:
        async def one(host: str) -> None:
            self.tell(host, "working", "connects")
            self.machines[host] = await reach(self.fleet, host)

        _, problems = await self.each([host for host in hosts if host not in self.machines], one)
        return problems

    async def ask(self, host: str, do: str, **values: Any) -> Any:
        """Have the agent of a machine do something; what depends on the machine alone is added."""
        return await self.machines[host].ask(do, **self.settings(self.fleet.machine(host)), **values)

    async def ask_all(self, hosts: Iterable[str], do: str, **values: Any) -> tuple[dict[str, Any], list[Problem]]:
        return await self.each(
            [host for host in hosts if host in self.machines], lambda host: self.ask(host, do, **values)
        )

    async def look(self, hosts: Iterable[str]) -> tuple[dict[str, Any], list[Problem]]:
        """Return what each machine has and what runs there."""

        async def one(host: str) -> Any:
            ports = {index: ports_of(self.fleet, index) for index in indices(self.fleet, self.fleet.machine(host))}
            # An image may have to come first.
            limit = {"timeout_s": _INSTALL_S} if self.fleet.docker else {}
            return await self.ask(host, "look", ports=ports, **limit)

        return await self.each([host for host in hosts if host in self.machines], one)

    async def install(self, host: str) -> dict[str, Any]:
        """Make the virtual environment of dray's own on a machine."""
        fleet = self.fleet
        wanted = fleet.install or f"dray=={versions_here()['dray']}"
        if (wheel := Path(wanted).expanduser()).is_file():
            self.tell(host, "working", f"copies {wheel.name}")
            wanted = f".dray/{wheel.name}"  # SFTP begins in the home directory
            await self.machines[host].copy(wheel, wanted)
            wanted = f"~/{wanted}"
        # The dashboard, which serves jobs, is an extra of Ray's.
        requirements = [wanted, f"ray[default]=={versions_here()['ray']}"]
        told = lambda words: self.tell(host, "working", words)  # noqa: E731
        spec = self.settings(fleet.machine(host))
        answer: dict[str, Any] = await self.machines[host].ask(
            "install", told=told, timeout_s=_INSTALL_S, requirements=requirements, **spec
        )
        return answer

    async def view(self, address: str) -> dict[str, Any]:
        """Return how Ray sees its cluster."""
        answer: dict[str, Any] = await self.ask(
            self.fleet.head_host, "ask_ray", ask="view", address=address, limit_s=_VIEW_S, launcher=modules("launcher")
        )
        return answer

    def settings(self, spec: HostSpec) -> dict[str, Any]:
        """Return what the agent must know of a machine for anything that it does."""
        fleet = self.fleet
        tls = fleet.tls
        # Jobs are started by these processes, and have it from them.
        variables: dict[str, str] = {**fleet.env, **spec.env, RING_VARIABLE: fleet.ports.ring}
        if tls:
            variables |= {
                "RAY_USE_TLS": "1",
                "RAY_TLS_SERVER_CERT": tls.cert,
                "RAY_TLS_SERVER_KEY": tls.key,
                "RAY_TLS_CA_CERT": tls.ca,
            }
        settings: dict[str, Any] = {
            "cluster": self.cluster,
            "name": fleet.name,
            "directory": spec.directory or fleet.directory or f"~/.dray/{fleet.name}",
            "venv": spec.venv or fleet.venv or _OWN_VENV,
            "env": variables,
            "files": [tls.cert, tls.key, tls.ca] if tls else [],
        }
        return settings | ({"docker": fleet.docker.model_dump()} if fleet.docker else {})

    def wants_install(self, host: str, facts: Mapping[str, Any]) -> bool:
        """Return whether dray's own environment there is missing or of another version, and may be made."""
        fleet = self.fleet
        if fleet.docker or fleet.venv or fleet.machine(host).venv:
            return False
        if any(node["alive"] for node in facts["nodes"].values()):
            return False
        here, found = versions_here(), facts["versions"]
        return not found or any(found[name] != here[name] for name in ("ray", "dray"))
