"""How much memory there is, and how much a process has of its own. Cheap enough to ask four times a second."""

from __future__ import annotations

import os
from pathlib import Path

from dray.threads.cgroups import ROOT, memory_limits

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def own_bytes(pid: int) -> int:
    """Return the resident memory of a process without what it shares (mapped arrays, libraries); 0 if unknown."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


def available_bytes(root: Path = ROOT) -> tuple[int, int] | None:
    """Return the bytes that may still be used and the total, of the machine or the container; None if unknown."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
    if "MemAvailable" not in fields or "MemTotal" not in fields:
        return None
    limits = memory_limits(root)
    left = [max(0, limit.limit_bytes - limit.used_bytes) for limit in limits]
    totals = [limit.limit_bytes for limit in limits]
    return min([fields["MemAvailable"], *left]), min([fields["MemTotal"], *totals])
