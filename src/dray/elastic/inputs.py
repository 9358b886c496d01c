"""Waiting for what another worker makes: as long as it takes, while its maker can be reached.

An input may be late because its maker is slow, or because it is large and the link is not. Neither is a failure. The
driver notices a maker that is gone, and Ray then fails what it was to make. What neither of them notices is two nodes
that cannot reach each other and can both reach the driver: so the process that waits tries to connect to the maker's
node. Ray sends from there to here, and a firewall may let calls through one way only: if what was made does not come
although the maker's node can be reached, that node is asked to connect to this one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.elastic.silence import AwakeClock
from dray.learners.learner import InputGone, PeerCut

SLICE_S = 0.5
PROBE_EVERY_S = 2.0
PROBE_TIMEOUT_S = 2.0
GRACE_S = 2.0
"""On top of the heartbeat, within which the driver notices a node that is gone; after that, only this pair is cut."""
WAY_BACK_EVERY_S = 30.0
"""A task on the maker's node takes a second: a large input is not worth one every other second."""
ARRIVAL_LIMIT_S = 900.0
"""For something that was made to reach a worker that can reach its maker. Not for the making."""


@dataclass(frozen=True, slots=True)
class Maker:
    """The worker that makes an input, and where its node hands out what is made there."""

    worker: int | None
    """None is the driver."""
    host: str
    node: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"{'the driver' if self.worker is None else f'worker {self.worker}'} on {self.host}"


@dataclass(frozen=True, slots=True)
class Promised:
    """Something that another worker makes, or has made.

    Not a plain reference, for which Ray would wait before it calls: it sends calls in order, so that no question after
    the worker's health would get through either, and a worker that waits for a frozen one would look frozen too.
    """

    ref: Any
    maker: Maker


@dataclass(frozen=True, slots=True)
class Shared:
    """A value that the driver passes to several workers: waited for before an op begins, also a lazy one.

    Ray may bring it from any node that has it, also from one that this node cannot reach, for which it takes 10 s to
    try another. The worker answers meanwhile, for the reason that is given at `Promised`.
    """

    promise: Promised


class Store(Protocol):
    """Where references lead to values."""

    def arrived(self, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        """Bring the values to this node; return the references of those that are here, after `timeout_s` at most."""
        ...

    def made(self, refs: Sequence[Any]) -> list[Any]:
        """Return the references whose values exist, on whichever node."""
        ...

    def get(self, refs: Sequence[Any]) -> list[Any]:
        """Return values that are here, or raise what their making raised."""
        ...


def reaches(maker: Maker) -> bool:
    """Whether the maker's node takes a connection from here."""
    return connects(maker.address, maker.port)


def connects(address: str, port: int) -> bool:
    """Whether a connection to an address is taken."""
    try:
        socket.create_connection((address, port), timeout=PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _unknown(_maker: Maker) -> bool:
    """Nothing is known against the way back."""
    return True


@dataclass(frozen=True)
class Inputs:
    """What one process waits for. Any thread may call `get`."""

    store: Store
    taker: str
    """This process, for messages: "worker 1 on node2"."""
    node: str
    """That this process is on."""
    heartbeat_s: float
    clock: Callable[[], float] = time.monotonic
    reaches: Callable[[Maker], bool] = reaches
    is_reached_from: Callable[[Maker], bool] = _unknown
    """Whether the maker's node can connect to this one; may take seconds, True if that cannot be found out."""

    def get(self, promises: Sequence[Promised]) -> list[Any]:
        """Return what was promised. Raises what its making raised; `PeerCut`; `InputGone` if it does not arrive."""
        lacking = {one.ref: one.maker for one in promises}
        found: dict[Any, Any] = {}
        patience = _Patience(self)
        while lacking:
            arrived = self.store.arrived(list(lacking), SLICE_S)
            found.update(zip(arrived, self.store.get(arrived), strict=True))
            for ref in arrived:
                del lacking[ref]
            if lacking:
                patience.check(lacking, progress=bool(arrived))
        return [found[one.ref] for one in promises]


class _Patience:
    """With one `get`: for how long a maker was out of reach, and nothing arrived of what was made."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._awake = AwakeClock(PROBE_TIMEOUT_S + 2 * SLICE_S, inputs.clock)
        self._probe_at = PROBE_EVERY_S
        self._out_of_reach: tuple[str, float] | None = None
        self._made_at: float | None = None
        self._way_back_at: float | None = None
        """When the way from a maker to here is to be looked at next."""

    def check(self, lacking: Mapping[Any, Maker], *, progress: bool) -> None:
        now = self._awake.tick()
        if progress:
            self._made_at = None
        if now < self._probe_at:
            return
        self._probe_at = now + PROBE_EVERY_S
        self._check_reach(now, lacking.values())
        self._check_arrival(now, lacking)

    def _check_reach(self, now: float, makers: Iterable[Maker]) -> None:
        limit_s = self._inputs.heartbeat_s + GRACE_S
        others = {maker.node: maker for maker in makers if maker.node != self._inputs.node and maker.port}
        maker = next((maker for maker in others.values() if not self._inputs.reaches(maker)), None)
        if maker is None:
            self._out_of_reach = None
        elif self._out_of_reach is None or self._out_of_reach[0] != maker.node:
            self._out_of_reach = maker.node, now
        elif now - self._out_of_reach[1] >= limit_s:
            raise PeerCut(
                f"No connection from {self._inputs.taker} to {maker} ({maker.address}:{maker.port}) for {limit_s:g} s.",
                fix="Every node must reach every other one: check routes and firewalls between these two hosts.",
            )

    def _check_arrival(self, now: float, lacking: Mapping[Any, Maker]) -> None:
        made = self._inputs.store.made(list(lacking))
        if not made:
            self._made_at = None
        elif self._made_at is None:
            self._made_at, self._way_back_at = now, now + self._inputs.heartbeat_s + GRACE_S
        elif self._way_back_at is not None and now >= self._way_back_at:
            self._way_back_at = now + WAY_BACK_EVERY_S
            self._check_way_back(lacking[made[0]])
        elif now - self._made_at >= ARRIVAL_LIMIT_S:
            raise InputGone(
                f"Nothing of {lacking[made[0]]} has arrived at {self._inputs.taker} for {ARRIVAL_LIMIT_S:g} s.",
                fix="Look at the link between these two hosts, and at Ray's object store: `ray memory --stats-only`",
            )

    def _check_way_back(self, maker: Maker) -> None:
        if maker.node == self._inputs.node or self._inputs.is_reached_from(maker):
            return
        raise PeerCut(
            f"No connection from {maker} to {self._inputs.taker}, which waits for what was made there.",
            fix="Every node must reach every other one: check routes and firewalls between these two hosts.",
        )
