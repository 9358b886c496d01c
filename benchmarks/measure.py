"""Run a command as a clean process and measure the time and the memory of everything it starts.

Time is from the start of the process to its exit. Memory is the resident memory of the process and all its
descendants, the largest of samples at 10 Hz. Pages that processes share (libraries, Ray's object store) count once, as
the largest share that one of them has: counted for each process, they would make Ray Train's 20 processes look 1.6
times as large as they are; that plain sum is kept beside. A process on its own is also asked for the kernel's own
high-water mark (VmHWM), which misses nothing between two samples.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

SAMPLE_EVERY_S = 0.1
PR_SET_CHILD_SUBREAPER = 36
# A setting left over in the shell must not slow one contender, nor send it to somebody's cluster.
FOREIGN = ("OMP_", "OPENBLAS_", "MKL_", "RAY_", "DASK_", "DRAY_", "PYTHONPATH")


@dataclass(frozen=True)
class Measured:
    seconds: float
    peak_memory_bytes: int
    rss_sum_bytes: int
    """The peak of the plain sum of resident memory, shared pages counted for each process."""
    report: dict[str, Any] = field(default_factory=dict)
    """The JSON document that the command printed."""
    left_behind: int = 0
    """Processes that were still there 10 s after its exit, and were ended."""


class CommandFailedError(Exception):
    """The command ended with an error, or not in time."""


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "RAY_USAGE_STATS_ENABLED": "0", **more}


def use_cores(count: int) -> None:
    """Bind this process, and so whatever it starts, to that many cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def adopt_orphans() -> None:
    """Make processes whose parent has gone children of this one, so that a daemon is measured and ended as well."""
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: Sequence[str | Path], env: Mapping[str, str], scratch: Path, timeout_s: float = 1800) -> Measured:
    """Run the command to its end; raise CommandFailedError with the end of its stderr when it fails."""
    scratch.mkdir(parents=True, exist_ok=True)
    others = psutil.Process().children()
    stdout, stderr = scratch / "stdout", scratch / "stderr"
    # Files, not pipes: a process that the command leaves behind would keep a pipe open.
    with stdout.open("wb") as out, stderr.open("wb") as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        memory = _PeakMemory(others)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            seconds = time.perf_counter() - started
            memory.stop()
            left_behind = end(_descendants(others), grace_s=0 if process.poll() is None else 10)
    if code != 0:
        tail = "\n".join(stderr.read_text(errors="replace").splitlines()[-15:])
        raise CommandFailedError(
            f"{'timed out' if code is None else f'exit code {code}'} after {seconds:.1f} s\n{tail}"
        )
    return Measured(
        seconds,
        memory.peak_bytes,
        memory.rss_sum_bytes,
        _json_document(stdout.read_text(errors="replace")),
        left_behind,
    )


def end(processes: set[psutil.Process], grace_s: float = 0) -> int:
    """End these processes: they may go by themselves for a while, are then asked to, and then made to.

    Return how many did not go by themselves.
    """
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    stayed = len(alive)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
        _, alive = psutil.wait_procs(alive, timeout=10)
    return stayed


def tree(pid: int) -> set[psutil.Process]:
    """Return the process and its descendants."""
    try:
        root = psutil.Process(pid)
        return {root, *root.children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


class _PeakMemory:
    """Samples the memory of this process's descendants, less those that were there before."""

    def __init__(self, others: Sequence[psutil.Process]) -> None:
        self.peak_bytes = 0
        self.rss_sum_bytes = 0
        self._others = others
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            sizes = [_sizes(process.pid) for process in _descendants(self._others)]
            anonymous = sum(size["RssAnon"] for size in sizes)
            shared = sum(max((size[kind] for size in sizes), default=0) for kind in ("RssFile", "RssShmem"))
            high_water = sizes[0]["VmHWM"] if len(sizes) == 1 else 0
            self.peak_bytes = max(self.peak_bytes, anonymous + shared, high_water)
            self.rss_sum_bytes = max(self.rss_sum_bytes, sum(size["VmRSS"] for size in sizes))


def _descendants(others: Sequence[psutil.Process]) -> set[psutil.Process]:
    """Return what this process has started, without the others and what they start: a cluster that was there before."""
    found = set(psutil.Process().children(recursive=True))
    for other in others:
        found -= tree(other.pid)
    return found


def _sizes(pid: int) -> dict[str, int]:
    """Return the memory of a process in bytes by the kernel's names; zeros when it is gone or has none left."""
    sizes = dict.fromkeys(("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem"), 0)
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/status").open() as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in sizes:
                sizes[name] = int(value.split()[0]) * 1024
    return sizes


def _json_document(text: str) -> dict[str, Any]:
    """Return the last JSON object in a command's stdout: all of it, or its last line."""
    lines = text.strip().splitlines()
    for candidate in (text, lines[-1] if lines else ""):
        try:
            return dict(json.loads(candidate))
        except (ValueError, TypeError):
            continue
    return {}
