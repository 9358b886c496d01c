"""Results put back into the order of the items. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Shelf(Generic[T]):
    """Holds what came too early. Every stretch of positions is put once; what is taken has no gap."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._next = 0
        self._early: dict[int, tuple[int, T]] = {}

    def __len__(self) -> int:
        return len(self._early)

    def put(self, first: int, count: int, value: T) -> None:
        if first in self._early or (self._ordered and first < self._next):
            raise ValueError(f"position {first} came twice")
        self._early[first] = (count, value)

    def take(self) -> Iterator[T]:
        """Yield what is next, as long as it is there."""
        while self._early:
            first = self._next if self._ordered else next(iter(self._early))
            if first not in self._early:
                return
            count, value = self._early.pop(first)
            self._next += count
            yield value
