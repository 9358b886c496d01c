"""Inputs that are late, on their way, or out of reach: with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from dray.elastic.inputs import ARRIVAL_LIMIT_S, GRACE_S, PROBE_EVERY_S, PROBE_TIMEOUT_S, Inputs, Maker, Promised
from dray.learners.learner import InputGone, PeerCut

HEARTBEAT_S = 8.0
NEAR = Maker(0, "here", "node-a", "10.0.0.1", 7000)
FAR = Maker(2, "there", "node-b", "10.0.0.2", 7000)


@dataclass
class World:
    """A store whose values are made and arrive at given times, and a network."""

    made_at: dict[str, float] = field(default_factory=dict)
    arrives_at: dict[str, float] = field(default_factory=dict)
    is_up: Callable[[float], bool] = lambda now: True
    is_way_back_up: Callable[[float], bool] = lambda now: True
    raises: dict[str, Exception] = field(default_factory=dict)
    sleeps: list[tuple[float, float]] = field(default_factory=list)
    """When this process is stopped, and for how long."""
    now: float = 0.0
    probed: list[Maker] = field(default_factory=list)
    asked_back: list[Maker] = field(default_factory=list)

    def arrived(self, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        end = self.now + timeout_s
        last = max((self.arrives_at.get(ref, 1e9) for ref in refs), default=0.0)
        self.now = max(self.now, min(end, last))
        if self.sleeps and self.now >= self.sleeps[0][0]:
            self.now += self.sleeps.pop(0)[1]
        return [ref for ref in refs if self.arrives_at.get(ref, 1e9) <= self.now]

    def made(self, refs: Sequence[Any]) -> list[Any]:
        return [ref for ref in refs if self.made_at.get(ref, 1e9) <= self.now]

    def get(self, refs: Sequence[Any]) -> list[Any]:
        for ref in refs:
            if ref in self.raises:
                raise self.raises[ref]
        return [f"value of {ref}" for ref in refs]

    def reaches(self, maker: Maker) -> bool:
        self.probed.append(maker)
        up = self.is_up(self.now)
        self.now += 0.0 if up else PROBE_TIMEOUT_S
        return up

    def is_reached_from(self, maker: Maker) -> bool:
        self.asked_back.append(maker)
        return self.is_way_back_up(self.now)

    @property
    def inputs(self) -> Inputs:
        return Inputs(
            *(self, "worker 1 on here", NEAR.node, HEARTBEAT_S),
            clock=lambda: self.now,
            reaches=self.reaches,
            is_reached_from=self.is_reached_from,
        )


def test_an_input_is_waited_for_as_long_as_its_maker_needs() -> None:
    world = World(made_at={"a": 9_000}, arrives_at={"a": 9_001})
    assert world.inputs.get([Promised("a", FAR)]) == ["value of a"]


def test_an_input_that_is_long_on_its_way_is_waited_for() -> None:
    world = World(made_at={"a": 0}, arrives_at={"a": ARRIVAL_LIMIT_S - 10})
    assert world.inputs.get([Promised("a", FAR)]) == ["value of a"]


def test_values_come_in_the_order_asked_for_whichever_comes_first() -> None:
    world = World(arrives_at={"a": 3, "b": 1, "c": 2})
    promises = [Promised(ref, NEAR) for ref in ("a", "b", "c", "a")]
    assert world.inputs.get(promises) == [f"value of {ref}" for ref in ("a", "b", "c", "a")]


def test_nothing_is_probed_for_what_comes_soon_or_is_made_on_the_same_node() -> None:
    world = World(arrives_at={"a": PROBE_EVERY_S / 2, "b": 60})
    world.inputs.get([Promised("a", FAR), Promised("b", NEAR)])
    assert world.probed == []


def test_a_pair_that_is_cut_is_named_soon_after_the_heartbeat() -> None:
    world = World(is_up=lambda now: False)
    with pytest.raises(PeerCut, match=r"from worker 1 on here to worker 2 on there \(10\.0\.0\.2:7000\)"):
        world.inputs.get([Promised("a", FAR)])
    longest = PROBE_EVERY_S + PROBE_TIMEOUT_S
    assert HEARTBEAT_S + GRACE_S <= world.now <= HEARTBEAT_S + GRACE_S + 2 * longest


def test_a_way_that_is_open_in_one_direction_only_is_named_soon_after_the_heartbeat() -> None:
    world = World(made_at={"a": 100}, is_way_back_up=lambda now: False)
    with pytest.raises(PeerCut, match="from worker 2 on there to worker 1 on here"):
        world.inputs.get([Promised("a", FAR)])
    assert 100 + HEARTBEAT_S <= world.now <= 100 + HEARTBEAT_S + GRACE_S + 3 * PROBE_EVERY_S


def test_the_way_back_is_looked_at_seldom_and_not_before_something_is_late() -> None:
    world = World(made_at={"a": 100}, arrives_at={"a": 200})
    world.inputs.get([Promised("a", FAR)])
    assert 2 <= len(world.asked_back) <= 4
    soon = World(made_at={"a": 100}, arrives_at={"a": 105})
    soon.inputs.get([Promised("a", FAR)])
    assert soon.asked_back == []


def test_a_cut_that_passes_is_waited_out() -> None:
    world = World(arrives_at={"a": 200}, is_up=lambda now: now % 20 > HEARTBEAT_S)
    assert world.inputs.get([Promised("a", FAR)]) == ["value of a"]


def test_a_process_that_was_stopped_meanwhile_does_not_take_its_peer_for_cut() -> None:
    world = World(arrives_at={"a": 60}, is_up=lambda now: now < 4 or now > 51, sleeps=[(5, 45)])
    assert world.inputs.get([Promised("a", FAR)]) == ["value of a"]


def test_what_was_made_and_never_arrives_is_given_up_at_last() -> None:
    world = World(made_at={"a": 5_000})
    with pytest.raises(InputGone, match="worker 2 on there has arrived at worker 1 on here") as caught:
        world.inputs.get([Promised("a", FAR)])
    assert not isinstance(caught.value, PeerCut)
    assert 5_000 + ARRIVAL_LIMIT_S <= world.now <= 5_010 + ARRIVAL_LIMIT_S


def test_an_arrival_gives_the_others_their_full_time_again() -> None:
    refs = [str(number) for number in range(5)]
    late = {ref: (number + 1) * 0.9 * ARRIVAL_LIMIT_S for number, ref in enumerate(refs)}
    world = World(made_at=dict.fromkeys(refs, 0.0), arrives_at=late)
    assert len(world.inputs.get([Promised(ref, FAR) for ref in refs])) == 5


def test_what_its_making_raised_is_told_without_waiting_for_the_others() -> None:
    world = World(arrives_at={"a": 1}, raises={"a": InputGone("Its maker died.", fix="")})
    with pytest.raises(InputGone, match="Its maker died"):
        world.inputs.get([Promised("b", FAR), Promised("a", NEAR)])
    assert world.now < 2
