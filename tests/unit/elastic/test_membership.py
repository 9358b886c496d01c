from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from dray.clusters.cluster import Node
from dray.config.run_file import WorkerRange
from dray.elastic.group import Lost
from dray.elastic.membership import Membership
from dray.elastic.policy import Level
from dray.elastic.starting import SMALL_CELLS, choose_workers, started_workers
from dray.errors import DataError, WorkerError
from dray.events.telemetry import Telemetry
from dray.learners.table import Scan
from fake_group import Asked, FakeGroup, Recorder, make_membership

BIG = SMALL_CELLS


def nodes(count: int) -> list[Node]:
    return [Node(str(index), f"10.0.0.{index}", 4.0, 4.0, 2**30) for index in range(count)]


@pytest.mark.parametrize("asked", [0, 1, 7])
def test_what_is_asked_for_is_what_is_done(asked: int) -> None:
    assert choose_workers(asked, "local", [], 100, BIG) == (min(1, asked), asked, "as asked")


def test_a_range_is_what_was_asked_for_wherever_it_is() -> None:
    assert choose_workers(WorkerRange(min=2, max=5), "auto", nodes(9), 100, BIG) == (2, 5, "as asked")


def test_on_one_machine_one_process_is_chosen() -> None:
    assert choose_workers("auto", "local", nodes(1), 100, BIG)[:2] == (0, 0)


def test_on_a_cluster_small_data_goes_to_one_worker() -> None:
    *workers, reason = choose_workers("auto", "auto", nodes(4), 100, BIG - 1)
    assert workers == [1, 1] and "too few" in reason


@pytest.mark.parametrize(("count", "row_groups", "expected"), [(4, 100, 4), (4, 3, 3), (1, 100, 1), (0, 5, 1)])
def test_on_a_cluster_large_data_goes_to_every_node_that_can_have_a_row_group(
    count: int, row_groups: int, expected: int
) -> None:
    assert choose_workers("auto", "10.0.0.1:6379", nodes(count), row_groups, BIG)[:2] == (1, expected)


@pytest.mark.parametrize("asked", [0, "auto"])
def test_a_worker_in_this_process_needs_no_cluster_and_leaves_no_thread(asked: int) -> None:
    before = threading.active_count()
    with started_workers(asked, 1, "local", 1, 100, Telemetry(), learner="xgboost") as membership:
        [member] = membership.ready.values()
        assert (member.worker, member.pid, member.threads) == (0, os.getpid(), 1)
        assert (membership.alone, membership.threads, membership.cluster) == (True, 1, "none")
        assert any("this process" in reason for reason in membership.reasons)
    assert threading.active_count() == before


def started(count: int, level: Level = "elastic", **limits: Any) -> tuple[Membership, FakeGroup, Recorder]:
    membership, group, told = make_membership(count, level, **limits)
    membership.begin()
    told.events.clear()
    group.started.clear()
    return membership, group, told


def test_a_run_begins_when_all_workers_that_can_be_expected_are_there() -> None:
    membership, group, told = make_membership(3)
    group.no_room.add(2)
    membership.begin()
    assert set(membership.ready) == {0, 1}
    assert membership.starting == {2}
    assert group.started == [0, 1, 2]
    assert [event["worker"] for event in told.of("worker_started")] == [0, 1]
    assert not any(event["replacement"] for event in told.of("worker_started"))


def test_tasks_are_done_in_order_by_any_free_worker() -> None:
    membership, group, _ = started(2)
    group.answer("double", lambda worker, number: 2 * number)
    assert membership.run(Asked("double"), [(number,) for number in range(5)]) == [0, 2, 4, 6, 8]
    assert {call.worker for call in group.calls} == {0, 1}


