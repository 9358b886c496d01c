"""Threads for kernels that hold no lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Threads:
    """A fixed number of threads, kept for many short calls: to start one takes as long as a block of a small grid.

    One thread is the caller's own. Its creator closes it; one caller at a time uses it.
    """

    def __init__(self, count: int = 1) -> None:
        self.count = max(1, count)
        self._pool = ThreadPoolExecutor(self.count, "factorization") if self.count > 1 else None

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Return the results in the order of the tasks; all are done, or the first error is raised."""
        if self._pool is None or len(tasks) < 2:
            return [function(task) for task in tasks]
        return list(self._pool.map(function, tasks))

    def __enter__(self) -> Threads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
