"""A group of workers, whoever runs them: the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.workers.watch import Watch


@dataclass(frozen=True, slots=True)
class Member:
    """Where a worker is."""

    worker: int
    host: str
    pid: int
    threads: int


class Group(Protocol):
    """Workers that are started. The caller owns it and closes it; one thread calls it."""

    members: Sequence[Member]
    ring_host: str
    """Where the tracker of a ring listens so that every worker reaches it."""

    def each(self, method: str, arguments: Sequence[Sequence[Any]], watch: Watch) -> list[Any]:
        """Call a method of every worker with its own arguments, watch them work, return what they return.

        The first failure is raised; the others are then of no use any more, and the group is closed.
        """
        ...

    def close(self) -> None:
        """End the workers; nothing of them is left."""
        ...
