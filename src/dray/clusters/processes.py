"""Processes that were started here, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

STOP_TIMEOUT_S = 5.0


def children_of_ray(directory: Path) -> list[psutil.Process]:
    """Return this process's children that belong to the Ray session in `directory`: every command line names it.

    Other threads may start children of their own while Ray starts.
    """
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(directory) in argument for argument in child.cmdline()):
                found.append(child)
    return found


def with_descendants(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def see_gone(processes: Sequence[psutil.Process]) -> None:
    """See the processes gone: they end by themselves with the raylet; one that does not is killed."""
    _, alive = psutil.wait_procs(processes, timeout=STOP_TIMEOUT_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=STOP_TIMEOUT_S)
