"""Rings of trees: members that do not return, do not reach each other, or are interrupted by the user."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dray.elastic.stopped import RunStopped
from dray.errors import ClusterError
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.labels import LabelSummary
from dray.learners.row_mask import RowMask
from dray.learners.shard import Shard
from dray.learners.xgboost import coordinator
from dray.learners.xgboost.coordinator import LabelSurvey
from dray.rings.mesh import DRIVER
from fake_group import Never
from ring_stage import NO_LABELS, Stage, checkpoint_at, no_sockets, told_to

pytestmark = pytest.mark.usefixtures("no_sockets")
__all__ = ["no_sockets"]


def test_a_worker_that_does_not_return_from_an_interrupted_ring_is_ended_and_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator, "RETURN_S", 0.2)
    stage = Stage(3)
    stage.group.listen("interrupt", lambda worker, ring: None if worker == 2 else stage._interrupt(worker, ring))

    def wait_for_the_loss() -> None:
        if len(stage.told.of("worker_lost")) < 2:
            time.sleep(0.01)
            stage.script.insert(0, wait_for_the_loss)

    assert stage.play(stage.train(7), stage.lose(1), wait_for_the_loss) == checkpoint_at(20)
    assert told_to(stage.group, "interrupt") == [0, 2]
    assert stage.group.ended == [2]
    assert [(event["worker"], event["cause"]) for event in stage.told.of("worker_lost")] == [
        (1, "it was killed"),
        (2, "it did not return within 0 s after its ring was given up"),
    ]
    assert stage.began == [0, 7]
    assert stage.rings[0] == stage.rings[1]
    assert stage.membership.failures == 2


def test_a_worker_whose_rounds_take_long_has_two_of_them_to_return() -> None:
    stage = Stage(2)
    stage.load()
    stage.controller.begin_fit(1, stage.writer, 20)
    attempt = stage.controller._begin(stage.controller._settle())
    assert stage.coordinator._longest_return_s(attempt) == coordinator.RETURN_S
    stage.writer.offer(Checkpoint(1, b"model 1", (Step(1, 50.0, {"eval-auc": 0.1}),)))
    assert stage.coordinator._longest_return_s(attempt) == 100


def test_only_shards_that_are_elsewhere_are_restored() -> None:
    stage = Stage(3)
    stage.group.no_room = {2}
    assert stage.play(stage.train(3), stage.give_room).round == 20
    assert [(worker, at) for worker, _, at in stage.restored] == [(0, 0), (0, 0), (1, 0), (1, 0), (2, 4)]
    assert [call.worker for call in stage.group.of("restore")] == [0, 1, 0, 1, 2]  # the workers themselves know


# The user interrupts


def interrupt(kind: type[BaseException] = KeyboardInterrupt) -> Callable[[], None]:
    def act() -> None:
        raise kind

    return act


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_the_model_of_the_last_round_is_fetched_when_the_user_interrupts(kind: type[BaseException]) -> None:
    stage = Stage(2)
    stage.group.listen("stop", lambda worker: stage.end(worker, "paused"))
    with pytest.raises(kind):
        stage.play(stage.train(6), interrupt(kind))
    assert told_to(stage.group, "stop") == [0, 1]
    assert stage.writer.latest == checkpoint_at(6)


def test_a_worker_that_is_lost_meanwhile_does_not_keep_another_from_answering() -> None:
    stage = Stage(2)

    def when_it_has_returned(worker: int, task: Any) -> Any:
        training = any((call.worker, call.method) == (worker, "train") for call in stage.group.pending)
        return Never() if training else stage._checkpoint(worker, task)

    stage.group.answer("checkpoint", when_it_has_returned)
    with pytest.raises(KeyboardInterrupt):
        stage.play(stage.train(6), interrupt(), stage.lose(1))
    assert told_to(stage.group, "interrupt") == [0]  # else it would wait in the ring for the lost one
    assert stage.writer.latest == checkpoint_at(6)


def wait_for_a_replacement(stage: Stage) -> None:
    stage.group.slow = {1}
    stage.group.lose(1)
    stage.controller.events()


def test_an_interrupt_before_the_first_ring_asks_no_worker() -> None:
    stage = Stage(2)
    stage.load()
    wait_for_a_replacement(stage)
    with pytest.raises(KeyboardInterrupt):
        stage.fit(interrupt())
    assert not stage.rings
    assert not stage.group.told
    assert not stage.group.of("checkpoint")


def test_an_interrupt_before_the_first_ring_of_another_fit_asks_no_worker() -> None:
    stage = Stage(2)
    stage.play()
    stage.begin_another_fit()
    wait_for_a_replacement(stage)
    asked = len(stage.group.of("checkpoint"))
    with pytest.raises(KeyboardInterrupt):
        stage.fit(interrupt())
    assert len(stage.rings) == 1
    assert not stage.group.told
    assert len(stage.group.of("checkpoint")) == asked


def test_a_run_that_stops_by_itself_asks_no_worker_for_its_model() -> None:
    stage = Stage(2, "stop")
    with pytest.raises(RunStopped):
        stage.play(stage.train(6), stage.lose(1))
    assert not told_to(stage.group, "stop")


# Workers that do not reach each other


def unreachable(stage: Stage, rounds: int, *pairs: tuple[int, int]) -> Callable[[], None]:
    """The ring breaks: these members did not reach each other. Member N is worker N's at first."""

    def act() -> None:
        for worker in stage.rings[-1]:
            stage.round[worker] += rounds
            stage.end(worker, "broken")
            mine = frozenset(pair for pair in pairs if pair[0] == worker)
            stage.ends[worker] = replace(stage.ends[worker], unreachable=mine)

    return act