def test_a_task_of_a_lost_worker_is_done_by_another() -> None:
    membership, group, told = started(2)
    lost = iter([True])

    def double(worker: int, number: int) -> int | Lost:
        return Lost(worker, "it was killed", 0.2) if worker == 1 and next(lost, False) else 2 * number

    group.answer("double", double)
    assert membership.run(Asked("double"), [(number,) for number in range(4)]) == [0, 2, 4, 6]
    [event] = told.of("worker_lost")
    assert event == {
        "worker": 1, "host": "host-1", "pid": 1001, "cause": "it was killed", "noticed_after_s": 0.2, "round": 0,
        "phase": "start",
    }  # fmt: skip
    assert membership.failures == 1
    assert group.started == [1]


def test_a_mistake_that_a_worker_finds_is_raised_as_it_is() -> None:
    membership, group, told = started(2)
    group.answer("scan", lambda worker: DataError("Bad.", fix="Mend it."))
    with pytest.raises(DataError, match="Bad"):
        membership.run(Asked("scan"), [(), ()])
    assert not told.of("worker_lost")


def test_a_worker_that_raises_anything_else_is_ended_and_its_task_given_to_another() -> None:
    membership, group, told = started(2)
    raised = iter([ValueError("odd")])
    group.answer("scan", lambda worker: next(raised, "found"))
    assert membership.run(Asked("scan"), [()]) == ["found"]
    [event] = told.of("worker_lost")
    assert event["cause"] == "it raised ValueError: odd"
    assert "Traceback" in event["detail"] or "ValueError" in event["detail"]
    assert group.ended == [event["worker"]]
    assert group.started == [event["worker"]]


def test_workers_that_fail_again_and_again_before_training_end_the_run_with_the_cause() -> None:
    membership, group, _ = started(2, failures_in_round=2)
    group.answer("scan", lambda worker: ValueError("odd"))
    with pytest.raises(WorkerError, match=r"5 workers were lost before training began.*ValueError: odd"):
        membership.run(Asked("scan"), [()])


def test_on_failure_stop_a_loss_before_training_ends_the_run_with_the_cause() -> None:
    membership, group, _ = started(2, "stop")
    group.answer("scan", lambda worker: Lost(worker, "it was killed", 0.1))
    with pytest.raises(WorkerError, match=r"on_failure: stop.*Worker 0 on host-0: it was killed"):
        membership.run(Asked("scan"), [()])


def test_one_process_does_not_hide_what_was_raised_in_it() -> None:
    with (
        started_workers(0, 1, "local", 1, 100, Telemetry(), learner="xgboost") as membership,
        pytest.raises(ValueError),
    ):
        membership.run(Scan(), [("too", "few")])


def test_a_leaving_worker_gets_no_task_and_is_replaced_by_one_with_a_number_of_its_own() -> None:
    membership, group, told = started(2)
    group.going = {1: "its node is drained"}
    group.no_room = {2, 3, 4}
    membership.step()
    assert told.of("leaving") == [{"worker": 1, "host": "host-1", "why": "its node is drained"}]
    assert group.started == [2]
    group.answer("scan", lambda worker: worker)
    assert membership.run(Asked("scan"), [(), ()]) == [0, 0]
    group.no_room = set()
    while len(membership.ready) < 3:
        membership.step()
    assert group.started == [2]


def test_there_are_never_more_workers_than_the_maximum() -> None:
    membership, group, _ = started(2)
    group.going = {1: "its node is drained"}
    while 2 not in membership.ready:
        membership.step()
    membership.dismiss(1, "others hold its rows now")
    group.lose(0)
    for _ in range(5):
        membership.step()
    assert len(membership.ready) == 2
    assert len(group.started) == 2  # one for the worker that left, one for the lost one


def test_a_restart_ends_all_and_asks_for_all() -> None:
    membership, group, told = started(3, "restart")
    membership.restart()
    assert sorted(group.ended) == sorted(group.started) == [0, 1, 2]
    assert not membership.ready
    while len(membership.ready) < 3:
        membership.step()
    assert all(event["replacement"] for event in told.of("worker_started"))


def test_another_worker_comes_in_place_of_one_that_is_given_up_when_too_few_are_left() -> None:
    membership, _group, _recorder = started(4, level="shrink", least=2, first=2)
    membership.fail(1, WorkerError("No connection.", fix=""), replace=False)
    membership.replace_lost()
    assert membership.starting == {2}
