"""How many threads a process gets.

Pure: plain values in, plain values out. Reading the machine is `limits.py`'s job, a cluster's nodes `cluster/`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dray.errors import ClusterError, ConfigError

# Workers that share cores still make progress; many more of them only use memory and wait for each other.
SHARED_CORES_FACTOR = 2


@dataclass(frozen=True, slots=True)
class Decision:
    """Threads for each worker, and why, in words for the user."""

    threads: int
    reasons: tuple[str, ...] = ()


def available_cpus(affinity: int, quota: float | None) -> int:
    """Return the whole CPUs that a process may use: those it may run on, within its cgroup's quota, at least 1.

    A quota of 2.5 gives 2: a third thread would be throttled and hold up the other two at every barrier.
    """
    if quota is None:
        return max(1, affinity)
    return max(1, min(affinity, int(quota)))


def threads_in_process(available: int, asked: int | None) -> int:
    """Return the threads of a run in one process: what was asked, or all that there are."""
    if asked is None:
        return max(1, available)
    _refuse_nonpositive(threads=asked)
    if asked > available:
        raise ClusterError(
            f"--threads {asked}, but this process may use {_count(available, 'CPU')}.",
            fix=f"Use --threads {available}, or leave it out.",
        )
    return asked


def threads_per_worker(node_cpus: Sequence[float], workers: int, asked: int | None) -> int:
    """Return the most threads with which `workers` workers fit on nodes that have these CPUs.

    A worker lives on one node, so a node of 7 CPUs holds two workers of 3 threads and one CPU idles.
    """
    _refuse_nonpositive(workers=workers, threads=asked)
    most = _most_threads(node_cpus, workers)
    if most == 0 or (asked is not None and asked > most):
        raise _too_few(node_cpus, workers, asked or 1, most)
    return asked or most


def workers_that_fit(node_cpus: Sequence[float], threads: int) -> int:
    """Return how many workers of that many threads the nodes hold."""
    return sum(int(cpus // threads) for cpus in node_cpus)


def threads_on_this_machine(cpus: int, workers: int, asked: int | None) -> Decision:
    """Decide for workers on one machine of our own, where a few more workers than CPUs may share cores."""
    _refuse_nonpositive(workers=workers, threads=asked)
    if asked is None and cpus < workers <= SHARED_CORES_FACTOR * cpus:
        reason = f"{workers} workers share {_count(cpus, 'CPU')}: 1 thread each, and no faster than {cpus} would be."
        return Decision(1, (reason,))
    if asked is None and workers > cpus:
        raise ClusterError(
            f"{workers} workers on this machine, which has {_count(cpus, 'CPU')}.",
            fix=f"Use --workers {cpus} (at most {SHARED_CORES_FACTOR * cpus}), or name a larger cluster: --cluster.",
        )
    threads = threads_per_worker([cpus], workers, asked)
    if asked is not None:
        return Decision(threads, (f"{_count(threads, 'thread')} for each worker, as asked.",))
    return Decision(threads, (f"{_count(threads, 'thread')} each: {_count(cpus, 'CPU')} for {workers} workers.",))


def _refuse_nonpositive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ConfigError(f"--{name} is {value}.", fix=f"Give --{name} a number of at least 1.")


def _most_threads(node_cpus: Sequence[float], workers: int) -> int:
    largest = int(max(node_cpus, default=0))
    fitting = (threads for threads in range(largest, 0, -1) if workers_that_fit(node_cpus, threads) >= workers)
    return next(fitting, 0)


def _too_few(node_cpus: Sequence[float], workers: int, threads: int, most: int) -> ClusterError:
    total = sum(node_cpus)
    need = f"{workers} workers of {_count(threads, 'thread')} need {_count(workers * threads, 'CPU')}"
    if len(node_cpus) == 1:
        there = f"there are {total:g}"
    else:
        sizes = ", ".join(f"{cpus:g}" for cpus in node_cpus) or "none"
        there = (
            f"the cluster has {total:g} on {_count(len(node_cpus), 'node')} ({sizes}), and a worker lives on one node"
        )
    if most:
        fix = f"Use --threads {most}, or fewer workers, or add nodes."
    elif fits := workers_that_fit(node_cpus, threads):
        fix = f"Use --workers {fits}, or add nodes."
    else:
        fix = "Use fewer threads, or add nodes."
    return ClusterError(f"{need}; {there}.", fix=fix)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def share_threads(threads: int, sizes: Sequence[int]) -> list[int]:
    """Share a process's threads between members by their rows: at least one each."""
    shares = [1] * len(sizes)
    for _ in range(threads - len(sizes)):
        neediest = max(range(len(sizes)), key=lambda index: (sizes[index] / shares[index], -index))
        shares[neediest] += 1
    return shares
