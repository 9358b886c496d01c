"""What the cgroups (v1 and v2) that enclose this process allow it: CPU time and memory.

`root` is where /proc and /sys are found; tests give their own. Imports nothing of dray, and keeps to Python 3.9: the
agent of a fleet takes this module along to its host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")


class MemoryLimit(NamedTuple):
    """Of one cgroup that encloses this process."""

    limit_bytes: int
    used_bytes: int
    """Without the page cache: the kernel frees it when memory is needed."""


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPUs that the cgroups allow, or None when there is no limit.

    The lowest limit of all enclosing groups counts: a container's limit is often on the parent.
    """
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def throttled_s(root: Path = ROOT) -> float:
    """Return the seconds for which the kernel has stopped this process: of the group whose quota stopped it most."""
    return max((_throttled_s(group) for group in _groups(root, "cpu")), default=0.0)


def memory_limits(root: Path = ROOT) -> list[MemoryLimit]:
    """Return the limits of this process's cgroup and of all that enclose it: each of them holds."""
    return [limit for group in _groups(root, "memory") if (limit := _memory_limit(group)) is not None]


def available_memory(root: Path = ROOT) -> tuple[int, int] | None:
    """Return the bytes that may still be used and the total, of the machine or the container; None if unknown."""
    lines = [line.split() for line in (_read(root / "proc/meminfo") or "").splitlines()]
    fields = {line[0]: int(line[1]) * 1024 for line in lines if len(line) > 1}
    if "MemAvailable:" not in fields or "MemTotal:" not in fields:
        return None
    limits = memory_limits(root)
    left = [max(0, limit.limit_bytes - limit.used_bytes) for limit in limits]
    return min([fields["MemAvailable:"], *left]), min([fields["MemTotal:"], *(one.limit_bytes for one in limits)])


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's cgroup for a controller and of all that enclose it."""
    mounts = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = mounts
        elif controller in controllers.split(","):
            base = next((m for m in (mounts / controllers, mounts / controller) if m.is_dir()), mounts / controller)
        else:
            continue
        # In a container the path is often the host's, which does not exist here: its own group is then the mount.
        group = base / path.lstrip("/")
        while group != base and base in group.parents:
            if group.is_dir():
                yield group
            group = group.parent
        yield base


def _quota(group: Path) -> float | None:
    if (text := _read(group / "cpu.max")) is not None:
        quota, _, period = text.partition(" ")
        return None if quota == "max" else int(quota) / int(period or 100_000)
    quota_us, period_us = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or int(quota_us) <= 0:
        return None
    return int(quota_us) / int(period_us)


def _memory_limit(group: Path) -> MemoryLimit | None:
    """Return what a group says; None if it has no limit (v1 then reports a huge number)."""
    limit = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
    used = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes")
    if limit is None or used is None or not (limit.isdigit() and used.isdigit()):
        return None
    # v1 counts the groups within this one under names of their own; in v2 they are part of the plain figures.
    counters = _counters(group / "memory.stat")
    files = counters.get("total_inactive_file", counters.get("inactive_file", 0))
    return MemoryLimit(int(limit), max(0, int(used) - files))


def _throttled_s(group: Path) -> float:
    counters = _counters(group / "cpu.stat")
    # v2 counts microseconds, v1 nanoseconds, under different names.
    return counters.get("throttled_usec", 0) / 1e6 + counters.get("throttled_time", 0) / 1e9


def _counters(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in (_read(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
