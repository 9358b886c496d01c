"""What this process may use of the machine: CPU affinity, and the limits of its cgroups."""

from __future__ import annotations

import os
from pathlib import Path

from dray.threads.cgroups import ROOT, cpu_quota
from dray.threads.decide import available_cpus


def cpus_of_this_process(root: Path = ROOT) -> int:
    """Return the whole CPUs that this process may keep busy."""
    return available_cpus(affinity(), cpu_quota(root))


def affinity() -> int:
    """Return the number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
