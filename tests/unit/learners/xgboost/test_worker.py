"""One worker with several shards, alone in its ring."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.data.parquet import Dataset
from dray.data.shards import Units, assign
from dray.data.split import Split
from dray.learners.checkpoint import START
from dray.learners.shard import Shard
from dray.learners.status import Stopped
from dray.learners.xgboost import ring as xgboost_ring
from dray.learners.xgboost import worker as working
from dray.learners.xgboost.boosting import Task
from dray.learners.xgboost.matrix import BinnedPreparation as Preparation
from dray.learners.xgboost.params import complete
from dray.learners.xgboost.worker import Worker
from dray.rings.rendezvous import Rendezvous
from small_data import mixed_rows, opened, prepare, units, write

LEFT, RIGHT, ALL = Shard(0, (0, 2)), Shard(1, (1, 3)), Shard(2, (0, 1, 2, 3))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return opened(write(tmp_path_factory.mktemp("worker") / "data.parquet", mixed_rows(1200), 300))


@pytest.fixture(scope="module")
def preparation(dataset: Dataset) -> Preparation:
    return prepare(dataset, label="label", ignore=["value", "weight"], split=Split(0.25, 1))


def task(rounds: int = 6) -> Task:
    params = complete({}, objective="binary:logistic", classes=0, seed=1) | {"base_score": 0.5}
    return Task(params, "binary:logistic", rounds, None, evaluate=True)


def shard(dataset: Dataset, part: Shard) -> Units:
    return tuple(units(dataset)[unit] for unit in part.units)


def loaded(dataset: Dataset, preparation: Preparation, *parts: Shard, threads: int = 1) -> Worker:
    worker = Worker(0, threads)
    for part in parts:
        worker.load(preparation, part, shard(dataset, part), ())
    return worker


def goes_on_as_it_is(worker: Worker, task: Task, *shards: Shard) -> bool:
    """Whether these shards, all of them or none, need not be restored to what the worker is at."""
    checkpoint = worker.checkpoint(task)
    found = {worker._shards[shard].is_at(task, checkpoint) for shard in shards}
    assert len(found) == 1
    return found.pop()


def test_shards_are_loaded_one_after_another_and_dropped(dataset: Dataset, preparation: Preparation) -> None:
    worker = Worker(0, 1)
    reports = [worker.load(preparation, part, shard(dataset, part), ()) for part in (LEFT, RIGHT)]
    assert sum(report.rows + report.eval_rows for report in reports) == 1200
    assert [report.labels.rows for report in reports] == [report.rows for report in reports]
    status = worker.status(0)
    assert status.rows == status.total_rows == 1200
    assert (status.rounds, status.proof, status.copied_round) == ((), None, 0)
    worker.drop([RIGHT, Shard(9, (9,))])
    assert worker.status(0).total_rows < 1200
    with pytest.raises(KeyError):
        worker.restore(task(), START, [RIGHT])


def test_it_trains_alone_and_tells_its_rounds(dataset: Dataset, preparation: Preparation) -> None:
    worker = loaded(dataset, preparation, ALL)
    worker.restore(task(), START, [ALL])
    ended = worker.train(task(), [(0, ALL)], None, 1)
    assert (ended.how, ended.round, ended.why) == ("finished", 6, "")
    assert ended.proof.decided == 1
    assert [done.round for done in worker.status(0).rounds] == [1, 2, 3, 4, 5, 6]
    assert [done.round for done in worker.status(4).rounds] == [5, 6]
    assert worker.status(0).proof == ended.proof
    checkpoint = worker.checkpoint(task())
    assert checkpoint.round == 6 and task().is_over_at(checkpoint)
    assert goes_on_as_it_is(worker, task(), ALL)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Rounds take 10 ms; the event is set after the first."""
    first = threading.Event()
    agree = xgboost_ring.agree

    def slowly(flag: bool) -> bool:
        first.set()
        time.sleep(0.01)
        return agree(flag)

    monkeypatch.setattr(xgboost_ring, "agree", slowly)
    yield first


def in_another_thread(worker: Worker, task: Task, part: Shard, ring: int) -> tuple[threading.Thread, list[Any]]:
    ends: list[Any] = []
    thread = threading.Thread(target=lambda: ends.append(worker.train(task, [(0, part)], None, ring)))
    thread.start()
    return thread, ends


@pytest.mark.parametrize("how", ["pause", "stop"])
def test_it_can_be_stopped_at_a_rounds_end(
    dataset: Dataset, preparation: Preparation, slow: threading.Event, how: str
) -> None:
    long = task(100_000)
    worker = loaded(dataset, preparation, ALL)
    worker.restore(long, START, [ALL])
    thread, ends = in_another_thread(worker, long, ALL, 1)
    assert slow.wait(20)
    worker.pause(1) if how == "pause" else worker.stop()
    thread.join(20)
    [ended] = ends
    assert ended.how == "paused" and goes_on_as_it_is(worker, long, ALL)
    checkpoint = worker.checkpoint(long)
    assert 0 < checkpoint.round == ended.round == len(checkpoint.rounds) < 100_000
    ended = worker.train(task(checkpoint.round + 2), [(0, ALL)], None, 2)
    assert ended.how == ("finished" if how == "pause" else "paused")  # a stop is for good


