"""A process of the environment with Ray in it (`launcher.py`), which starts nodes and asks Ray."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from dray.clusters.fleet.host.place import Request, TroubleError, directory_of, python_of, read_state
from dray.clusters.fleet.host.sending import MARK, boot

_NO_EXPORTERS = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
"""Ray's exporters of metrics answer without a token and always listen at all addresses. Two of them are only switched
off by a port that cannot be opened: Ray notes that in its log, and goes on."""


class RayProcess:
    """The process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, request: Request) -> subprocess.Popen[bytes]:
        """Start it, if it does not run; it then loads Ray while others do something else."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        directory = directory_of(request)
        docker = request.get("docker")
        if docker:
            container = read_state(directory)["nodes"]["0"]["container"]
            python = [docker["command"], "exec", "--interactive", container, "python"]
        else:
            python = [python_of(request)]
        self._process = subprocess.Popen(  # noqa: S603  (a list, no shell)
            [*python, "-c", boot("launcher")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(request, directory),
            cwd="/",
        )
        self._send(self._process, request["launcher"])
        return self._process

    def ask(self, request: Request, timeout_s: float) -> Any:
        """Return its answer to a request."""
        process = self.open(request)
        line = {key: value for key, value in request.items() if key not in ("launcher", "token")}
        try:
            self._send(process, json.dumps(line))
            answer = self._read(process, time.monotonic() + timeout_s)
        except OSError:
            answer = None
        if answer is None:
            self.close()
            raise TroubleError("Ray does not answer there")
        if "error" in answer:
            raise TroubleError(answer["error"])
        return answer["answer"]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _send(self, process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any] | None:
        assert process.stdout is not None
        pending = b""
        while True:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not chunk:
                return None
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                if line.startswith(MARK.encode()):
                    found = json.loads(line[len(MARK) :])
                    return found if isinstance(found, dict) else None


def environment(request: Request, directory: Path) -> dict[str, str]:
    """Return the variables of Ray's processes: the machine's, those that were asked for, the place of the token.

    Not OMP_NUM_THREADS: what a login leaves set would hold for every process that works on the cluster.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RAY_", "SSH_", "OMP_", "PYTHON", "VIRTUAL_ENV"))
    }
    if not request.get("docker"):
        binaries = Path(python_of(request)).parent
        inherited["VIRTUAL_ENV"] = str(binaries.parent)
        inherited["PATH"] = f"{binaries}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return {**inherited, **asked_variables(request, directory)}


def asked_variables(request: Request, directory: Path) -> dict[str, str]:
    """Return the variables that the fleet file and dray set; `env:` may switch the exporters on again."""
    return {
        **_NO_EXPORTERS,
        **request.get("env", {}),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(directory / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
