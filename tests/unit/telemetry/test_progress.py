"""What is known of a run after some events."""

from __future__ import annotations

import os

import pytest

from dray.telemetry.events import DRIVER, Event, Sample
from dray.telemetry.format import clock, count, duration, size, sparkline
from dray.telemetry.progress import Progress


def after(*steps: tuple[float, str, dict[str, object]]) -> Progress:
    progress = Progress()
    for time, kind, data in steps:
        progress.event(Event(time, kind, data))
    return progress


def test_the_bar_counts_rows_while_loading() -> None:
    progress = after(
        (0, "phase", {"name": "load"}),
        (0, "worker_started", {"worker": 0, "host": "a"}),
        (0, "worker_started", {"worker": 1, "host": "b"}),
        (10, "worker_progress", {"worker": 0, "rows": 40, "total_rows": 100}),
        (10, "worker_loaded", {"worker": 1, "rows": 60, "seconds": 10}),
    )
    bar = progress.bar(10)
    assert bar is not None
    assert (bar.done, bar.total, bar.unit) == (100, 160, "rows")
    assert bar.eta_s == pytest.approx(6)


def test_the_bar_counts_rounds_while_training_at_the_recent_pace() -> None:
    rounds = [(i, "round", {"round": i, "rounds": 200, "seconds": 9.0 if i <= 10 else 0.5}) for i in range(1, 101)]
    bar = after((0, "phase", {"name": "train"}), *rounds).bar(100)
    assert bar is not None
    assert (bar.done, bar.total, bar.unit, bar.eta_s) == (100, 200, "rounds", pytest.approx(50))


def test_other_work_has_a_bar_too() -> None:
    bar = after((0, "progress", {"done": 0, "total": 10, "unit": "files"}),
                (4, "progress", {"done": 2, "total": 10, "unit": "files"})).bar(4)  # fmt: skip
    assert bar is not None
    assert (bar.fraction, bar.eta_s) == (0.2, pytest.approx(16))


def test_there_is_no_bar_before_there_is_anything_to_count() -> None:
    assert Progress().bar(0) is None
    assert after((0, "phase", {"name": "train"})).bar(1) is None
    assert after((0, "phase", {"name": "load"})).bar(1) is None


def test_the_best_of_a_metric_is_the_largest_or_the_smallest_by_its_name() -> None:
    values = [(0.7, 0.5), (0.9, 0.3), (0.8, 0.4)]
    progress = after(
        *(
            (i, "round", {"round": i, "rounds": 3, "metrics": {"eval-auc": auc, "eval-rmse": rmse}})
            for i, (auc, rmse) in enumerate(values, 1)
        )
    )
    assert (progress.best["eval-auc"].value, progress.best["eval-auc"].round) == (0.9, 2)
    assert (progress.best["eval-rmse"].value, progress.best["eval-rmse"].round) == (0.3, 2)
    assert progress.metrics == {"eval-auc": 0.8, "eval-rmse": 0.4}


def test_the_time_of_each_phase_adds_up() -> None:
    progress = after(
        (0, "run_started", {"run": "r"}),
        (1, "phase", {"name": "load"}),
        (3, "phase", {"name": "train"}),
        (9, "run_finished", {"result": {}}),
    )
    assert progress.seconds_by_phase(100) == {"load": 2, "train": 6}
    assert progress.elapsed(100) == 9


def test_a_replacement_worker_starts_from_nothing() -> None:
    progress = after(
        (0, "worker_started", {"worker": 0, "host": "a"}),
        (1, "worker_loaded", {"worker": 0, "rows": 5}),
        (2, "worker_started", {"worker": 0, "host": "b"}),
    )
    assert (progress.workers[0].host, progress.workers[0].rows, progress.workers[0].loaded) == ("b", 0, False)


def test_the_driver_is_shown_last_and_not_at_all_when_it_is_the_worker() -> None:
    def shown(pid: int) -> list[tuple[int, float | None]]:
        progress = after((0, "worker_started", {"worker": 0, "host": "a", "pid": pid, "threads": 2}))
        progress.sample([Sample(1, DRIVER, "a", 1.5, 100, 50, 0, 0)])
        return [(worker.worker, worker.cores) for worker in progress.shown_workers]

    assert shown(os.getpid() + 1) == [(0, None), (DRIVER, 1.5)]
    assert shown(os.getpid()) == [(0, 1.5)]


