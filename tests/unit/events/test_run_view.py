"""What is known of a run after some events."""

from __future__ import annotations

import os

import pytest

from dray.events.format import clock, count, duration, size, sparkline
from dray.events.run_view import RunView
from dray.events.telemetry import DRIVER, Sample
from made_events import made_event


def after(*steps: tuple[float, str, dict[str, object]]) -> RunView:
    progress = RunView()
    for time, kind, data in steps:
        progress.event(made_event(time, kind, data))
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
    assert RunView().bar(0) is None
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
    assert [size(n) for n in (0, 999, 4_000, 12_345, 1_234_567, 412_000_000, 1_234_000_000, 5e12)] == [
        "0 B", "999 B", "4.0 kB", "12 kB", "1.2 MB", "412 MB", "1.2 GB", "5.0 TB"]  # fmt: skip
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
    progress.event(made_event(4, "round", {"round": 151, "rounds": 200, "seconds": 2.0}))
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


# What is known of workers


STARTED = (0.0, "worker_started", {"worker": 0, "host": "a", "pid": 7, "threads": 2})


def test_a_replacement_in_training_is_starting_then_reloading_then_as_any_other() -> None:
    steps: list[tuple[float, str, dict[str, object]]] = [
        (0, "phase", {"name": "load"}),
        STARTED,
        (1, "worker_loaded", {"worker": 0, "rows": 100}),
        (2, "phase", {"name": "train"}),
        (3, "worker_lost", {"worker": 0, "host": "a", "pid": 7}),
    ]
    lost = after(*steps)
    assert (lost.workers[0].state, lost.workers[0].pid, lost.workers[0].rows, lost.phase) == ("lost", 7, 0, "recover")
    steps.append((4, "worker_started", {"worker": 0, "host": "b", "pid": 8, "threads": 3}))
    starting = after(*steps).workers[0]
    assert (starting.state, starting.host, starting.pid, starting.threads) == ("starting", "b", 8, 3)
    steps += [(5, "reload", {"worker": 0, "rows": 60}), (5, "reload", {"worker": 0, "rows": 40})]
    progress = after(*steps)
    worker = progress.workers[0]
    assert (worker.state, worker.reload_rows, worker.reload_shards, worker.loaded) == ("reloading", 100, 2, False)
    assert progress.reloading_rows == (0, 100)
    steps.append((6, "worker_progress", {"worker": 0, "rows": 50, "total_rows": 100}))
    progress = after(*steps)
    assert progress.reloading_rows == (50, 100)
    bar = progress.bar(7)
    assert bar is not None
    assert (bar.done, bar.total, bar.unit, bar.eta_s) == (50, 100, "rows", pytest.approx(4))
    steps.append((7, "worker_loaded", {"worker": 0, "rows": 60}))
    assert after(*steps).workers[0].state == "reloading"  # the other part is to come
    steps.append((8, "worker_loaded", {"worker": 0, "rows": 40}))
    done = after(*steps)
    assert (done.workers[0].state, done.workers[0].rows, done.workers[0].loaded) == ("reloaded", 100, True)
    settled = after(*steps, (9, "ring", {"round": 5, "members": 1, "workers": 1}))
    assert (settled.workers[0].state, settled.round, settled.phase) == ("", 5, "recover")
    recovered = after(*steps, (9, "recovered", {"round": 5, "seconds": 2.5, "rows_reloaded": 100}))
    assert (recovered.workers[0].state, recovered.phase) == ("", "train")
    assert (recovered.failures.lost, recovered.failures.seconds, recovered.failures.rows) == (1, 2.5, 100)


def test_a_worker_started_before_training_has_no_state_unless_it_replaces_one() -> None:
    assert after((0, "phase", {"name": "load"}), STARTED).workers[0].state == ""
    replacing = (1.0, "worker_started", {"worker": 0, "host": "b", "replacement": True})
    assert after((0, "phase", {"name": "load"}), STARTED, replacing).workers[0].state == "starting"


