from __future__ import annotations

import pytest

from dray.rings.links import Links, broken_links, without
from dray.rings.mesh import DRIVER


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


def test_a_link_that_breaks_once_is_new_and_does_not_last() -> None:
    links, broken = Links(), frozenset({(0, 2)})
    assert links.judge(broken) == ([(0, 2)], [])
    assert links.judge(frozenset()) == ([], [])
    assert links.judge(broken) == ([(0, 2)], [])


def test_a_link_that_is_broken_in_two_rings_in_a_row_lasts() -> None:
    links = Links()
    links.judge(frozenset({(0, 2)}))
    assert links.judge(frozenset({(0, 2), (0, 1)})) == ([(0, 1)], [(0, 2)])


def test_members_that_do_not_reach_each_other_are_links_of_their_workers() -> None:
    worker_of = {0: 5, 1: 5, 2: 3}
    assert broken_links([(0, 2), (2, 1), (2, DRIVER)], worker_of) == {(3, 5), (DRIVER, 3)}
