"""A Ray head on this machine for the contender that joins a running cluster."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import measure
import psutil


@contextmanager
def running_head(cpus: int, env: Mapping[str, str], scratch: Path, timeout_s: float = 60) -> Iterator[str]:
    """Start a head on loopback with its own ports and directory, give its address, and end all its processes."""
    port, log = free_port(), scratch / "head.log"
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", f"--num-cpus={cpus}", "--include-dashboard=false"),
        f"--dashboard-agent-listen-port={free_port()}",
        f"--temp-dir={env['RAY_TMPDIR']}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=dict(env), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    processes = measure.tree(process.pid)
    try:
        _wait_until_ready(process, log, timeout_s)
        yield f"127.0.0.1:{port}"
    finally:
        processes |= measure.tree(process.pid)
        process.terminate()
        measure.end(processes, grace_s=10)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while "Ray runtime started" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise measure.CommandFailedError(f"the Ray head did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)
    # It still starts its first workers: a running cluster is one that has come to rest.
    busy_s = _cpu_seconds(process.pid)
    while time.monotonic() < deadline:
        time.sleep(1)
        before, busy_s = busy_s, _cpu_seconds(process.pid)
        if busy_s - before < 0.1:
            break


def _cpu_seconds(pid: int) -> float:
    total = 0.0
    for process in measure.tree(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
