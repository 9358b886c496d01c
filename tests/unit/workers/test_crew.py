from __future__ import annotations

import os
import threading

import pytest

from dray.cluster.cluster import Node
from dray.workers.crew import SMALL_CELLS, choose_workers, started_crew

BIG = SMALL_CELLS


def nodes(count: int) -> list[Node]:
    return [Node(str(index), f"10.0.0.{index}", 4.0, 4.0, 2**30) for index in range(count)]


@pytest.mark.parametrize("asked", [0, 1, 7])
def test_what_is_asked_for_is_what_is_done(asked: int) -> None:
    assert choose_workers(asked, "local", [], 100, BIG) == (asked, "as asked")


def test_on_one_machine_one_process_is_chosen() -> None:
    assert choose_workers("auto", "local", nodes(1), 100, BIG)[0] == 0


def test_on_a_cluster_small_data_goes_to_one_worker() -> None:
    workers, reason = choose_workers("auto", "auto", nodes(4), 100, BIG - 1)
    assert workers == 1 and "too few" in reason


@pytest.mark.parametrize(("count", "row_groups", "expected"), [(4, 100, 4), (4, 3, 3), (1, 100, 1), (0, 5, 1)])
def test_on_a_cluster_large_data_goes_to_every_node_that_can_have_a_row_group(
    count: int, row_groups: int, expected: int
) -> None:
    assert choose_workers("auto", "10.0.0.1:6379", nodes(count), row_groups, BIG)[0] == expected


@pytest.mark.parametrize("asked", [0, "auto"])
def test_a_crew_of_this_process_needs_no_cluster_and_leaves_no_thread(asked: int) -> None:
    before = threading.active_count()
    with started_crew(asked, 1, "local", 1, 100) as crew:
        [member] = crew.group.members
        assert (member.worker, member.pid, member.threads) == (0, os.getpid(), 1)
        assert (crew.workers, crew.threads, crew.cluster) == (0, 1, "none")
        assert any("this process" in reason for reason in crew.reasons)
    assert threading.active_count() == before
