"""How much memory there is, and how much a process has of its own. Cheap enough to ask four times a second."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def own_bytes(pid: int) -> int:
    """Return the resident memory of a process without what it shares (mapped arrays, libraries); 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


def available_bytes() -> tuple[int, int] | None:
    """Return the bytes that may still be used and the total, of the machine or the container; None if unknown."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    fields = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
    if "MemAvailable" not in fields or "MemTotal" not in fields:
        return None
    free, total = fields["MemAvailable"], fields["MemTotal"]
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        # Files that were read or written are counted as used, though the kernel gives them up when asked for memory.
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used -= int(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # no container, or no limit
        return free, total
    return min(free, max(0, limit - used)), min(total, limit)
