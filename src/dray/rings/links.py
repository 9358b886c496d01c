"""Which workers cannot reach each other, and which to go on without. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from dray.rings.mesh import DRIVER
from dray.rings.ports import DEFAULT, VARIABLE

Link = tuple[int, int]
"""Two workers, the smaller number first; `DRIVER` is the driver."""

FIX = f"Open the ports of the ring between all hosts, both ways: {DEFAULT}, or what {VARIABLE} says."


def broken_links(pairs: Iterable[tuple[int, int]], worker_of: Mapping[int, int]) -> frozenset[Link]:
    """Return which workers do not reach each other, of pairs of members that do not."""
    workers = {**worker_of, DRIVER: DRIVER}
    found = [(workers[one], workers[other]) for one, other in pairs]
    return frozenset((min(link), max(link)) for link in found)


class Links:
    """What is broken once may mend itself: a ring is formed again. What is broken in two rings in a row is not."""

    def __init__(self) -> None:
        self._broken: frozenset[Link] = frozenset()

    def judge(self, broken: frozenset[Link]) -> tuple[list[Link], list[Link]]:
        """Take in which links were broken in a ring; return those that are new, and those that last."""
        new, lasting = sorted(broken - self._broken), sorted(broken & self._broken)
        self._broken = broken
        return new, lasting


def without(links: Collection[Link]) -> list[int]:
    """Return the workers to go on without, so that the others reach each other and the driver.

    First those that cannot reach the driver; then the one with the most broken links, among equals the highest number,
    until no broken link is left.
    """
    left = {other for one, other in links if one == DRIVER}
    while open_links := [link for link in links if left.isdisjoint(link)]:
        counts = Counter(worker for link in open_links for worker in link)
        left.add(max(counts, key=lambda worker: (counts[worker], worker)))
    return sorted(left)