def test_a_pause_that_comes_before_the_worker_is_in_the_ring_counts(dataset: Dataset, preparation: Preparation) -> None:
    worker = loaded(dataset, preparation, ALL)
    worker.restore(task(), START, [ALL])
    worker.pause(3)
    assert [worker.train(task(), [(0, ALL)], None, ring).how for ring in (3, 4)] == ["paused", "finished"]


def test_interrupting_an_older_ring_has_no_effect(
    dataset: Dataset, preparation: Preparation, slow: threading.Event
) -> None:
    worker = loaded(dataset, preparation, ALL)
    worker.restore(task(), START, [ALL])
    worker.interrupt(1)
    thread, ends = in_another_thread(worker, task(), ALL, 2)
    assert slow.wait(20)
    worker.interrupt(1)
    thread.join(20)
    assert [ended.how for ended in ends] == ["finished"]


def test_interrupting_a_ring_before_the_worker_is_in_it_keeps_it_out(
    dataset: Dataset, preparation: Preparation
) -> None:
    worker = loaded(dataset, preparation, LEFT, RIGHT)
    worker.restore(task(), START, [LEFT, RIGHT])
    worker.interrupt(5)
    with Rendezvous(2, "127.0.0.1") as meeting:
        ended = worker.train(task(), [(0, LEFT), (1, RIGHT)], meeting.address, 5)
    assert (ended.how, ended.round) == ("broken", 0)
    assert not goes_on_as_it_is(worker, task(), LEFT, RIGHT)
    assert ended.why


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The second seat of a worker does not answer after a round: the events are that it waits, and that it may go on.

    So the first one waits in XGBoost when it is interrupted, as the members of a ring do whose peer was lost.
    """
    begun, go_on = threading.Event(), threading.Event()
    agree = xgboost_ring.agree

    def agree_late(flag: bool) -> bool:
        if threading.current_thread().name.startswith("dray-seat") and not go_on.is_set():
            time.sleep(0.1)  # the first one is to be there before
            begun.set()
            assert go_on.wait(20)
        return agree(flag)

    monkeypatch.setattr(xgboost_ring, "agree", agree_late)
    yield begun, go_on
    go_on.set()


def test_two_seats_of_one_worker_are_a_ring_and_an_interrupted_one_is_restored(
    dataset: Dataset, preparation: Preparation, stuck: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = stuck
    long = task(100_000)
    worker = loaded(dataset, preparation, LEFT, RIGHT, threads=2)
    worker.restore(long, START, [LEFT, RIGHT])
    with Rendezvous(2, "127.0.0.1") as meeting:
        ends: list[Any] = []
        seats = [(0, LEFT), (1, RIGHT)]
        thread = threading.Thread(target=lambda: ends.append(worker.train(long, seats, meeting.address, 1)))
        thread.start()
        assert begun.wait(20)
        worker.interrupt(1)
        go_on.set()
        thread.join(20)
        meeting.abandon()
    [ended] = ends
    assert ended.how == "broken" and not goes_on_as_it_is(worker, long, LEFT, RIGHT)
    checkpoint = worker.checkpoint(long)
    assert checkpoint.round == ended.round
    end = task(checkpoint.round + 3)
    worker.restore(end, checkpoint, [LEFT, RIGHT])
    with Rendezvous(2, "127.0.0.1") as meeting:
        assert worker.train(end, [(0, LEFT), (1, RIGHT)], meeting.address, 2).how == "finished"
    whole = loaded(dataset, preparation, ALL)
    whole.restore(end, START, [ALL])
    whole.train(end, [(0, ALL)], None, 1)
    assert worker.checkpoint(end).model == whole.checkpoint(end).model


def test_the_latest_copy_is_there_without_asking_the_training(
    dataset: Dataset, preparation: Preparation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(working, "CHECKPOINT_SHARE", 1e9)
    worker = loaded(dataset, preparation, ALL)
    worker.restore(task(), START, [ALL])
    assert worker.latest() is None
    worker.train(task(), [(0, ALL)], None, 1)
    copy = worker.latest()
    assert copy is not None
    assert copy.round == worker.status(0).copied_round == len(copy.rounds) >= 5
    other = loaded(dataset, preparation, ALL)
    other.restore(task(), copy, [ALL])
    assert other.latest() is copy


def test_loading_ends_soon_after_it_is_told_to_stop(dataset: Dataset, preparation: Preparation, tmp_path: Path) -> None:
    worker = Worker(0, 1)
    worker.stop()
    with pytest.raises(Stopped):
        worker.load(preparation, ALL, assign(units(dataset), 1)[0], ())
