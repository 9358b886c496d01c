"""The one directory that a cluster has on a machine, and what is noted in it."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from dray.clusters.fleet.host.processes import boot_id, look_at

Request = dict[str, Any]
State = dict[str, Any]


class TroubleError(Exception):
    """An error that is told to the caller."""


def directory_of(request: Request) -> Path:
    return Path(request["directory"]).expanduser()


def python_of(request: Request) -> str:
    return str(Path(request["venv"]).expanduser() / "bin" / "python")


def read_state(directory: Path) -> State:
    """Return what is noted: the cluster's and the directory's id, the nodes with their sessions and processes.

    Nothing where dray has noted nothing, and where the directory is a link; what cannot be read is a TroubleError.
    """
    path = directory / "state.json"
    if directory.is_symlink():
        return {}
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            state = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TroubleError(f"{path} cannot be read: {error}") from error
    if not _is_whole(state):
        raise TroubleError(f"{path} is damaged: what runs there is not known")
    return dict(state)


def _is_whole(state: Any) -> bool:
    """Return whether the state has the form in which dray writes it: what it names is ended and removed."""
    if not isinstance(state, dict) or not isinstance(state.get("nodes"), dict):
        return False
    if not all(isinstance(state.get(key), str) for key in ("id", "cluster", "name", "owner", "boot")):
        return False
    return all(
        index.isascii()
        and index.isdigit()
        and isinstance(node, dict)
        and all(isinstance(node.get(key, ""), str) for key in ("container", "temp"))
        and all(isinstance(node.get(key, 0), int) for key in ("session", "began"))
        and ("session" in node) == ("began" in node)
        and isinstance(node.get("processes", []), list)
        and all(isinstance(one, list) and list(map(type, one)) == [int, int, str] for one in node.get("processes", []))
        for index, node in state["nodes"].items()
    )


def write_state(directory: Path, state: State) -> None:
    write_private(directory / "state.json", json.dumps(state, indent=1))


def make_private(directory: Path) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user may read, at no moment otherwise, and never half of it."""
    scratch = make_private(path.parent) / f"{path.name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        scratch.unlink()  # of an agent that was killed; its mode is not known
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    scratch.replace(path)


def is_alive(state: State, index: str, docker: str) -> bool:
    """Return whether a node's own processes run: its raylet, and with the head's Ray's control service."""
    node = state["nodes"][index]
    if "container" in node:
        return run([docker, "inspect", "--format", "{{.State.Running}}", node["container"]]) == "true"
    if state.get("boot") != boot_id():
        return False
    alive = set()
    for pid, start, name in node.get("processes", []):
        process = look_at(pid)
        if process and process.start == start:
            alive.add(name)
    return {"raylet", "gcs_server"} <= alive if index == "0" else "raylet" in alive


def run(command: list[str], timeout_s: float = 60) -> str:
    """Return what a program prints; nothing when it fails."""
    try:
        done = subprocess.run(  # noqa: S603  (a list, no shell)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
