"""Bringing rows to workers: the contract, one implementation a layout. It never blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dray.elastic.group import Raised
from dray.learners.attempt import Loads, Returned
from dray.learners.shard import Holdings, Shard

Why = Callable[[int], str]
"""Why a worker loads rows that were loaded before, for the user."""


class Loader(Protocol):
    """Knows what each worker holds. The controller says what each shall hold, and hands over what calls return."""

    shards: tuple[Shard, ...]
    """Those of the first assignment: together all rows."""
    weights: tuple[int, ...]
    """What each unit counts when shards are assigned."""
    rows_reloaded: int
    """Rows that were read again, or handed over, after all had been loaded once."""

    def held(self, worker: int) -> tuple[Shard, ...]:
        """Return what a worker holds, and what is on the way to it."""

    def bring(self, target: Holdings, why: Why, *, beside: bool) -> None:
        """Ask for what the target lacks and has not been asked for; `beside`: while an attempt goes on."""

    def has(self, target: Holdings) -> bool:
        """Whether every worker holds what the target says."""

    def owns(self, call: int) -> bool:
        """Whether the loader waits for this call."""

    def take_in(self, event: Returned | Raised) -> bool:
        """Take in an event of a call of its own; return whether that was one, and needs no more attention."""

    def lose(self, worker: int) -> None:
        """A worker is gone, and all that it held or was about to."""

    def keep(self, holdings: Holdings) -> None:
        """Have the workers hold just this from now on. Called before an attempt, when `has` says so."""

    def rows(self, worker: int, shards: Sequence[Shard]) -> int:
        """Return the rows of shards that the worker holds."""

    def loads(self, holdings: Holdings) -> Loads:
        """Return what all rows reported. What is loaded later is loaded again."""
