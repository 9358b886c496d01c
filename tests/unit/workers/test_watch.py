from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dray.learners.xgboost import Round
from dray.telemetry.events import DRIVER, Event, Sample, Telemetry
from dray.telemetry.sampler import Usage
from dray.threads.verify import Verdict
from dray.workers import watch as watching
from dray.workers.watch import Watch
from dray.workers.worker import Proof, Status


class Recorder:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.samples: list[Sample] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, samples: list[Sample]) -> None:
        self.samples += samples

    def close(self) -> None:
        pass

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]


def usage(cpu_seconds: float = 1.0, memory: int = 100) -> Usage:
    return Usage("host", 1, cpu_seconds, memory, 50.0, 0, 0)


def status(**fields: Any) -> Status:
    return replace(Status(usage(), 0, 0, None, (), None), **fields)


def watch(workers: int, *, shared: bool = True) -> tuple[Watch, Recorder]:
    recorder = Recorder()
    return Watch(Telemetry([recorder]), workers, shared=shared), recorder


def test_progress_is_told_only_when_there_is_some() -> None:
    looker, told = watch(2)
    looker.look([status(rows=10, total_rows=100), status(total_rows=50)])
    looker.look([status(rows=10, total_rows=100), status(rows=25, total_rows=50)])
    assert told.of("worker_progress") == [
        {"worker": 0, "rows": 10, "total_rows": 100},
        {"worker": 1, "rows": 25, "total_rows": 50},
    ]


def test_a_worker_that_has_loaded_is_told_once() -> None:
    looker, told = watch(1)
    for _ in range(2):
        looker.look([status(rows=100, total_rows=100, loaded_s=1.23456)])
    assert told.of("worker_loaded") == [{"worker": 0, "rows": 100, "seconds": 1.235}]


def test_rounds_come_from_the_first_worker_with_the_number_to_do() -> None:
    looker, told = watch(2)
    looker.rounds = 5
    one, two = Round(1, 0.25, {"eval-auc": 0.7}), Round(2, 0.5, {"eval-auc": 0.8})
    looker.look([status(rounds=(one, two)), status(rounds=(Round(1, 0.2, {}),))])
    assert told.of("round") == [
        {"round": 1, "rounds": 5, "seconds": 0.25, "metrics": {"eval-auc": 0.7}},
        {"round": 2, "rounds": 5, "seconds": 0.5, "metrics": {"eval-auc": 0.8}},
    ]
    assert looker.rounds_told == 2


def test_cores_that_were_used_are_told_without_a_warning() -> None:
    looker, told = watch(1)
    for _ in range(2):
        looker.look([status(proof=Proof(2, 1.876, Verdict(True)))])
    assert told.of("threads") == [{"worker": 0, "host": "host", "decided": 2, "used": 1.88, "ok": True}]
    assert not told.of("warning")


def test_cores_that_were_not_used_are_a_warning_with_cause_and_fix() -> None:
    looker, told = watch(1)
    looker.look([status(proof=Proof(2, 0.5, Verdict(False, "the host is busy.", "Wait.")))])
    [warning] = told.of("warning")
    assert warning["message"] == "Worker 0 on host: the host is busy."
    assert warning["fix"] == "Wait."


def test_a_worker_that_has_not_answered_is_passed_over() -> None:
    looker, told = watch(2)
    looker.look([None, status(rows=3, total_rows=9)])
    assert [progress["worker"] for progress in told.of("worker_progress")] == [1]
    assert [sample.worker for sample in told.samples] == [1]


def test_the_peak_of_memory_is_the_largest_sum_at_one_moment() -> None:
    looker, _ = watch(2)
    for first, second in ((100, 300), (350, 100), (10, 10)):
        looker.look([status(usage=usage(memory=first)), status(usage=usage(memory=second))])
    assert looker.peak_memory_bytes == 450


def test_the_driver_counts_unless_the_worker_lives_in_its_process() -> None:
    looker, told = watch(1, shared=False)
    looker.look([status()])
    assert {sample.worker for sample in told.samples} == {0, DRIVER}
    assert looker.peak_memory_bytes > 1_000_000
    looker, told = watch(1, shared=True)
    looker.look([status()])
    assert {sample.worker for sample in told.samples} == {0}
    assert looker.peak_memory_bytes == 100


def test_samples_come_once_a_second_with_the_cores_used_since(monkeypatch: pytest.MonkeyPatch) -> None:
    looker, told = watch(1)
    for now, cpu_seconds in ((100.0, 5.0), (100.4, 5.6), (101.0, 6.5), (103.0, 7.5)):
        monkeypatch.setattr(watching.time, "time", lambda now=now: now)
        looker.look([status(usage=usage(cpu_seconds))])
    assert [sample.time for sample in told.samples] == [100.0, 101.0, 103.0]
    assert [sample.cpu_cores for sample in told.samples] == pytest.approx([0.0, 1.5, 0.5])
