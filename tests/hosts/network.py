"""Hosts on one machine: a network namespace each, with an address and a name of its own, on one switch.

All links live in the namespaces, none in the machine's own network. Needs root and `ip` and `tc` (`make system`).
Processes, files and memory are shared: pids are valid everywhere, and a path means the same on every host.
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psutil

PREFIX = "dray-"
SUBNET = "10.77.0"
"""Of every network: they do not see each other."""
_OWNED = re.compile(rf"{PREFIX}(\d+)-")
_NAME = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
_numbers = itertools.count()
H = TypeVar("H", bound="Host")


def why_not() -> str | None:
    """Return what keeps this machine from having hosts; None when nothing does."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    if missing := [program for program in ("ip", "tc", "unshare", "hostname") if shutil.which(program) is None]:
        return f"needs {', '.join(missing)}: make system"
    name = f"{PREFIX}{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no network namespaces here: {tried.stderr.strip()}"
    _ip("netns", "del", name)
    return None


class Network:
    """A switch with hosts on it. Use as a context manager: leaving it ends every process on the hosts.

    What a test run that was killed has left behind is swept by the next network on this machine.
    """

    def __init__(self) -> None:
        sweep()
        self._prefix = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        self.switch = f"{self._prefix}-switch"
        self.directory = Path(tempfile.gettempdir()) / self._prefix
        """For what the hosts write; short, since Ray has sockets in it."""
        self.hosts: list[Host] = []
        atexit.register(self.close)
        try:
            self.directory.mkdir()
            _ip("netns", "add", self.switch)
            _ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "switch", "up")
        except BaseException:
            self.close()
            raise

    def add(self, name: str, kind: type[H]) -> H:
        """Connect a new host of that class to the switch."""
        number = len(self.hosts) + 1
        host = kind(self, name, f"{self._prefix}-{name}", f"{SUBNET}.{number}", f"port{number}")
        self.hosts.append(host)
        host.connect()
        # Every host knows every name, and asks nobody else.
        names = "".join(f"{known.address} {known.name}\n" for known in self.hosts)
        for known in self.hosts:
            (known.etc / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        return host

    def close(self) -> None:
        """End every process on the hosts, then take the hosts and the switch away. May be called again."""
        _remove([*(host.namespace for host in self.hosts), self.switch])
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Host:
    """One host: run programs on it, cut it off, slow its link."""

    def __init__(self, network: Network, name: str, namespace: str, address: str, port: str) -> None:
        self.name = name
        self.namespace = namespace
        self.address = address
        self._switch = network.switch
        self._port = port
        self._relay: subprocess.Popen[bytes] | None = None
        self.etc = Path("/etc/netns") / namespace
        """Laid over /etc for the programs of this host."""

    def connect(self) -> None:
        self.etc.mkdir(parents=True)
        (self.etc / "hosts").touch()
        (self.etc / "resolv.conf").touch()
        _ip("netns", "add", self.namespace)
        _ip(
            "-n",
            self._switch,
            "link",
            "add",
            self._port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            self.namespace,
        )
        _ip("-n", self._switch, "link", "set", self._port, "master", "switch", "up")
        _ip("-n", self.namespace, "link", "set", "lo", "up")
        _ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self.namespace, "link", "set", "eth0", "up")
        # To nowhere, as long as nobody there forwards; programs that look for the host's own address need it.
        _ip("-n", self.namespace, "route", "add", "default", "via", f"{SUBNET}.254")

    @property
    def prefix(self) -> list[str]:
        """What to put before a command so that it runs on this host, in the process that is started."""
        return ["ip", "netns", "exec", self.namespace, *_NAME, self.name]

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program here; the pid is its own. It ends with the network at the latest."""
        return subprocess.Popen([*self.prefix, *command], **options)

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program here to its end; one that fails is an AssertionError with what it said."""
        done = subprocess.run(
            [*self.prefix, *command], env=env, cwd=cwd, timeout=timeout_s, check=False, capture_output=True, text=True
        )
        told = f"{' '.join(command)} on {self.name}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, told
        return done

    def processes(self) -> list[psutil.Process]:
        """What runs here."""
        found = []
        for pid in _pids(self.namespace):
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def cut(self) -> None:
        """Pull the cable: nothing arrives any more, and nobody is told."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def restore(self) -> None:
        """Put the cable back."""
        _ip("-n", self._switch, "link", "set", self._port, "up")

    def cut_from(self, other: Host) -> None:
        """Have no packet get through between this host and another, and neither be told; both reach all others."""
        nobody = ("lladdr", "02:00:00:00:00:ff", "dev", "eth0", "nud", "permanent")
        for here, there in ((self, other), (other, self)):
            _ip("-n", here.namespace, "neighbour", "replace", there.address, *nobody)

    def reach_again(self, other: Host) -> None:
        """Undo `cut_from`."""
        for here, there in ((self, other), (other, self)):
            _ip("-n", here.namespace, "neighbour", "del", there.address, "dev", "eth0")

    def cannot_call(self, other: Host) -> None:
        """Have no call from this host reach the other's servers; calls the other way, and answers, get through."""
        listed = other.run(["ss", "-Hltn"]).stdout.splitlines()
        for port in {line.split()[3].rpartition(":")[2] for line in listed}:
            rule = ("to", other.address, "ipproto", "tcp", "dport", port, "blackhole")
            _ip("-n", self.namespace, "rule", "add", "pref", "1", *rule)

    def can_call(self, other: Host) -> None:
        """Undo `cannot_call`."""
        while f"to {other.address}" in self.run(["ip", "rule"]).stdout:
            _ip("-n", self.namespace, "rule", "del", "pref", "1")

    def power_off(self) -> None:
        """End everything here at once, without a word to the others: no connection is closed."""
        self.cut()
        _kill([self.namespace])

    def slow(self, *, delay_ms: float = 0, rate: str | None = None) -> None:
        """Let every packet from here leave so much later, and hold both directions to `rate` ("20mbit")."""
        self.fast()
        if rate is not None:
            shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
            _run("tc", "-n", self.namespace, "qdisc", "add", "dev", "eth0", *shape)
            _run("tc", "-n", self._switch, "qdisc", "add", "dev", self._port, *shape)
        if delay_ms:
            script = Path(__file__).with_name("delay.py")
            relay = [sys.executable, str(script), str(delay_ms), f"{SUBNET}.0/24", self.address]
            self._relay = self.start(relay, stdout=subprocess.PIPE)
            assert self._relay.stdout is not None
            assert self._relay.stdout.readline() == b"ready\n", "the delay did not start"

    def fast(self) -> None:
        """Undo `slow`."""
        if self._relay is not None:
            self._relay.terminate()
            self._relay.communicate(timeout=10)
            self._relay = None
        for namespace, link in ((self.namespace, "eth0"), (self._switch, self._port)):
            _run("tc", "-n", namespace, "qdisc", "del", "dev", link, "root", check=False)


