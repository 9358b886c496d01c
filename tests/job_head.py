"""A real Ray head of its own on this machine, with its dashboard and job server on loopback, and a token."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
_START_TIMEOUT_S = 90


@dataclass(frozen=True)
class JobHead:
    url: str
    token: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """For a client of it: nothing of another cluster, and the token."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {**kept, "RAY_AUTH_TOKEN": self.token}


@contextmanager
def job_head(cpus: int = 2, extra: Mapping[str, str] | None = None) -> Iterator[JobHead]:
    """Start the head, with `extra` in the environment of all its processes, and end every one of them."""
    # Short and in /tmp: the paths of Ray's sockets may have 107 characters.
    place = Path(tempfile.mkdtemp(prefix="dray-jobs-", dir="/tmp"))
    token, port, dashboard, agent = secrets.token_hex(32), _free_port(), _free_port(), _free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_"))}
    environment = {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        **(extra or {}),
    }
    command = [
        *(str(BIN / "ray"), "start", "--head", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1"),
        *(f"--port={port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--num-cpus={cpus}"),
        *(f"--dashboard-agent-listen-port={agent}", f"--temp-dir={place}", "--object-store-memory=100000000"),
    ]
    log = place / "head.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    head = JobHead(f"http://127.0.0.1:{dashboard}", token, log)
    try:
        _wait(process, head)
        yield head
    finally:
        _end(process, place)
        shutil.rmtree(place, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], head: JobHead) -> None:
    """Until it answers, and a job could be taken by its agent."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    request = urllib.request.Request(f"{head.url}/api/jobs/", headers={"Authorization": f"Bearer {head.token}"})
    while True:
        with suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(request, timeout=5).close()
            return
        assert process.poll() is None and time.monotonic() < deadline, head.log.read_text(errors="replace")[-2000:]
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes], place: Path) -> None:
    """End what belongs to this head: its descendants, and whatever carries its directory in its command."""
    mine = {psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)}
    for other in psutil.process_iter(["cmdline"]):
        if any(str(place) in word for word in other.info["cmdline"] or ()):
            mine.add(other)
    process.terminate()
    _, alive = psutil.wait_procs(list(mine), timeout=10)
    for left in alive:
        with suppress(psutil.NoSuchProcess):
            left.kill()
    psutil.wait_procs(alive, timeout=10)
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _free_port() -> int:
    """Return a port that is free, and below those that the kernel gives to any process that asks for one."""
    while True:
        port = 22_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
