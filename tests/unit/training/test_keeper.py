from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest

from dray.errors import StorageError
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import START, Best, Checkpoint, Step
from dray.runs.checkpoints import WrittenCheckpoint
from dray.training.keeper import Keeper, as_checkpoint, as_written
from fake_group import Recorder


def standing_at(done: int, known: int | None = None) -> Checkpoint:
    rounds = tuple(Step(number, 0.5, {"eval-auc": 0.7}) for number in range(1, done + 1))
    return Checkpoint(done, b"model", rounds[:known])


def test_a_metric_that_was_nan_is_nan_again_after_json() -> None:
    kept = {"round": 1, "seconds": 0.5, "metrics": {"eval-rmse": 2.0, "eval-auc": None}}
    [done] = as_checkpoint(WrittenCheckpoint(1, b"model", (kept,))).rounds
    assert math.isnan(done.metrics["eval-auc"]) and done.metrics["eval-rmse"] == 2.0
    assert Best.of([done, Step(2, 0.5, {"eval-rmse": 3.0, "eval-auc": 0.6})], {}).round == 2


class Store:
    """Keeps what is written, with the thread that wrote it; fails or waits when told so."""

    def __init__(self) -> None:
        self.written: list[WrittenCheckpoint] = []
        self.threads: list[str] = []
        self.failing = False
        self.may_write = threading.Event()
        self.may_write.set()
        self.tried = threading.Condition()
        self.tries = 0

    def write(self, checkpoint: WrittenCheckpoint) -> None:
        assert self.may_write.wait(10)
        with self.tried:
            self.tries += 1
            self.threads.append(threading.current_thread().name)
            if not self.failing:
                self.written.append(checkpoint)
            self.tried.notify_all()
        if self.failing:
            raise StorageError("No space left.", fix="Make room.")

    def wait_for(self, tries: int) -> None:
        with self.tried:
            assert self.tried.wait_for(lambda: self.tries >= tries, 10)


Made = tuple[Keeper, Store, Recorder]


@pytest.fixture
def make() -> Callable[..., Made]:
    def keeper(latest: Checkpoint = START) -> Made:
        store, told = Store(), Recorder()
        return Keeper(store, Telemetry([told]), latest), store, told  # type: ignore[arg-type]

    return keeper


def test_what_is_offered_is_written_by_a_thread_of_its_own(make: Callable[..., Made]) -> None:
    keeper, store, told = make()
    keeper.offer(standing_at(3))
    store.wait_for(1)
    keeper.close(write=False)
    assert store.written == [as_written(standing_at(3), b"model")]
    assert store.threads == ["dray-checkpoints"]
    assert keeper.written == 1
    [event] = told.of("checkpoint")
    assert event["round"] == 3 and event["seconds"] >= 0


def test_offering_returns_at_once_and_only_the_newest_is_written_when_the_store_is_slow(
    make: Callable[..., Made],
) -> None:
    keeper, store, _ = make()
    store.may_write.clear()
    for done in (1, 2, 3, 4):
        keeper.offer(standing_at(done))
        assert keeper.latest.round == done
    store.may_write.set()
    keeper.close(write=True)
    assert store.written[-1].round == 4
    assert len(store.written) <= 2


def test_an_older_standing_is_not_taken(make: Callable[..., Made]) -> None:
    keeper, store, _ = make(standing_at(5))
    for older in (START, standing_at(4), standing_at(5), standing_at(5, known=4)):
        keeper.offer(older)
    keeper.close(write=True)
    assert keeper.latest == standing_at(5)
    assert not store.written


def test_the_same_round_with_its_metrics_is_newer(make: Callable[..., Made]) -> None:
    keeper, _, _ = make(standing_at(5, known=4))
    keeper.offer(standing_at(5))
    assert keeper.latest == standing_at(5)
    keeper.close(write=False)


def test_a_store_that_fails_is_one_warning_and_tried_again(make: Callable[..., Made]) -> None:
    keeper, store, told = make()
    store.failing = True
    for done in (1, 2, 3):
        keeper.offer(standing_at(done))
        store.wait_for(done)
    store.failing = False
    keeper.offer(standing_at(4))
    store.wait_for(4)
    keeper.close(write=False)
    [warning] = told.of("warning")
    assert "checkpoint of round 1 could not be written: No space left." in warning["message"]
    assert [checkpoint.round for checkpoint in store.written] == [4]
    assert keeper.written == 1
    assert keeper.latest.round == 4


def test_closing_writes_the_newest_if_told_so(make: Callable[..., Made]) -> None:
    for write, written in ((True, [2]), (False, [])):
        keeper, store, told = make()
        keeper.latest = standing_at(2)  # as if it had come too late for the thread
        keeper.close(write=write)
        assert [checkpoint.round for checkpoint in store.written] == written
        assert [event["round"] for event in told.of("checkpoint")] == written


def test_closing_a_store_that_fails_does_not_raise(make: Callable[..., Made]) -> None:
    keeper, store, told = make()
    store.failing = True
    keeper.offer(standing_at(1))
    keeper.close(write=True)
    assert len(told.of("warning")) == 1


def test_a_run_without_rounds_writes_nothing(make: Callable[..., Made]) -> None:
    keeper, store, _ = make()
    keeper.close(write=True)
    assert not store.written


@pytest.mark.parametrize("standing", [standing_at(3), standing_at(3, known=2)])
def test_a_checkpoint_says_all_that_a_standing_does(standing: Checkpoint) -> None:
    assert as_checkpoint(as_written(standing, standing.model or b"")) == standing
    assert as_checkpoint(None) == START