def sweep() -> None:
    """Take away the networks of processes that are gone."""
    temporary = Path(tempfile.gettempdir())
    places = [*temporary.glob(f"{PREFIX}*-*"), *Path("/etc/netns").glob(f"{PREFIX}*")]
    stale = [name for name in _namespaces() if _is_stale(name)]
    _remove(stale)
    for place in places:
        if _is_stale(place.name):
            shutil.rmtree(place, ignore_errors=True)


def _is_stale(name: str) -> bool:
    owner = _OWNED.match(name)
    return owner is not None and not psutil.pid_exists(int(owner[1]))


def _namespaces() -> list[str]:
    listed = _run("ip", "netns", "list", check=False)
    return [line.split()[0] for line in listed.splitlines() if line.strip()]


def _remove(namespaces: Sequence[str]) -> None:
    there = set(_namespaces())
    mine = [name for name in namespaces if name in there]
    _kill(mine)
    for name in mine:
        _run("ip", "netns", "del", name, check=False)
    for name in namespaces:
        shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def _kill(namespaces: Sequence[str], timeout_s: float = 10) -> None:
    """End the processes in the namespaces, also those that others of them start meanwhile."""
    deadline = time.monotonic() + timeout_s
    while pids := [pid for name in namespaces for pid in _pids(name)]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert time.monotonic() < deadline, f"{pids} do not end"
        time.sleep(0.02)


def _pids(namespace: str) -> list[int]:
    return [int(pid) for pid in _run("ip", "netns", "pids", namespace, check=False).split()]


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
