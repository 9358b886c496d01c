"""Which processes belong to a node, and their end. A process is its pid and when it started: pids are used again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

NODE_VARIABLE = "DRAY_FLEET_NODE"
"""Tells, in the environment of a process, whose it is: the directory's id and the node's index."""
_TERM_S = 1.5
_KILL_S = 5.0
_PROC = Path("/proc")


class Process(NamedTuple):
    """What the kernel says of a process."""

    parent: int
    session: int
    start: int
    name: str


def look_at(pid: int) -> Process | None:
    """Return a process; None when it is gone or a corpse."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    rest = text[text.rindex(")") + 2 :].split()
    if rest[0] in ("Z", "X"):
        return None
    return Process(int(rest[1]), int(rest[3]), int(rest[19]), text[text.index("(") + 1 : text.rindex(")")])


def mine() -> dict[int, Process]:
    """Return every process of this user."""
    found = {}
    for place in _PROC.iterdir():
        with suppress(OSError):
            if place.name.isdigit() and place.stat().st_uid == os.getuid():
                process = look_at(int(place.name))
                if process:
                    found[int(place.name)] = process
    return found


def of_nodes(state: dict[str, Any], indices: list[str]) -> set[int]:
    """Return the pids of everything that belongs to nodes, by what was noted when they were started.

    That is the processes that were there then, those with the node's mark in their environment (a job's driver has a
    session of its own), those in a node's session (Ray's workers write a title over their environment), and whatever
    these started. Once its last process has ended, the kernel gives the number of a session to another one: it is the
    node's as long as one of the others is in it, or for a process that works in the node's directory.
    """
    if state.get("boot") != boot_id():
        return set()
    nodes = {index: state["nodes"][index] for index in indices if index in state["nodes"]}
    noted = {(pid, start) for node in nodes.values() for pid, start, _ in node.get("processes", [])}
    sessions = {node["session"]: node for node in nodes.values() if "session" in node}
    marks = {f"{NODE_VARIABLE}={state['id']}/{index}".encode() for index in indices}
    there = mine()
    found = {pid for pid, process in there.items() if (pid, process.start) in noted or _is_marked(pid, marks)}
    live = {there[pid].session for pid in found}
    for pid, process in there.items():
        node = sessions.get(process.session)
        if node and process.start >= node["began"] and (process.session in live or _works_in(pid, node.get("temp"))):
            found.add(pid)
    more = found
    while more:
        more = {pid for pid, process in there.items() if process.parent in found} - found
        found |= more
    return found - {os.getpid(), os.getppid()}


def _works_in(pid: int, directory: str | None) -> bool:
    try:
        place = (_PROC / str(pid) / "cwd").readlink()
    except OSError:
        return False
    return directory is not None and Path(directory) in (place, *place.parents)


def _is_marked(pid: int, marks: set[bytes]) -> bool:
    try:
        return not marks.isdisjoint((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:
        return False


def command_line(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def end(find: Callable[[], set[int]]) -> list[int]:
    """End the processes that `find` gives, politely first, till it gives none; return those that do not end."""
    asked: dict[int, Process] = {}
    begun = time.monotonic()
    while True:
        found = {pid: process for pid in find() if (process := look_at(pid))}
        # With those that ended, what showed that another one belongs to them may be gone.
        found.update((pid, process) for pid, process in asked.items() if _is_same(pid, process))
        took = time.monotonic() - begun
        if not found or took > _TERM_S + _KILL_S:
            return sorted(found)
        for pid in found:
            if took > _TERM_S or pid not in asked:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if took > _TERM_S else signal.SIGTERM)
        asked.update(found)
        time.sleep(0.1)


def _is_same(pid: int, process: Process) -> bool:
    seen = look_at(pid)
    return seen is not None and seen.start == process.start


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
