from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest

from dray.elastic.checkpoint_writer import CheckpointWriter, as_checkpoint, as_written
from dray.errors import StorageError
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import START, Best, Checkpoint, Step
from dray.runs.checkpoints import WrittenCheckpoint
from fake_group import Recorder


def checkpoint_at(done: int, known: int | None = None) -> Checkpoint:
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


Made = tuple[CheckpointWriter, Store, Recorder]


@pytest.fixture
def make() -> Callable[..., Made]:
    def writer(latest: Checkpoint = START) -> Made:
        store, told = Store(), Recorder()
        return CheckpointWriter(store, Telemetry([told]), latest), store, told  # type: ignore[arg-type]

    return writer


def test_what_is_offered_is_written_by_a_thread_of_its_own(make: Callable[..., Made]) -> None:
    writer, store, told = make()
    writer.offer(checkpoint_at(3))
    store.wait_for(1)
    writer.close(write=False)
    assert store.written == [as_written(checkpoint_at(3), b"model")]
    assert store.threads == ["dray-checkpoints"]
    assert writer.written == 1
    [event] = told.of("checkpoint")
    assert event["round"] == 3 and event["seconds"] >= 0


def test_offering_returns_at_once_and_only_the_newest_is_written_when_the_store_is_slow(
    make: Callable[..., Made],
) -> None:
    writer, store, _ = make()
    store.may_write.clear()
    for done in (1, 2, 3, 4):
        writer.offer(checkpoint_at(done))
        assert writer.latest.round == done
    store.may_write.set()
    writer.close(write=True)
    assert store.written[-1].round == 4
    assert len(store.written) <= 2


def test_an_older_checkpoint_is_not_taken(make: Callable[..., Made]) -> None:
    writer, store, _ = make(checkpoint_at(5))
    for older in (START, checkpoint_at(4), checkpoint_at(5), checkpoint_at(5, known=4)):
        writer.offer(older)
    writer.close(write=True)
    assert writer.latest == checkpoint_at(5)
    assert not store.written


def test_the_same_round_with_its_metrics_is_newer(make: Callable[..., Made]) -> None:
    writer, _, _ = make(checkpoint_at(5, known=4))
    writer.offer(checkpoint_at(5))
    assert writer.latest == checkpoint_at(5)
    writer.close(write=False)


def test_a_store_that_fails_is_one_warning_and_tried_again(make: Callable[..., Made]) -> None:
    writer, store, told = make()
    store.failing = True
    for done in (1, 2, 3):
        writer.offer(checkpoint_at(done))
        store.wait_for(done)
    store.failing = False
    writer.offer(checkpoint_at(4))
    store.wait_for(4)
    writer.close(write=False)
    [warning] = told.of("warning")
    assert "checkpoint of round 1 could not be written: No space left." in warning["message"]
    assert [checkpoint.round for checkpoint in store.written] == [4]
    assert writer.written == 1
    assert writer.latest.round == 4


def test_closing_writes_the_newest_if_told_so(make: Callable[..., Made]) -> None:
    for write, written in ((True, [2]), (False, [])):
        writer, store, told = make()
        writer.latest = checkpoint_at(2)  # as if it had come too late for the thread
        writer.close(write=write)
        assert [checkpoint.round for checkpoint in store.written] == written
        assert [event["round"] for event in told.of("checkpoint")] == written


def test_closing_a_store_that_fails_does_not_raise(make: Callable[..., Made]) -> None:
    writer, store, told = make()
    store.failing = True
    writer.offer(checkpoint_at(1))
    writer.close(write=True)
    assert len(told.of("warning")) == 1


def test_a_run_without_rounds_writes_nothing(make: Callable[..., Made]) -> None:
    writer, store, _ = make()
    writer.close(write=True)
    assert not store.written


@pytest.mark.parametrize("checkpoint", [checkpoint_at(3), checkpoint_at(3, known=2)])
def test_what_is_written_says_all_that_the_checkpoint_does(checkpoint: Checkpoint) -> None:
    assert as_checkpoint(as_written(checkpoint, checkpoint.model or b"")) == checkpoint
    assert as_checkpoint(None) == START


def test_without_a_run_directory_the_newest_is_kept_in_memory() -> None:
    told = Recorder()
    writer = CheckpointWriter(None, Telemetry([told]))
    writer.offer(checkpoint_at(2))
    writer.close(write=True)
    assert (writer.latest, writer.written, told.events) == (checkpoint_at(2), 0, [])


def test_a_model_that_is_forgotten_is_not_written_and_its_rounds_stay(make: Callable[..., Made]) -> None:
    writer, store, _ = make()
    store.may_write.clear()
    writer.latest = checkpoint_at(3)
    writer.forget_model()
    store.may_write.set()
    writer.close(write=True)
    assert not store.written
    assert (writer.latest.round, writer.latest.model, len(writer.latest.rounds)) == (3, None, 3)
