"""How many items make a batch. Pure.

A batch should take about a second: long enough that handing it over costs nothing (less than 5 %), short enough that a
lost process loses little, progress is seen and the processes finish together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TARGET_S = 1.0
LARGEST_OVERHEAD = 0.05
GROWTH = 8
"""A batch is at most so many times as large as the largest that was measured: the first items may not be typical."""
MOST_ITEMS = 200_000
MOST_BYTES = 4 << 20
"""Of the items of a batch, and of its results: memory stays flat whatever the items are."""
LONG_S = 0.5
_MEMORY_BATCHES = 8
"""About so many batches back count: what items cost may change on the way."""


@dataclass(slots=True)
class Pace:
    """What items have cost so far; recent batches count more."""

    items: float = 0.0
    seconds: float = 0.0
    bytes: float = 0.0
    largest: int = 0
    """Items of the largest batch that came back."""
    tasks: float = 0.0
    overhead_s: float = 0.0

    def saw(self, items: int, seconds: float, size_bytes: int, overhead_s: float) -> None:
        """Count a batch that came back: its function time, the bytes both ways, and what it cost beside."""
        keep = 1.0 - 1.0 / _MEMORY_BATCHES
        self.items = self.items * keep + items
        self.seconds = self.seconds * keep + seconds
        self.bytes = self.bytes * keep + size_bytes
        self.tasks = self.tasks * keep + 1.0
        self.overhead_s = self.overhead_s * keep + max(0.0, overhead_s)
        self.largest = max(self.largest, items)

    @property
    def item_s(self) -> float | None:
        """Seconds of function an item; None before anything came back."""
        return self.seconds / self.items if self.items else None

    @property
    def item_bytes(self) -> float:
        return self.bytes / self.items if self.items else 0.0

    @property
    def task_overhead_s(self) -> float:
        return self.overhead_s / self.tasks if self.tasks else 0.0


def batch_size(pace: Pace, remaining: int | None, slots: int, fixed_overhead_s: float) -> int:
    """Return how many items the next batch takes.

    One item first, then at most `GROWTH` times as many as were measured, until a batch takes about `TARGET_S`. Towards
    a known end batches shrink, so that all slots finish together, but not below what keeps the overhead small.
    """
    if pace.item_s is None:
        return 1
    item_s = max(pace.item_s, 1e-9)
    size = min(TARGET_S / item_s, float(GROWTH * pace.largest), float(MOST_ITEMS))
    if pace.item_bytes:
        size = min(size, MOST_BYTES / pace.item_bytes)
    if remaining is not None:
        least = fixed_overhead_s / LARGEST_OVERHEAD / item_s
        share = remaining / (2 * slots)
        size = min(size, max(share, min(least, remaining / slots)))
    return max(1, math.ceil(size))


def queue_depth(pace: Pace, remaining: int | None, slots: int) -> int:
    """Return how many batches a slot may hold: 2 keep it busy while the caller looks at results.

    Long items and the last ones are not queued: they would wait behind one while another slot idles.
    """
    if pace.item_s is None or pace.item_s >= LONG_S:
        return 1
    if remaining is not None and remaining * pace.item_s < 2 * slots * TARGET_S:
        return 1 if pace.item_s >= LONG_S / 25 else 2
    return 2
