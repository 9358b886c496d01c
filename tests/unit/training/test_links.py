from __future__ import annotations

import pytest

from dray.errors import ClusterError
from dray.events.telemetry import Telemetry
from dray.rings.mesh import DRIVER
from dray.training.links import Links
from dray.training.ring_attempt import without
from fake_group import make_membership


@pytest.mark.parametrize(
    ("links", "parted"),
    [
        ([], []),
        ([(0, 1)], [1]),
        ([(0, 1), (0, 2), (0, 3)], [0]),
        ([(0, 1), (2, 3)], [1, 3]),
        ([(DRIVER, 2)], [2]),
        ([(DRIVER, 0), (0, 1), (1, 2)], [0, 2]),
        ([(DRIVER, 0), (DRIVER, 1)], [0, 1]),
    ],
)
def test_training_goes_on_without_as_few_workers_as_possible(links: list[tuple[int, int]], parted: list[int]) -> None:
    assert without(links) == parted


def test_a_link_that_breaks_once_is_told_and_nobody_is_parted_with() -> None:
    membership, _, told = make_membership(3)
    membership.begin()
    links = Links(membership, Telemetry([told]))
    assert links.judge(frozenset({(0, 2)})) == []
    assert links.judge(frozenset()) == []
    assert links.judge(frozenset({(0, 2)})) == []
    first, _again = told.of("warning")
    assert first["message"].startswith("No connection between worker 0 on ")
    assert "worker 2 on " in first["message"]
    assert "20000-20099" in first["fix"]
    assert sorted(membership.ready) == [0, 1, 2]


def test_a_link_that_stays_broken_ends_one_worker_which_is_not_replaced() -> None:
    membership, _, told = make_membership(3)
    membership.begin()
    links = Links(membership, Telemetry([told]))
    links.judge(frozenset({(0, 2)}))
    assert links.judge(frozenset({(0, 2)})) == [2]
    assert sorted(membership.ready) == [0, 1]
    membership.replace_lost()
    membership.step(0)
    assert sorted(membership.ready) == [0, 1]
    assert not membership.starting
    (lost,) = told.of("worker_lost")
    assert "No connection between worker 0 on" in lost["cause"]
    assert "worker 2 on" in lost["cause"]
    assert membership.failures == 1


def test_when_no_worker_reaches_the_driver_the_run_ends_with_the_reason() -> None:
    membership, _, told = make_membership(2)
    membership.begin()
    links = Links(membership, Telemetry([told]))
    links.judge(frozenset({(DRIVER, 0), (DRIVER, 1)}))
    with pytest.raises(ClusterError, match=r"between the driver and worker 0 on .* between the driver and worker 1 on"):
        links.judge(frozenset({(DRIVER, 0), (DRIVER, 1)}))
