"""Questions to processes that may end at any moment: Ray starts and ends some of its own as it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import psutil

T = TypeVar("T")


def asked(
    processes: Iterable[psutil.Process], question: Callable[[psutil.Process], T]
) -> list[tuple[psutil.Process, T]]:
    """Return each process with its answer, without those that ended before they gave one."""
    answers = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            answers.append((process, question(process)))
    return answers


def named(processes: Iterable[psutil.Process], *names: str) -> list[psutil.Process]:
    return [process for process, name in asked(processes, psutil.Process.name) if name in names]


def commands(processes: Iterable[psutil.Process]) -> list[str]:
    """Return their command lines."""
    return [" ".join(words) for _, words in asked(processes, psutil.Process.cmdline)]