def test_a_worker_that_is_lost_keeps_its_host_and_hears_no_more() -> None:
    progress = after(STARTED, (1, "worker_lost", {"worker": 0}))
    progress.sample([Sample(2, 0, "z", 1.0, 5, 0, 0, 0)])
    progress.event(made_event(2, "worker_progress", {"worker": 0, "rows": 9, "total_rows": 9}))
    worker = progress.workers[0]
    assert (worker.host, worker.pid, worker.state, worker.cores, worker.rows) == ("a", 7, "lost", None, 0)


def test_workers_join_leave_and_go() -> None:
    joined = after(STARTED, (1, "joined", {"worker": 1, "host": "b", "rows": 30}))
    worker = joined.workers[1]
    assert (worker.host, worker.state, worker.loaded) == ("b", "joined", True)
    assert (worker.rows, worker.total_rows, worker.loaded_rows) == (30, 30, 30)
    assert after(STARTED, (1, "joined", {"worker": 0, "rows": 3})).workers[0].host == "a"
    leaving = after(STARTED, (1, "leaving", {"worker": 0}))
    assert leaving.workers[0].state == "leaving"
    leaving.event(made_event(2, "left", {"worker": 0}))
    leaving.event(made_event(2, "left", {"worker": 5}))
    assert leaving.workers == {}


def test_a_new_ring_leaves_those_as_they_are_that_are_still_on_their_way() -> None:
    for kind in ("ring", "recovered"):
        progress = after(
            (0, "phase", {"name": "train"}),
            (1, "worker_started", {"worker": 0}),
            (1, "joined", {"worker": 1, "rows": 3}),
            (1, "leaving", {"worker": 2}),
            (2, kind, {"round": 1}),
        )
        assert [progress.workers[number].state for number in range(3)] == ["starting", "joined", "leaving"]


def test_a_worker_that_gave_rows_away_has_the_share_that_it_kept() -> None:
    """80 of its 100 rows are to train on; half of all went to another worker."""
    steps: list[tuple[float, str, dict[str, object]]] = [
        (1, "worker_progress", {"worker": 0, "rows": 100, "total_rows": 100}),
        (2, "worker_loaded", {"worker": 0, "rows": 80}),
        (3, "worker_progress", {"worker": 0, "rows": 50, "total_rows": 50}),
    ]
    worker = after(*steps).workers[0]
    assert (worker.rows, worker.loaded_rows, worker.total_rows, worker.loaded) == (40, 40, 50, True)
    same = after(*steps[:2], (3, "worker_progress", {"worker": 0, "rows": 100, "total_rows": 100})).workers[0]
    assert (same.rows, same.total_rows, same.loaded) == (80, 100, True)
    more = after(*steps[:2], (3, "worker_progress", {"worker": 0, "rows": 100, "total_rows": 200})).workers[0]
    assert (more.rows, more.total_rows, more.loaded) == (100, 200, False)
    unknown = after(*steps[:2], (3, "worker_progress", {"worker": 0, "rows": 90})).workers[0]
    assert (unknown.rows, unknown.total_rows, unknown.loaded) == (90, None, False)


def test_rows_to_load_are_those_of_the_data_until_the_workers_know_better() -> None:
    steps: list[tuple[float, str, dict[str, object]]] = [(0, "data", {"rows": 1000}), STARTED]
    assert after(*steps).loading_rows == (0, 1000)
    assert after(*steps, (1, "worker_progress", {"worker": 0, "rows": 5, "total_rows": 1200})).loading_rows == (5, 1200)
    assert after(STARTED, (1, "worker_progress", {"worker": 0, "rows": 5})).loading_rows == (5, 5)
    driver = after((0, "worker_progress", {"worker": DRIVER, "rows": 5, "total_rows": 9}))
    assert driver.loading_rows == (0, 0)


