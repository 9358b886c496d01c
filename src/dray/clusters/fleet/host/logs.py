"""The last lines of Ray's logs, and what old sessions leave on the disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dray.clusters.fleet.host.own_files import SESSION, remove_session, sessions
from dray.clusters.fleet.host.place import Request, directory_of, read_state
from dray.clusters.fleet.host.processes import command_line, of_nodes

ERROR = re.compile(
    r"\b(error|\w+Error|fatal|critical|\w*exception|traceback|panic|oom|sigsegv|sigabrt|sigkill|segmentation fault|"
    r"out of memory|check failed|failed|killed|refused|denied|no space left)\b| [EFC] \d+ \d+\]",
    re.IGNORECASE,
)
"""What looks like an error: a word that says so, or the level in Ray's own format."""
_TAIL_BYTES = 1 << 20


def logs(request: Request) -> list[list[str]]:
    """Return the last lines of each node, those of the file that was written last at the end: index, file, line."""
    directory = directory_of(request)
    told: list[list[str]] = []
    for index in sorted(read_state(directory).get("nodes", {}), key=int):
        if request["nodes"] is not None and index not in request["nodes"]:
            continue
        folder = directory / "ray" / index / "session_latest" / "logs"
        files = [path for path in folder.rglob("*") if path.suffix in (".log", ".out", ".err") and path.is_file()]
        started = directory / "logs" / f"start-{index}.log"
        files = sorted(files, key=lambda path: path.stat().st_mtime)
        lines = [
            [index, path.name, line]
            for path in ([started] if started.is_file() else []) + files
            for line in _tail(path)
            if line.strip() and (not request["errors"] or ERROR.search(line))
        ]
        told += lines[-request["lines"] :]
    return told


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return lines[1:] if size > _TAIL_BYTES else lines


def cleanup(request: Request) -> dict[str, int]:
    """Remove the oldest session directories till those that no process uses fit the limit."""
    directory = directory_of(request)
    state = read_state(directory)
    if not state or state["cluster"] != request["cluster"]:
        return {"removed": 0, "freed_bytes": 0, "kept_bytes": 0}
    used: set[str] = set()
    for pid in of_nodes(state, list(state["nodes"])):
        used |= set(SESSION.findall(command_line(pid).decode("utf-8", "replace")))
    old = [
        (session, index, size)
        for index, session, size in sessions(directory)
        if session not in {(directory / "ray" / index / "session_latest").resolve().name, *used}
    ]
    kept, freed, removed = sum(size for _, _, size in old), 0, 0
    for session, index, size in sorted(old):
        if kept <= request["limit_bytes"]:
            break
        if remove_session(directory, index, session):
            kept, freed, removed = kept - size, freed + size, removed + 1
    return {"removed": removed, "freed_bytes": freed, "kept_bytes": kept}
