"""Workers that cannot reach each other: told, and parted with when that does not mend itself."""

from __future__ import annotations

from dray.elastic.membership import Membership
from dray.errors import ClusterError, WorkerError
from dray.events.telemetry import Telemetry
from dray.rings.mesh import DRIVER
from dray.rings.ports import DEFAULT, VARIABLE
from dray.training.ring_attempt import Link, without

_FIX = f"Open the ports of the ring between all hosts, both ways: {DEFAULT}, or what {VARIABLE} says."


class Links:
    """What is broken once may mend itself: a ring is formed again. What is broken in two rings in a row is not."""

    def __init__(self, membership: Membership, telemetry: Telemetry) -> None:
        self._membership = membership
        self._telemetry = telemetry
        self._broken: frozenset[Link] = frozenset()

    def judge(self, broken: frozenset[Link]) -> list[int]:
        """Take in which links were broken in a ring; end the workers to go on without, and return them."""
        for link in sorted(broken - self._broken):
            self._telemetry.emit("warning", message=self._describe(link), fix=_FIX)
        lasting, self._broken = broken & self._broken, broken
        leaving = [worker for worker in without(lasting) if worker in self._membership.ready]
        if leaving and len(leaving) == len(self._membership.ready):
            raise ClusterError(" ".join(self._describe(link) for link in sorted(lasting)), fix=_FIX)
        reasons = {w: " ".join(self._describe(link) for link in sorted(lasting) if w in link) for w in leaving}
        for worker, why in reasons.items():
            self._membership.fail(worker, WorkerError(why, fix=_FIX), replace=False)
        return leaving

    def _describe(self, link: Link) -> str:
        one, other = map(self._name, link)
        return f"No connection between {one} and {other}."

    def _name(self, worker: int) -> str:
        if worker == DRIVER:
            return "the driver"
        member = self._membership.ready.get(worker)
        return f"worker {worker}" + (f" on {member.host}" if member is not None else "")
