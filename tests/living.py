"""Questions to what may end at any moment: processes that Ray starts and ends as it likes, descriptors of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
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


def open_files() -> list[str]:
    """Return what this process has open, without what was closed before it was asked for."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own is one of them
            names.append(str(descriptor.readlink()))
    return names
