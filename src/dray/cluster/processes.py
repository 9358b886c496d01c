"""Processes that were started here, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil

STOP_TIMEOUT_S = 5.0


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
