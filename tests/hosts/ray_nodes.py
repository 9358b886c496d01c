"""A Ray cluster of several hosts: one real Ray node on each, joined through the network between them."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from hosts.network import Host, Network
from hosts.ray_view import View, Viewer
from living import named

PORT = 6379
RAY = str(Path(sys.executable).with_name("ray"))
QUICK_VERDICT = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""Settings with which Ray gives up a node that is cut off after 5 s, not after 63."""
_OBJECT_STORE_BYTES = 100_000_000
_START_TIMEOUT_S = 90


class RayHost(Host):
    """A host with a Ray node on it."""

    @property
    def raylet(self) -> psutil.Process:
        """The process that is the node; every other one here ends with it."""
        [found] = named(self.processes(), "raylet")
        return found

    @property
    def node_id(self) -> str:
        [found] = [part for part in self.raylet.cmdline() if part.startswith("--node_id=")]
        return found.partition("=")[2]

    @property
    def has_ray(self) -> bool:
        return bool(named(self.processes(), "raylet"))

    def kill_raylet(self) -> None:
        """End the node as a crash does: the host stays, and its connections are closed."""
        self.raylet.kill()


class Hosts(Network):
    """A Ray head and nodes, each on its host.

    A driver runs on the head (`head.start`, with `environment`): with the pids shared, Ray would connect a driver on
    another host to the head's node all the same.
    """

    head: RayHost

    def __init__(self, ray_settings: Mapping[str, str] | None = None) -> None:
        """`ray_settings` are variables for every Ray process, such as RAY_health_check_period_ms."""
        self._viewer: Viewer | None = None
        super().__init__()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = {
            **inherited,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            **(ray_settings or {}),
        }
        """For everything that talks to the cluster."""

    @property
    def address(self) -> str:
        """What to give as `--cluster`."""
        return f"{self.head.address}:{PORT}"

    def start_head(self, cpus: int = 0) -> RayHost:
        """Start the head, first of all; with no CPUs it takes no worker."""
        self.head = self.add("head", RayHost)
        self._start_ray(self.head, "--head", f"--port={PORT}", "--include-dashboard=false", cpus=cpus)
        return self.head

    def start_node(self, cpus: int = 1) -> RayHost:
        """Start a node on a new host; the cluster knows it when this returns."""
        host = self.add(f"node{len(self.hosts)}", RayHost)
        self.start_ray(host, cpus)
        return host

    def start_ray(self, host: RayHost, cpus: int = 1) -> None:
        """Start a node on a host that has none, or none any more."""
        self._start_ray(host, f"--address={self.address}", cpus=cpus)

    def drain(self, host: RayHost, deadline_s: int) -> None:
        """Tell the cluster that the host will be taken away after so many seconds, as a cloud does; nothing more."""
        self.head.run(
            [
                *(RAY, "drain-node", f"--address={self.address}", f"--node-id={host.node_id}"),
                *("--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=a test"),
                f"--deadline-remaining-seconds={deadline_s}",
            ],
            env=self.environment,
        )

    def view(self) -> View:
        """Return how Ray sees its cluster now."""
        if self._viewer is None:
            self._viewer = Viewer(self.address, env=self.environment, prefix=self.head.prefix)
        return self._viewer.look()

    def wait_for_view(self, cpus: int, timeout_s: float = 90) -> None:
        """Return when Ray knows who lives, nobody holds any place, and so many CPUs are free."""
        known = {host.node_id for host in self.hosts if isinstance(host, RayHost) and host.has_ray}
        deadline = time.monotonic() + timeout_s
        while True:
            view = self.view()
            if (
                set(view.free_cpus) == known
                and sum(view.free_cpus.values()) == cpus
                and not view.groups
                and not view.draining
            ):
                return
            assert time.monotonic() < deadline, f"{view}, but {known} live"
            time.sleep(0.2)

    def close(self) -> None:
        super().close()
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            viewer.close()

    def _start_ray(self, host: RayHost, *options: str, cpus: int) -> None:
        directory = self.directory / host.name
        directory.mkdir(exist_ok=True)
        host.run(
            [
                *(RAY, "start", *options, f"--node-ip-address={host.address}", f"--num-cpus={cpus}"),
                *(f"--temp-dir={directory}", f"--object-store-memory={_OBJECT_STORE_BYTES}", "--disable-usage-stats"),
            ],
            env=self.environment,
            cwd=directory,
            timeout_s=_START_TIMEOUT_S,
        )