def test_numbers_read_well() -> None:
    assert [size(n) for n in (0, 999, 12_345, 412_000_000, 1_234_000_000, 5e12)] == [
        "0 B", "999 B", "12 kB", "412 MB", "1.2 GB", "5.0 TB"]  # fmt: skip
    assert [clock(s) for s in (0, 65, 3723)] == ["0:00", "1:05", "1:02:03"]
    assert [duration(s) for s in (0.351, 12.34, 125)] == ["0.35 s", "12.3 s", "2:05"]
    assert count(1234567) == "1,234,567"
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == "▁▂▃▄▅▆▇█"
    assert len(sparkline([float(i) for i in range(1000)], 20)) == 20
    assert sparkline([1.0], 8) == ""
    assert sparkline([float("nan"), 1.0, 1.0], 8) == "▁▁"


def test_rounds_that_are_done_again_count_once() -> None:
    def done(round_: int, auc: float) -> tuple[float, str, dict[str, object]]:
        return (round_, "round", {"round": round_, "rounds": 9, "seconds": 1.0, "metrics": {"eval-auc": auc}})

    first = [done(1, 0.5), done(2, 0.6), done(3, 0.9), done(4, 0.7)]
    back = (5, "ring", {"members": 2, "workers": 2, "round": 2})
    progress = after(*first, back, done(3, 0.8))
    assert progress.history["eval-auc"] == {1: 0.5, 2: 0.6, 3: 0.8}
    assert (progress.best["eval-auc"].value, progress.best["eval-auc"].round) == (0.8, 3)
    progress = after(*first, done(8, 0.65))
    assert (progress.round, list(progress.history["eval-auc"])) == (8, [1, 2, 3, 4, 8])


def test_the_bar_of_a_resumed_run_begins_where_the_run_was() -> None:
    progress = after(
        (0, "run_started", {"run": "r", "config": {"rounds": 200}}),
        (1, "resumed", {"round": 150, "from": "checkpoint"}),
        (2, "phase", {"name": "train"}),
    )
    bar = progress.bar(3)
    assert bar is not None
    assert (bar.done, bar.total, bar.eta_s) == (150, 200, None)
    progress.event(Event(4, "round", {"round": 151, "rounds": 200, "seconds": 2.0}))
    bar = progress.bar(4)
    assert bar is not None
    assert (bar.done, bar.eta_s) == (151, pytest.approx(98))


def test_the_time_of_recoveries_is_a_phase_of_its_own() -> None:
    progress = after(
        (0, "phase", {"name": "train"}),
        (4, "worker_lost", {"worker": 1}),
        (5, "worker_lost", {"worker": 0}),
        (7, "recovered", {"round": 3, "seconds": 3.0, "rows_reloaded": 10, "workers": 2}),
        (8, "worker_lost", {"worker": 1}),
        (9, "round", {"round": 4, "rounds": 9}),
        (10, "phase", {"name": "save"}),
    )
    assert progress.seconds_by_phase(11) == {"train": 6, "recover": 4, "save": 1}
    assert (progress.failures.lost, progress.failures.seconds, progress.failures.rows) == (3, 3.0, 10)


def test_a_worker_of_several_parts_has_the_rows_of_all() -> None:
    steps: list[tuple[float, str, dict[str, object]]] = [
        (0, "phase", {"name": "load"}),
        (1, "worker_progress", {"worker": 0, "rows": 90, "total_rows": 200}),
        (2, "worker_loaded", {"worker": 0, "rows": 80, "seconds": 2}),
        (3, "worker_progress", {"worker": 0, "rows": 150, "total_rows": 200}),
    ]
    assert after(*steps).loading_rows == (150, 200)
    assert after(*steps, (4, "worker_loaded", {"worker": 0, "rows": 80, "seconds": 2})).loading_rows == (160, 160)


def test_a_worker_lost_while_loading_counts_no_rows() -> None:
    progress = after(
        (0, "phase", {"name": "load"}),
        (0, "worker_progress", {"worker": 0, "rows": 40, "total_rows": 100}),
        (0, "worker_progress", {"worker": 1, "rows": 60, "total_rows": 100}),
        (1, "worker_lost", {"worker": 1, "host": "b"}),
        (2, "worker_progress", {"worker": 1, "rows": 70, "total_rows": 100}),
    )
    assert progress.phase == "load"
    assert progress.loading_rows == (40, 100)