def test_workers_that_cannot_reach_each_other_in_two_rings_are_parted() -> None:
    stage = Stage(3)
    script = [unreachable(stage, 3, (0, 2)), unreachable(stage, 2, (0, 2))]
    assert stage.play(*script) == checkpoint_at(20)
    assert [sorted(ring) for ring in stage.rings] == [[0, 1, 2], [0, 1, 2], [0, 1]]
    assert stage.began == [0, 3, 5]
    (warning,) = stage.told.of("warning")
    assert warning["message"] == "No connection between worker 0 on host-0 and worker 2 on host-2."
    assert "20000-20099" in warning["fix"]
    (lost,) = stage.told.of("worker_lost")
    assert lost["worker"] == 2
    assert "No connection between worker 0 on host-0 and worker 2 on host-2." in lost["cause"]
    assert stage.membership.failures == 1
    assert stage.group.started == [0, 1, 2]  # another worker there would not be reached either
    assert not stage.membership.starting


def test_a_link_that_breaks_once_is_reported_and_no_worker_is_parted_with() -> None:
    stage = Stage(3)
    script = [unreachable(stage, 3, (0, 2)), unreachable(stage, 1), unreachable(stage, 1, (0, 2))]
    assert stage.play(*script).round == 20
    assert len(stage.told.of("warning")) == 2
    assert [sorted(ring) for ring in stage.rings] == [[0, 1, 2]] * 4
    assert stage.membership.failures == 0


def test_when_no_worker_reaches_the_driver_the_run_ends_with_the_reason() -> None:
    stage = Stage(2)
    cut = [unreachable(stage, 1, (0, DRIVER), (1, DRIVER)) for _ in range(2)]
    with pytest.raises(ClusterError, match=r"between the driver and worker 0 on .* between the driver and worker 1 on"):
        stage.play(*cut)


# Some of the rows


def test_the_labels_of_some_rows_are_asked_of_all_shards() -> None:
    stage = Stage(2)
    stage.load()
    mask = RowMask.of(np.arange(40_000) % 2 == 0, 40_000)
    asked: list[Any] = []

    def labels(worker: int, rows: RowMask, shards: tuple[Shard, ...]) -> list[Any]:
        asked.append((worker, shards))
        assert rows is mask
        return [(LabelSummary(10 * worker, 0, 0.0, 1.0, whole=True), NO_LABELS) for _ in shards]

    stage.group.answer("labels", labels)
    found = stage.controller.run(LabelSurvey(mask))
    assert sorted(summary.rows for summary, _ in found) == [0, 10]
    assert sorted(worker for worker, _ in asked) == [0, 1]
