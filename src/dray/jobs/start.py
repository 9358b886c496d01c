"""Begins a job on the head of a cluster: packed with every job, and run there as a file of its own.

It finds the Python that Ray runs on, looks for dray, and ends what runs longer than it may, whether or not a client
follows. Only the standard library, and nothing newer than Python 3.9: dray may be missing there, or be another one.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "\x1e@dray "
TIME_LIMIT_CODE = 124
"""As timeout(1) has it."""
GRACE_S = 10.0
"""For a process that is asked to end, before it is killed."""
_AGAIN = "DRAY_JOB_PYTHON"
_SUBREAPER = 36


def main() -> int:
    use_the_python_of_ray()
    place = Path(__file__).with_name("job.json")
    job = json.loads(place.read_text(encoding="utf-8"))
    if job["kind"] == "script":
        command = [sys.executable, job["script"], *job["arguments"]]
    else:
        problem = dray_is_missing(job["versions"])
        if problem:
            say({"error": problem})
            return 2
        command = [sys.executable, "-m", "dray.jobs.there", str(place)]
    if job["timeout_s"] is None:
        os.execv(command[0], command)  # noqa: S606  (no shell is wanted)
    return supervise(command, job["timeout_s"])


def use_the_python_of_ray() -> None:
    """Begin again with Ray's own Python where the one on the path has no Ray: a cluster started from a venv, say."""
    if importlib.util.find_spec("ray") is not None or _AGAIN in os.environ:
        return
    python = python_of_ray()
    if python:
        os.environ[_AGAIN] = python
        os.execv(python, [python, *sys.argv])  # noqa: S606


def python_of_ray() -> str | None:
    """The Python of the workers, as a process above this one (the raylet) was told."""
    pid = os.getppid()
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            pid = parent_of(pid)
        except (OSError, ValueError):
            return None
        for word in words:
            name, _, value = word.partition("=")
            if name.lstrip("-") == "python_worker_command" and value:
                return value.split()[0]
    return None


def dray_is_missing(wanted: dict[str, str]) -> dict[str, Any] | None:
    """Return what to tell when dray is not here, or another one."""
    try:
        found = importlib.metadata.version("dray")
    except importlib.metadata.PackageNotFoundError:
        found = ""
    if found == wanted["dray"]:
        return None
    what = f"has dray {found}, the submitter {wanted['dray']}" if found else "has no dray"
    return {
        "type": "ClusterError",
        "what": f"The head of the cluster {what} ({sys.executable}).",
        "fix": f"Install dray {wanted['dray']} on every node of the cluster.",
        "exit_code": 2,
    }


def supervise(command: list[str], timeout_s: float) -> int:
    """Run the command, not longer than it may, and return its exit code."""
    with suppress(Exception):  # another system than Linux: then what leaves its parent is not found
        # Processes that lose their parent become children of this one, so that none escapes.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    # Ray asks every process of a job to end: this one waits for the others.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(command)  # noqa: S603
    try:
        code = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        say({"time_limit": timeout_s})
        end(child, GRACE_S)
        return TIME_LIMIT_CODE
    return code if code >= 0 else 128 - code


def end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask all that this job started to end, and see to it."""
    send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while below(os.getpid()) and time.monotonic() < deadline:
        reap(child)
        time.sleep(0.05)
    while below(os.getpid()):
        send(signal.SIGKILL)
        reap(child)
        time.sleep(0.05)
    child.wait()
    reap(child)


def send(number: int) -> None:
    for pid in below(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def reap(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:  # its own code is taken first
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def below(root: int) -> list[int]:
    """Return the living descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            children.setdefault(parent_of(int(entry.name), living=True), []).append(int(entry.name))
    found, look = [], [root]
    while look:
        for pid in children.get(look.pop(), []):
            found.append(pid)
            look.append(pid)
    return found


def parent_of(pid: int, *, living: bool = False) -> int:
    # The name in parentheses may hold anything, parentheses too.
    state, parent = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
    if living and state == "Z":
        raise ValueError(pid)
    return int(parent)


def say(document: dict[str, Any]) -> None:
    os.write(1, f"{MARK}{json.dumps(document)}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