def test_a_sample_is_forgotten_after_five_seconds_without_another() -> None:
    progress = after(STARTED)
    progress.sample([Sample(10, 0, "a", 1.5, 100, 0, 0, 0), Sample(10, 1, "b", 0.5, 50, 0, 0, 0)])
    assert progress.workers[1].host == "b"
    progress.sample([Sample(15, 0, "other", 1.0, 90, 0, 0, 0)])
    assert (progress.workers[0].host, progress.workers[0].cores, progress.workers[0].memory_bytes) == ("a", 1.0, 90)
    assert progress.workers[1].cores == 0.5
    progress.sample([Sample(15.1, 0, "a", 1.0, 90, 0, 0, 0)])
    assert (progress.workers[1].cores, progress.workers[1].memory_bytes) == (None, None)
    progress.sample([])
    assert progress.workers[0].cores == 1.0


def test_threads_that_were_not_used_are_marked() -> None:
    progress = after(STARTED, (1, "threads", {"worker": 0, "decided": 4, "ok": False}))
    assert (progress.workers[0].threads, progress.workers[0].ok) == (4, False)


def test_a_worker_that_tells_its_own_cores_is_shown_with_them() -> None:
    progress = after((0, "worker_started", {"worker": 0, "pid": os.getpid()}))
    progress.sample([Sample(1, 0, "a", 0.5, 10, 0, 0, 0), Sample(1, DRIVER, "a", 1.5, 100, 0, 0, 0)])
    assert [(worker.cores, worker.memory_bytes) for worker in progress.shown_workers] == [(0.5, 10)]
    alone = after((0, "worker_started", {"worker": 0, "pid": os.getpid()}))
    alone.sample([Sample(1, DRIVER, "a", 1.5, 100, 0, 0, 0)])
    assert [(worker.cores, worker.memory_bytes) for worker in alone.shown_workers] == [(1.5, 100)]
    several = after(*((0, "worker_started", {"worker": number, "pid": 1}) for number in (2, 0, 1)))
    several.sample([Sample(1, DRIVER, "a", 1.5, 100, 0, 0, 0)])
    assert [worker.worker for worker in several.shown_workers] == [0, 1, 2, DRIVER]


# Bars, phases and rounds


def test_without_a_pace_there_is_no_time_left() -> None:
    progress = after((5, "phase", {"name": "x"}), (5, "progress", {"done": 0, "total": 10, "unit": "files"}))
    for now in (5, 6):
        bar = progress.bar(now)
        assert bar is not None
        assert (bar.eta_s, bar.rate) == (None, None)
    progress.event(made_event(7, "progress", {"done": 4, "total": None, "unit": ""}))
    bar = progress.bar(7)
    assert bar is not None
    assert (bar.done, bar.total, bar.unit, bar.eta_s, bar.rate, bar.fraction) == (4, None, "", None, 2.0, 0.0)
    progress.event(made_event(9, "progress", {"done": 12, "total": 8}))
    bar = progress.bar(9)
    assert bar is not None
    assert (bar.fraction, bar.rate) == (1.0, 3.0)


def test_a_recovery_without_rows_to_reload_shows_the_rounds() -> None:
    progress = after(
        (0, "run_started", {"run": "r", "config": {"rounds": 9}}),
        (1, "phase", {"name": "train"}),
        (2, "round", {"round": 3, "rounds": 9, "seconds": 1.0}),
        (3, "worker_lost", {"worker": 0}),
    )
    bar = progress.bar(4)
    assert bar is not None
    assert (bar.done, bar.total, bar.unit, bar.eta_s) == (3, 9, "rounds", None)


def test_the_pace_is_that_of_the_last_thirty_rounds() -> None:
    rounds = [(i, "round", {"round": i, "rounds": 100, "seconds": float(i)}) for i in range(1, 41)]
    progress = after((0, "phase", {"name": "train"}), *rounds, (41, "round", {"round": 41, "rounds": 100}))
    assert progress.round_seconds == [float(i) for i in range(11, 41)]


