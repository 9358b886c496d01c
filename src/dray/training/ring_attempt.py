"""One attempt to train in a ring, and what it says about the network between the workers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from dray.learners.shard import Holdings, Shard
from dray.learners.xgboost.worker import Ended
from dray.rings.mesh import DRIVER
from dray.rings.rendezvous import Rendezvous

Link = tuple[int, int]
"""Two workers, the smaller number first; `DRIVER` is the driver."""


@dataclass
class RingAttempt:
    number: int
    holdings: Holdings
    seats: dict[int, list[tuple[int, Shard]]]
    """The members of each worker, with their parts."""
    rendezvous: Rendezvous | None
    calls: dict[int, int]
    """Workers by the number of their call."""
    ended: dict[int, Ended] = field(default_factory=dict)
    broken: bool = False
    pausing: bool = False

    def broken_links(self) -> frozenset[Link]:
        """Return which workers could not reach each other."""
        worker_of = {member: worker for worker, seats in self.seats.items() for member, _ in seats} | {DRIVER: DRIVER}
        pairs = [
            (worker_of[one], worker_of[other]) for ended in self.ended.values() for one, other in ended.unreachable
        ]
        return frozenset((min(pair), max(pair)) for pair in pairs)


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
