from __future__ import annotations

import pickle
import time

import pytest

from dray.threads.verify import CoresUsed, Measured, judge


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda: 8)


def test_sixty_percent_of_what_was_decided_is_enough() -> None:
    assert judge(4, Measured(cores=2.4, seconds=5, cpus=8)).ok
    assert not judge(4, Measured(cores=2.3, seconds=5, cpus=8)).ok


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (Measured(cores=1.0, seconds=5, cpus=8, omp_num_threads="1"), "OMP_NUM_THREADS=1"),
        (Measured(cores=1.9, seconds=5, cpus=8, throttled_share=0.4), "quota"),
        (Measured(cores=1.9, seconds=5, cpus=2), "may run on 2"),
        (Measured(cores=1.9, seconds=5, cpus=8, others_cores=6.0), "other processes"),
        (Measured(cores=1.9, seconds=5, cpus=8, others_cores=1.0), "waited"),
        # The variable is small, but more cores than it allows were used: it is not the cause.
        (Measured(cores=1.9, seconds=5, cpus=8, omp_num_threads="1"), "waited"),
        (Measured(cores=1.0, seconds=5, cpus=8, omp_num_threads="4,1"), "waited"),
    ],
)
def test_too_few_cores_come_with_their_cause_and_a_fix(measured: Measured, words: str) -> None:
    verdict = judge(4, measured)
    assert not verdict.ok
    assert words in verdict.cause
    assert verdict.fix


def test_one_busy_thread_uses_about_one_core_and_a_sleep_none() -> None:
    cores = CoresUsed().start()
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    busy = cores.stop()
    cores.start()
    time.sleep(0.05)
    assert 0.0 < busy.cores < 1.5
    assert cores.stop().cores < busy.cores
    assert busy.cpus >= 1
    assert pickle.loads(pickle.dumps(busy)) == busy


def test_the_cores_that_are_shown_are_those_that_were_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit: 1.1996 of 2 cores is told as 1.2, which is enough, and 1.194 as 1.19, which is not."""
    for cpu, told, ok in ((1.1996, 1.2, True), (1.194, 1.19, False)):
        with monkeypatch.context() as patch:
            patch.setattr("time.perf_counter", iter([0.0, 1.0]).__next__)
            patch.setattr("time.process_time", iter([0.0, cpu]).__next__)
            measured = CoresUsed().start().stop()
        assert measured.cores == told
        verdict = judge(2, measured)
        assert verdict.ok is ok
        assert verdict.ok or verdict.cause.startswith("1.19 of 2 cores used")
