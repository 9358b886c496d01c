from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from dray.cluster.cluster import Node
from dray.config.run_file import WorkerRange
from dray.errors import DataError, WorkerError
from dray.telemetry.events import Telemetry
from dray.workers.crew import SMALL_CELLS, Crew, choose_workers, started_crew
from dray.workers.group import Lost
from dray.workers.policy import Level
from fake_group import FakeGroup, Recorder, make_crew

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
def test_a_crew_of_this_process_needs_no_cluster_and_leaves_no_thread(asked: int) -> None:
    before = threading.active_count()
    with started_crew(asked, 1, "local", 1, 100, Telemetry()) as crew:
        [member] = crew.ready.values()
        assert (member.worker, member.pid, member.threads) == (0, os.getpid(), 1)
        assert (crew.alone, crew.threads, crew.cluster) == (True, 1, "none")
        assert any("this process" in reason for reason in crew.reasons)
    assert threading.active_count() == before


def started(count: int, level: Level = "elastic", **limits: Any) -> tuple[Crew, FakeGroup, Recorder]:
    crew, group, told = make_crew(count, level, **limits)
    crew.begin()
    told.events.clear()
    group.started.clear()
    return crew, group, told


def test_a_crew_begins_when_all_who_can_be_expected_are_there() -> None:
    crew, group, told = make_crew(3)
    group.no_room.add(2)
    crew.begin()
    assert set(crew.ready) == {0, 1}
    assert crew.starting == {2}
    assert group.started == [0, 1, 2]
    assert [event["worker"] for event in told.of("worker_started")] == [0, 1]
    assert not any(event["replacement"] for event in told.of("worker_started"))


def test_tasks_are_done_in_order_by_whoever_is_free() -> None:
    crew, group, _ = started(2)
    group.answer("double", lambda worker, number: 2 * number)
    assert crew.run("double", [(number,) for number in range(5)]) == [0, 2, 4, 6, 8]
    assert {call.worker for call in group.calls} == {0, 1}


def test_a_task_of_a_lost_worker_is_done_by_another() -> None:
    crew, group, told = started(2)
    lost = iter([True])

    def double(worker: int, number: int) -> int | Lost:
        return Lost(worker, "it was killed", 0.2) if worker == 1 and next(lost, False) else 2 * number

    group.answer("double", double)
    assert crew.run("double", [(number,) for number in range(4)]) == [0, 2, 4, 6]
    [event] = told.of("worker_lost")
    assert event == {
        "worker": 1, "host": "host-1", "pid": 1001, "cause": "it was killed", "noticed_after_s": 0.2, "round": 0,
        "phase": "start",
    }  # fmt: skip
    assert crew.failures == 1
    assert group.started == [1]


def test_a_mistake_that_a_worker_finds_is_raised_as_it_is() -> None:
    crew, group, told = started(2)
    group.answer("scan", lambda worker: DataError("Bad.", fix="Mend it."))
    with pytest.raises(DataError, match="Bad"):
        crew.run("scan", [(), ()])
    assert not told.of("worker_lost")


def test_a_worker_that_raises_anything_else_is_ended_and_its_task_given_to_another() -> None:
    crew, group, told = started(2)
    raised = iter([ValueError("odd")])
    group.answer("scan", lambda worker: next(raised, "found"))
    assert crew.run("scan", [()]) == ["found"]
    [event] = told.of("worker_lost")
    assert event["cause"] == "it raised ValueError: odd"
    assert "Traceback" in event["detail"] or "ValueError" in event["detail"]
    assert group.ended == [event["worker"]]
    assert group.started == [event["worker"]]


def test_workers_that_fail_again_and_again_before_training_end_the_run_with_the_cause() -> None:
    crew, group, _ = started(2, failures_in_round=2)
    group.answer("scan", lambda worker: ValueError("odd"))
    with pytest.raises(WorkerError, match=r"5 workers were lost before training began.*ValueError: odd"):
        crew.run("scan", [()])


def test_on_failure_stop_a_loss_before_training_ends_the_run_with_the_cause() -> None:
    crew, group, _ = started(2, "stop")
    group.answer("scan", lambda worker: Lost(worker, "it was killed", 0.1))
    with pytest.raises(WorkerError, match=r"on_failure: stop.*Worker 0 on host-0: it was killed"):
        crew.run("scan", [()])


def test_one_process_does_not_hide_what_was_raised_in_it() -> None:
    with started_crew(0, 1, "local", 1, 100, Telemetry()) as crew, pytest.raises(TypeError):
        crew.run("scan", [("too", "few")])


def test_one_who_is_leaving_gets_no_task_and_is_replaced_by_one_with_a_number_of_its_own() -> None:
    crew, group, told = started(2)
    group.going = {1: "its node is drained"}
    group.no_room = {2, 3, 4}
    crew.step()
    assert told.of("leaving") == [{"worker": 1, "host": "host-1", "why": "its node is drained"}]
    assert group.started == [2]
    group.answer("scan", lambda worker: worker)
    assert crew.run("scan", [(), ()]) == [0, 0]
    group.no_room = set()
    while len(crew.ready) < 3:
        crew.step()
    assert group.started == [2]


def test_there_are_never_more_workers_than_the_maximum() -> None:
    crew, group, _ = started(2)
    group.going = {1: "its node is drained"}
    while 2 not in crew.ready:
        crew.step()
    crew.dismiss(1, "others hold its rows now")
    group.lose(0)
    for _ in range(5):
        crew.step()
    assert len(crew.ready) == 2
    assert len(group.started) == 2  # one for who left, one for who was lost


def test_a_restart_ends_all_and_asks_for_all() -> None:
    crew, group, told = started(3, "restart")
    crew.restart()
    assert sorted(group.ended) == sorted(group.started) == [0, 1, 2]
    assert not crew.ready
    while len(crew.ready) < 3:
        crew.step()
    assert all(event["replacement"] for event in told.of("worker_started"))
