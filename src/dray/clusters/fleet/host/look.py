"""What a machine has, and what runs there of this cluster and of others."""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import socket
import sys
from pathlib import Path
from typing import Any

from dray.clusters.fleet.host.network import ssh_address
from dray.clusters.fleet.host.own_files import why_not
from dray.clusters.fleet.host.place import (
    Request,
    State,
    TroubleError,
    directory_of,
    is_alive,
    python_of,
    read_state,
    run,
)
from dray.clusters.fleet.host.processes import boot_id, command_line, look_at, of_nodes
from dray.threads.cgroups import available_memory

_VERSIONS = """
import importlib.metadata as metadata, importlib.util as util, json, platform
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
print(json.dumps({"python": platform.python_version(), "ray": version("ray"), "dray": version("dray"),
                  "dashboard": all(map(util.find_spec, ("aiohttp", "aiohttp_cors")))}))
"""
_SOCKET = "ray/000/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_SOCKET_LIMIT = 107
"""Of the path of a Unix socket."""
_PULL_S = 1800
_ROOT = Path("/")


def look(request: Request) -> dict[str, Any]:
    if not sys.platform.startswith("linux"):
        raise TroubleError(f"it runs {sys.platform}, not Linux")
    directory = directory_of(request)
    state = read_state(directory)
    nodes = {
        index: {**noted, "alive": is_alive(state, index, request.get("docker", {}).get("command", ""))}
        for index, noted in state.get("nodes", {}).items()
    }
    idle = [
        port
        for index, ports in request.get("ports", {}).items()
        if not nodes.get(index, {}).get("alive")
        for port in ports
    ]
    existing = next(place for place in (directory, *directory.parents) if place.is_dir())
    shared = Path("/dev/shm")  # noqa: S108  (where Ray has its object store)
    return {
        "boot": boot_id(),
        "directory": str(directory),
        "unfit": why_not(directory, request["name"], state.get("name")),
        "writable": os.access(existing, os.W_OK),
        "path_too_long": max(0, len(str(directory / _SOCKET)) - _SOCKET_LIMIT),
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "address": ssh_address(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _memory(),
        "shm": _free(shared if shared.is_dir() else existing),
        "disk": _free(existing),
        "state": {key: state[key] for key in ("cluster", "name", "owner") if key in state},
        "nodes": nodes,
        "busy_ports": [port for port in idle if _is_busy(port)],
        "used_by": _others(directory, state),
        "missing": [path for path in request.get("files", []) if not os.access(Path(path).expanduser(), os.R_OK)],
        "versions": versions(request),
    }


def versions(request: Request) -> dict[str, Any]:
    """Return the versions in the environment; nothing when there is none."""
    docker = request.get("docker")
    if docker:
        command = [docker["command"], "run", "--rm", "--entrypoint", "python", docker["image"], "-c", _VERSIONS]
        text = run(command, _PULL_S)
        if not text and not run([docker["command"], "version", "--format", "ok"]):
            raise TroubleError(f"{docker['command']} does not answer there, or not to this user")
    else:
        text = run([python_of(request), "-c", _VERSIONS])
    try:
        found = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def _memory() -> dict[str, int]:
    """Return what there is and what is free, by the kernel and by the control group."""
    found = available_memory(_ROOT)
    if found is None:
        raise TroubleError("its /proc/meminfo does not tell how much memory there is")
    return {"total": found[1], "available": found[0]}


def _free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _is_busy(port: int) -> bool:
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104  (for a moment)
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # What was closed a moment ago is no obstacle to Ray either.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return True  # others mean that there is no IPv6 here
    return False


def _others(directory: Path, state: State) -> list[str]:
    """Return what else runs Ray in this machine's network: both would be promised the same memory."""
    ours = of_nodes(state, list(state["nodes"])) if state else set()
    here = Path("/proc/self/ns/net").readlink()
    found = set()
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) in ours:
            continue
        process = look_at(int(place.name))
        if process is None or process.name not in ("raylet", "gcs_server"):
            continue
        try:
            if (place / "ns" / "net").readlink() != here:
                continue
        except OSError:
            continue  # another user's, or gone
        root = re.search(rb"=([^\0=]+)/ray/\d+/session_", command_line(int(place.name)))
        owner = Path(os.fsdecode(root[1])) if root else None
        if owner is not None and owner == directory:
            continue  # from a start of this cluster that was cut short: `start` ends it
        name = _name_at(owner) if owner is not None else None
        found.add(f"the cluster {name}" if name else f"a Ray that dray did not start (pid {place.name})")
    return sorted(found)


def _name_at(directory: Path) -> str | None:
    try:
        return read_state(directory).get("name")
    except TroubleError:
        return None