def test_a_copy_is_a_phase_within_the_preparation_and_the_first_one_is_told() -> None:
    steps: list[tuple[float, str, dict[str, object]]] = [
        (0, "phase", {"name": "prepare"}),
        (1, "phase", {"name": "plan"}),
        (3, "phase", {"name": "ingest"}),
        (4, "progress", {"done": 1, "total": 2}),
        (6, "copied", {"format": "csv"}),
        (7, "copied", {"format": "json"}),
    ]
    copying = after(*steps[:4])
    assert (copying.phase, copying.counter) == ("copy", (1, 2, ""))
    progress = after(*steps)
    assert (progress.phase, progress.counter) == ("prepare", None)
    assert progress.converted is not None and progress.converted.format == "csv"
    assert progress.seconds_by_phase(8) == {"prepare": 3, "copy": 5}
    assert after((0, "phase", {"name": "ingest"})).phase == "ingest"  # `dray data ingest` itself
    later = after((0, "phase", {"name": "train"}), (1, "progress", {"done": 1, "total": 2}), (1, "copied", {}))
    assert (later.phase, later.counter) == ("train", (1, 2, ""))


def test_a_phase_begins_with_nothing_to_wait_for_and_nothing_counted() -> None:
    waiting = (1.0, "waiting", {"why": "Waiting for the store."})
    progress = after((0, "phase", {"name": "load"}), waiting, (1, "progress", {"done": 1, "total": 2}))
    assert progress.waiting == "for the store."
    for kind, data in (("ring", {"round": 1}), ("recovered", {}), ("round", {"round": 1}), ("phase", {"name": "x"})):
        progress.event(made_event(2, "waiting", {"why": "Waiting for the store."}))
        progress.event(made_event(2, kind, data))
        assert progress.waiting == "", kind
    assert progress.counter is None


def test_a_resumed_run_has_the_rounds_that_it_was_told_and_says_whether_these_are_all() -> None:
    told = [
        {"round": 1, "metrics": {"eval-auc": 0.9}},
        {"round": 2, "metrics": {}},
        {"round": 3, "metrics": {"eval-auc": None}},
    ]
    progress = after((0, "resumed", {"round": 3, "rounds": told}))
    assert (progress.round, progress.resumed_after, progress.history) == (3, 3, {"eval-auc": {1: 0.9}})
    assert progress.best["eval-auc"].round == 1
    assert progress.knows_all_rounds
    done = (1.0, "round", {"round": 4, "rounds": 9, "metrics": {"eval-auc": 0.8}})
    assert not after((0, "resumed", {"round": 3}), done).knows_all_rounds
    assert after(done).knows_all_rounds
    assert RunView().knows_all_rounds
    equal = (1.0, "round", {"round": 3, "rounds": 9, "metrics": {"eval-auc": 0.8}})
    assert after((0, "resumed", {"round": 3}), equal).knows_all_rounds


def test_of_equal_values_the_first_round_is_the_best() -> None:
    rounds = [
        (i, "round", {"round": i, "rounds": 3, "metrics": {"eval-auc": 0.5, "eval-rmse": 0.5}}) for i in (1, 2, 3)
    ]
    progress = after(*rounds)
    assert [progress.best[name].round for name in ("eval-auc", "eval-rmse")] == [1, 1]


def test_how_a_run_ends_is_told() -> None:
    progress = after(
        (1, "run_started", {"run": "r", "directory": "runs/r", "config": {"rounds": 5}}),
        (2, "decided", {"workers": 0}),
        (3, "warning", {"message": "odd", "fix": "mend"}),
        (4, "checkpoint", {"round": 2}),
        (5, "diverged", {"round": 2}),
        (6, "run_failed", {"error": "Interrupted.", "fix": "dray resume", "status": "stopped"}),
    )
    assert (progress.run, progress.directory, progress.rounds, progress.alone) == ("r", "runs/r", 5, True)
    assert progress.warnings == [("odd", "mend")]
    assert progress.checkpoint == (2, 4)
    assert progress.repeated is not None and progress.repeated.round == 2
    assert (progress.failure, progress.stopped, progress.ended) == (("Interrupted.", "dray resume"), True, 6)
    assert progress.elapsed(100) == 5
    assert not after((0, "run_failed", {"error": "x"})).stopped
    assert not after((0, "decided", {"workers": 2})).alone
    assert RunView().elapsed(5) == 0.0
