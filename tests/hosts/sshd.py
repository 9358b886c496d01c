"""Hosts with an SSH server each, and one more from which people connect: a laptop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosts.network import Host, Network

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
_CLIENT = Path(__file__).with_name("fleet_client.py")
_SETTINGS = """
HostKey {key}
AuthorizedKeysFile {authorized}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
Subsystem sftp /usr/lib/openssh/sftp-server
SetEnv HOME={home}
"""


def why_no_sshd() -> str | None:
    return None if Path(SSHD).exists() else "needs openssh-server: make system"


class SshHost(Host):
    """A host that runs sshd."""

    directory: Path
    """Of this host alone: the home directory of whoever logs in, since the hosts share their files."""

    @property
    def names(self) -> list[str]:
        """What runs here besides the SSH server and its sessions."""
        found = []
        for process in self.processes():
            try:
                found.append(process.name())
            except Exception:  # ended meanwhile
                continue
        return sorted(name for name in found if not name.startswith("sshd"))


@dataclass
class Outcome:
    """What a function of the fleet gave: a result, or an error."""

    result: Any
    error: dict[str, str]
    told: list[tuple[str, str, str]]
    seconds: float


class Machines(Network):
    """Hosts with sshd, known to a laptop that has a key for all of them."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        try:
            self.laptop = self.add("laptop", Host)
            self.home = self.directory / "home"
            (self.home / ".ssh").mkdir(parents=True, mode=0o700)
            self.key = self._make_key(self.home / ".ssh" / "id_ed25519")
            self.known_hosts = self.home / ".ssh" / "known_hosts"
            self.machines = {name: self.start(name) for name in names}
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """Of what runs on the laptop."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SSH_"))}
        own = {"HOME": str(self.home), "DRAY_HOME": str(self.home / "dray"), "OMP_NUM_THREADS": "1"}
        return {**inherited, **own}

    def start(self, name: str) -> SshHost:
        """Add a host with an SSH server, whose key the laptop knows."""
        host = self.add(name, SshHost)
        host.directory = self.directory / name
        host.directory.mkdir()
        key = self._make_key(host.directory / "host_key")
        settings = host.directory / "sshd_config"
        settings.write_text(_SETTINGS.format(key=key, authorized=f"{self.key}.pub", home=host.directory))
        Path("/run/sshd").mkdir(exist_ok=True)
        host.start([SSHD, "-D", "-f", str(settings)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        public = Path(f"{key}.pub").read_text().split()
        with self.known_hosts.open("a") as file:
            file.write(f"{name},{host.address} {public[0]} {public[1]}\n")
        self._wait_for_port(host, 22)
        return host

    def call(
        self, do: str, *, timeout_s: float = 120, environment: Mapping[str, str] | None = None, **values: Any
    ) -> Outcome:
        """Call a function of the fleet on the laptop (see `fleet_client.py`)."""
        begun = time.monotonic()
        done = subprocess.run(
            [*self.laptop.prefix, sys.executable, str(_CLIENT)],
            input=json.dumps({"do": do, **values}),
            env={**self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{do}: {done.stdout}\n{done.stderr}"
        answer = json.loads(done.stdout.splitlines()[-1])
        told = [tuple(line) for line in answer["told"]]
        return Outcome(answer.get("result"), answer.get("error", {}), told, time.monotonic() - begun)

    def fleet(self, hosts: Sequence[str | dict[str, Any]], **values: Any) -> dict[str, Any]:
        """Return a fleet file with those hosts; a name alone is one with two small workers."""
        return {
            "name": "lab",
            "venv": sys.prefix,
            "hosts": [self.machine(host) if isinstance(host, str) else host for host in hosts],
            **values,
        }

    def machine(self, host: str, **values: Any) -> dict[str, Any]:
        directory = str(self.machines[host].directory / "d")
        given = {"host": host, "workers": 2, "cpus": 1, "memory": "500M", "object_store": "100M"}
        return {**given, "directory": directory, **values}

    def _make_key(self, path: Path) -> Path:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        return path

    def _wait_for_port(self, host: Host, port: int) -> None:
        script = f"import socket; socket.create_connection(('{host.address}', {port}), 1).close()"
        deadline = time.monotonic() + 10
        while True:
            tried = subprocess.run(
                [*self.laptop.prefix, sys.executable, "-S", "-c", script], capture_output=True, check=False
            )
            if tried.returncode == 0:
                return
            assert time.monotonic() < deadline, f"no sshd on {host.name}"
            time.sleep(0.05)
