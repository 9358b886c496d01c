from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dray.elastic import watch as watching
from dray.elastic.watch import Watch
from dray.events.sampler import Usage
from dray.events.telemetry import DRIVER, Telemetry
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.status import Proof, Status
from dray.threads.verify import Verdict
from fake_group import Recorder


def usage(cpu_seconds: float = 1.0, memory: int = 100) -> Usage:
    return Usage("host", 1, cpu_seconds, memory, 50.0, 0, 0)


def status(**fields: Any) -> Status:
    return replace(Status(usage(), 0, 0, (), None, "", 0), **fields)


def watch(*, shared: bool = True, rounds_told: int = 0) -> tuple[Watch, Recorder]:
    recorder = Recorder()
    return Watch(Telemetry([recorder]), shared=shared, rounds_told=rounds_told), recorder


def test_progress_is_told_only_when_there_is_some() -> None:
    looker, told = watch()
    looker.look({0: status(rows=10, total_rows=100), 1: status(total_rows=50)})
    looker.look({0: status(rows=10, total_rows=100), 1: status(rows=25, total_rows=50)})
    assert told.of("worker_progress") == [
        {"worker": 0, "rows": 10, "total_rows": 100},
        {"worker": 1, "rows": 25, "total_rows": 50},
    ]


def test_what_takes_long_is_told_once_though_all_workers_do_it() -> None:
    looker, told = watch()
    looker.look({0: status(), 1: status(doing="kernels are compiled")})
    looker.look({0: status(doing="kernels are compiled"), 1: status(doing="kernels are compiled")})
    looker.look({0: status(), 1: status()})
    assert told.of("worker_busy") == [{"worker": 1, "host": "host", "doing": "kernels are compiled"}]


ONE, TWO, THREE = (Step(number, number / 4, {"eval-auc": 0.6 + number / 10}) for number in (1, 2, 3))


def test_a_round_is_told_once_by_the_first_worker_that_tells_it_with_the_number_to_do() -> None:
    looker, told = watch()
    looker.begin_fit(1, rounds=5, told=0)
    looker.look({0: status(rounds=(ONE,)), 1: status(rounds=(ONE, TWO))})
    assert told.of("round") == [
        {"round": 1, "rounds": 5, "seconds": 0.25, "metrics": {"eval-auc": 0.7}},
        {"round": 2, "rounds": 5, "seconds": 0.5, "metrics": {"eval-auc": 0.8}},
    ]
    assert looker.rounds_told == 2


def test_rounds_that_are_done_again_after_a_failure_are_not_told_again() -> None:
    looker, told = watch()
    looker.look({0: status(rounds=(ONE, TWO))})
    looker.look({1: status(rounds=(TWO, THREE))})
    assert [event["round"] for event in told.of("round")] == [1, 2, 3]


def test_the_steps_of_a_checkpoint_are_told_unless_it_is_of_another_fit() -> None:
    looker, told = watch()
    looker.look({0: status(rounds=(ONE,))})
    looker.tell_all(Checkpoint(2, b"model", (ONE, TWO)))
    looker.tell_all(Checkpoint(3, b"model", (ONE, TWO, THREE), fit=2))
    assert [event["round"] for event in told.of("round")] == [1, 2]


def test_a_resumed_run_does_not_tell_the_rounds_of_before() -> None:
    looker, told = watch(rounds_told=2)
    looker.look({0: status(rounds=(ONE, TWO, THREE))})
    assert [event["round"] for event in told.of("round")] == [3]


def test_a_worker_that_replaces_another_starts_with_nothing() -> None:
    looker, told = watch()
    full = status(rows=50, total_rows=50, proof=Proof(2, 2.0, Verdict(True)))
    looker.look({0: full})
    looker.forget(0)
    looker.look({0: full})
    assert [event["rows"] for event in told.of("worker_progress")] == [50, 50]
    assert len(told.of("threads")) == 2
    looker.forget(7)  # one that has never told anything


def test_cores_that_were_used_are_told_without_a_warning() -> None:
    looker, told = watch()
    for _ in range(2):
        looker.look({0: status(proof=Proof(2, 1.876, Verdict(True)))})
    assert told.of("threads") == [{"worker": 0, "host": "host", "decided": 2, "used": 1.88, "ok": True}]
    assert not told.of("warning")


def test_cores_that_were_not_used_are_a_warning_with_cause_and_fix() -> None:
    looker, told = watch()
    looker.look({0: status(proof=Proof(2, 0.5, Verdict(False, "the host is busy.", "Wait.")))})
    [warning] = told.of("warning")
    assert warning["message"] == "Worker 0 on host: the host is busy."
    assert warning["fix"] == "Wait."


def test_a_worker_that_has_not_answered_is_passed_over() -> None:
    looker, told = watch()
    looker.look({1: status(rows=3, total_rows=9)})
    assert [progress["worker"] for progress in told.of("worker_progress")] == [1]
    assert [sample.worker for sample in told.samples] == [1]


def test_the_peak_of_memory_is_the_largest_sum_at_one_moment() -> None:
    looker, _ = watch()
    for first, second in ((100, 300), (350, 100), (10, 10)):
        looker.look({0: status(usage=usage(memory=first)), 1: status(usage=usage(memory=second))})
    assert looker.peak_memory_bytes == 450


def test_the_driver_counts_unless_the_worker_lives_in_its_process() -> None:
    looker, told = watch(shared=False)
    looker.look({0: status()})
    assert {sample.worker for sample in told.samples} == {0, DRIVER}
    assert looker.peak_memory_bytes > 1_000_000
    looker, told = watch(shared=True)
    looker.look({0: status()})
    assert {sample.worker for sample in told.samples} == {0}
    assert looker.peak_memory_bytes == 100


def test_samples_come_once_a_second_with_the_cores_used_since(monkeypatch: pytest.MonkeyPatch) -> None:
    looker, told = watch()
    for now, cpu_seconds in ((100.0, 5.0), (100.4, 5.6), (101.0, 6.5), (103.0, 7.5)):
        monkeypatch.setattr(watching.time, "time", lambda now=now: now)
        looker.look({0: status(usage=usage(cpu_seconds))})
    assert [sample.time for sample in told.samples] == [100.0, 101.0, 103.0]
    assert [sample.cpu_cores for sample in told.samples] == pytest.approx([0.0, 1.5, 0.5])


def test_another_fit_tells_its_own_rounds_and_cores() -> None:
    looker, told = watch()
    proof = Proof(1, 1.0, Verdict(True))
    looker.begin_fit(1, rounds=2, told=0)
    looker.look({0: status(rounds=(ONE, TWO), proof=proof)})
    looker.begin_fit(2, rounds=3, told=0)
    looker.look({0: status(rounds=(ONE, TWO), proof=proof)})  # a worker that has not heard of it yet
    assert [event["round"] for event in told.of("round")] == [1, 2]
    assert len(told.of("threads")) == 1
    looker.look({0: status(rounds=(ONE,), proof=proof, fit=2)})
    assert [(event["round"], event["rounds"]) for event in told.of("round")] == [(1, 2), (2, 2), (1, 3)]
    assert len(told.of("threads")) == 2


def test_a_fit_that_goes_on_from_a_checkpoint_does_not_tell_its_rounds_again() -> None:
    looker, told = watch()
    looker.begin_fit(1, rounds=3, told=2)
    looker.look({0: status(rounds=(ONE, TWO, THREE))})
    assert [event["round"] for event in told.of("round")] == [3]
