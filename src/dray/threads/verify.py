"""Measure the cores that a process really used, and say why when they are fewer than decided."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from dray.threads.cgroups import throttled_s
from dray.threads.limits import cpus_of_this_process

ENOUGH = 0.6
"""At least this share of the decided cores must be busy."""
LEAST_SECONDS = 1.0
"""Over less, nothing is told from the cores used: starting threads and a busy neighbour weigh as much as the work."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one process used over some time, and what may have slowed it down."""

    cores: float
    """CPU seconds of all threads per second, to two decimals."""
    seconds: float
    cpus: int
    """The CPUs that the process may use."""
    others_cores: float = 0.0
    """Cores that other processes on the host kept busy meanwhile."""
    throttled_share: float = 0.0
    """The share of the time for which the cgroup's quota stopped the process."""
    omp_num_threads: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the decided cores were used; if not, the likely cause and the fix."""

    ok: bool
    cause: str = ""
    fix: str = ""


class CoresUsed:
    """A stopwatch for cores: `start()`, work, `stop()`. Two system calls each; may be stopped several times."""

    def start(self) -> CoresUsed:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()
        self._host = _busy_seconds()
        self._throttled = throttled_s()
        return self

    def stop(self) -> Measured:
        seconds = max(time.perf_counter() - self._wall, 1e-9)
        cpu = time.process_time() - self._cpu
        return Measured(
            # Rounded here, once: the figure that is shown is the one that was judged.
            cores=round(cpu / seconds, 2),
            seconds=seconds,
            cpus=cpus_of_this_process(),
            others_cores=max(0.0, (_busy_seconds() - self._host - cpu) / seconds),
            throttled_share=max(0.0, min(1.0, (throttled_s() - self._throttled) / seconds)),
            omp_num_threads=os.environ.get("OMP_NUM_THREADS"),
        )


def judge(decided: int, measured: Measured) -> Verdict:
    """Return whether the decided cores were used; the cause is the first that explains the lack."""
    used = measured.cores
    if used >= ENOUGH * decided or measured.seconds < LEAST_SECONDS:
        return Verdict(True)
    lack = f"{used:.2f} of {decided} cores used"
    limit = _number(measured.omp_num_threads)
    if limit is not None and limit < decided and used <= limit + 0.2:
        return Verdict(
            False,
            f"{lack}: OMP_NUM_THREADS={limit} in the environment holds the library to {limit}.",
            f"Unset OMP_NUM_THREADS, or set it to {decided}, where the process starts.",
        )
    if measured.throttled_share > 0.1:
        return Verdict(
            False,
            f"{lack}: the container's CPU quota stopped the process for {measured.throttled_share:.0%} of the time.",
            f"Raise the container's CPU limit to {decided}, or use fewer --threads.",
        )
    if measured.cpus < decided:
        return Verdict(
            False,
            f"{lack}: the process may run on {measured.cpus} only.",
            f"Use --threads {measured.cpus}, or widen its CPU affinity or quota.",
        )
    host = psutil.cpu_count() or measured.cpus
    if host - measured.others_cores < decided - 0.2:
        return Verdict(
            False,
            f"{lack}: other processes of this host kept {measured.others_cores:.1f} of its {host} cores busy.",
            "Stop them, use fewer workers or threads on this host, or run on another one.",
        )
    return Verdict(
        False,
        f"{lack}: the worker waited, for other workers or because its shard is too small to use all threads.",
        "Use fewer workers or threads for this much data, and check that no worker is slower than the others.",
    )


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    # Steal is time that the hypervisor gave to another machine: we could not use it either.
    return float(times.user + times.system + getattr(times, "nice", 0.0) + getattr(times, "steal", 0.0))


def _number(text: str | None) -> int | None:
    # OMP_NUM_THREADS may be a list ("4,2"), one number a nesting level; the first is the one that counts.
    first = (text or "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else None
