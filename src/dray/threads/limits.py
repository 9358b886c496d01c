"""What this process may use of the machine: CPU affinity and cgroup quotas (v1 and v2).

`root` is where /proc and /sys are found; tests give their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dray.threads.decide import available_cpus

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Throttling:
    """How often and how long the kernel has stopped this process's cgroup for want of quota."""

    periods: int = 0
    seconds: float = 0.0


def cpus_of_this_process(root: Path = ROOT) -> int:
    """Return the whole CPUs that this process may keep busy."""
    return available_cpus(affinity(), cpu_quota(root))


def affinity() -> int:
    """Return the number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPUs' worth of time that the cgroups allow, or None when nothing limits it.

    The tightest of all enclosing groups counts: a container's limit often stands on the parent.
    """
    quotas = [quota for group in _cpu_groups(root) if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def throttling(root: Path = ROOT) -> Throttling:
    """Return the throttling so far of the group that suffered most."""
    return max((_throttling(group) for group in _cpu_groups(root)), key=lambda t: t.seconds, default=Throttling())


def _cpu_groups(root: Path) -> Iterator[Path]:
    """Yield the directories of this process's CPU cgroup and of all that enclose it."""
    mounts = root / "sys/fs/cgroup"
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = mounts
        elif "cpu" in controllers.split(","):
            base = next((m for m in (mounts / controllers, mounts / "cpu") if m.is_dir()), mounts / "cpu")
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


def _throttling(group: Path) -> Throttling:
    pairs = (line.split() for line in (_read(group / "cpu.stat") or "").splitlines())
    counters = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
    # v2 counts microseconds, v1 nanoseconds, under different names.
    seconds = counters.get("throttled_usec", 0) / 1e6 + counters.get("throttled_time", 0) / 1e9
    return Throttling(counters.get("nr_throttled", 0), seconds)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
