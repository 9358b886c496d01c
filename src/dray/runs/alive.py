"""Whether the process of a run is still at work, asked on its own host or on any other.

On its own host the process answers. From elsewhere (another machine, another container) a file `alive` does, which
the run directory refreshes every HEARTBEAT_S seconds and removes in the end.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from dray.errors import DAMAGE, ModelError
from dray.events.telemetry import dumps
from dray.runs.files import RunFiles
from dray.storage import is_s3, translate_errors

ALIVE = "alive"
HEARTBEAT_S = 30.0
LOST_AFTER_S = 3 * HEARTBEAT_S
# Always as long, so that it is refreshed in place: that works on a full disk too.
_LENGTH = 256


class Run(Protocol):
    """What is asked about: a RunDirectory."""

    document: dict[str, Any]

    def read_json(self, name: str) -> Any: ...


def this_process() -> dict[str, Any]:
    """Return what tells this process from any other, for run.json."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "created": psutil.Process().create_time(),
        "namespace": _namespace(),
    }


def beat(directory: RunFiles) -> None:
    """Leave a sign of life of this process in the run. Raises StorageError."""
    sign = {"time": round(time.time(), 3), "host": socket.gethostname(), "pid": os.getpid()}
    content = (dumps(sign).ljust(_LENGTH - 1) + "\n").encode()
    if not is_s3(directory.location):
        path = directory.path(ALIVE)
        with translate_errors(path), suppress(FileNotFoundError), Path(path).open("r+b") as file:
            file.write(content)
            return
    directory.write_bytes(ALIVE, content)


def is_alive(directory: Run) -> bool:
    """Whether the run is running and its process is there, as far as it can be known. Only reads."""
    process = directory.document.get("process")
    if directory.document.get("status") != "running" or not isinstance(process, dict):
        return False
    if is_here(process):
        return _exists(process)
    try:
        sign = directory.read_json(ALIVE)
        return time.time() - float(sign["time"]) < LOST_AFTER_S
    except (ModelError, *DAMAGE):  # closed, or never refreshed
        return False


def is_here(process: dict[str, Any]) -> bool:
    """Whether the numbers of that process mean something here: containers may share a host's name."""
    return process.get("host") == socket.gethostname() and process.get("namespace", _namespace()) == _namespace()


def _exists(process: dict[str, Any]) -> bool:
    try:
        found = psutil.Process(int(process["pid"]))
        if found.status() == psutil.STATUS_ZOMBIE:  # killed, and its parent has not looked yet
            return False
        created = found.create_time()
        since = float(process.get("created", created))
    except (psutil.NoSuchProcess, *DAMAGE):
        return False
    except psutil.Error:
        return True
    # The number may have been given to another process since.
    return abs(created - since) <= 1.0


def _namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        return None
