"""What is shown when workers are lost, replaced, join and leave, and when a run is stopped or resumed."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dray.events.run_view import RunView
from dray.events.sinks.live import ending, view
from dray.events.sinks.terminal import PlainLines
from dray.events.telemetry import Sample
from made_events import made_event

START = time.mktime((2026, 11, 16, 12, 0, 0, 0, 0, -1))
Step = tuple[float, str, dict[str, Any]]
CAUSE = "its process was killed (SIGKILL)"
LOST: Step = (
    6.0,
    "worker_lost",
    {"worker": 1, "host": "host-b", "pid": 1234, "cause": CAUSE, "noticed_after_s": 0.3, "round": 51, "phase": "train"},
)


def until_round_50() -> list[Step]:
    return [
        (0.0, "run_started", {"run": "one", "directory": "runs/one", "config": {"rounds": 100}}),
        (0.0, "phase", {"name": "load"}),
        *((0.0, "worker_started", {"worker": w, "host": f"host-{'ab'[w]}", "pid": -w, "threads": 4}) for w in (0, 1)),
        *((1.0, "worker_loaded", {"worker": w, "rows": 1_000_000, "seconds": 1.0}) for w in (0, 1)),
        (1.0, "phase", {"name": "train"}),
        (1.0, "ring", {"members": 2, "workers": 2, "round": 0}),
        *(
            (1 + i / 10, "round", {"round": i, "rounds": 100, "seconds": 0.1, "metrics": {"eval-auc": i / 1000}})
            for i in range(1, 51)
        ),
        (6.0, "checkpoint", {"round": 50, "seconds": 0.01}),
    ]


REPLACED: list[Step] = [
    LOST,
    (6.5, "worker_started", {"worker": 1, "host": "host-c", "pid": -5, "threads": 4, "replacement": True}),
    (6.6, "reload", {"worker": 1, "rows": 1_000_000, "why": "replacement"}),
    (8.0, "worker_progress", {"worker": 1, "rows": 420_000, "total_rows": 1_000_000}),
]
RECOVERED: list[Step] = [
    (10.0, "worker_loaded", {"worker": 1, "rows": 1_000_000, "seconds": 3.4}),
    (10.1, "ring", {"members": 2, "workers": 2, "round": 50}),
    (10.2, "recovered", {"round": 50, "seconds": 4.2, "rows_reloaded": 1_000_000, "workers": 2}),
]
STOPPED: Step = (7.0, "run_failed", {"error": "Interrupted.", "fix": "", "status": "stopped"})


def after(*steps: Step) -> RunView:
    progress = RunView()
    for offset, kind, data in steps:
        progress.event(made_event(START + offset, kind, data))
    return progress


def lines(*steps: Step) -> list[str]:
    stream = io.StringIO()
    sink = PlainLines(stream)
    for offset, kind, data in steps:
        sink.event(made_event(START + offset, kind, data))
    sink.close()
    return stream.getvalue().splitlines()


def drawn(progress: RunView, now: float, width: int = 110, height: int = 30) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(view(progress, START + now, console))
    return console.export_text(styles=False)


def row(picture: str, host: str) -> list[str]:
    [found] = [line.split() for line in picture.splitlines() if f" {host} " in f"{line} "]
    return found


def ended(progress: RunView) -> str:
    console = Console(file=io.StringIO(), width=110, record=True)
    console.print(ending(progress, START + 50))
    return console.export_text()


class TestPlainLines:
    def test_a_loss_and_its_recovery_are_told_step_by_step(self) -> None:
        told = lines(*until_round_50(), *REPLACED, *RECOVERED)
        assert told[-6:] == [
            "12:00:06  lost     worker 1 on host-b (pid 1234): its process was killed (SIGKILL); "
            "noticed after 0.30 s, about round 51",
            "12:00:06  start    worker 1 on host-c, 4 threads (replacement)",
            "12:00:06  reload   worker 1: 1,000,000 rows (replacement)",
            "12:00:10  load     worker 1: 1,000,000 rows in 3.4 s",
            "12:00:10  ring     2 members on 2 workers, training goes on after round 50",
            "12:00:10  recover  4.2 s, 1,000,000 rows reloaded, round 51 is next",
        ]
        assert not [line for line in told[:-6] if "ring" in line]  # that it begins goes without saying

    def test_a_loss_tells_what_is_known(self) -> None:
        [told] = lines(
            (0, "worker_lost", {"worker": 1, "host": "b", "phase": "load", "cause": "no answer", "noticed_after_s": 8})
        )
        assert told == "12:00:00  lost     worker 1 on b: no answer; noticed after 8.0 s, in phase load"

    def test_joining_and_leaving_are_told(self) -> None:
        assert lines(
            (1, "joined", {"worker": 2, "host": "host-c", "rows": 500_000, "round": 61}),
            (2, "leaving", {"worker": 2, "host": "host-c", "why": "its node is being drained"}),
        ) == [
            "12:00:01  joined   worker 2 on host-c: 500,000 rows from round 61 on",
            "12:00:02  leaving  worker 2 on host-c: its node is being drained",
        ]

    def test_what_goes_without_saying_is_not_said(self) -> None:
        assert not lines((1, "ring", {"members": 1, "workers": 1, "round": 0}))
        started: Step = (0, "run_started", {"run": "one", "directory": "/runs/one"})
        resumed: Step = (1, "resumed", {"round": 16, "from": "/runs/one"})
        assert lines(started, resumed)[1] == "12:00:01  resumed  after round 16"

    def test_checkpoints_are_not_worth_a_line(self) -> None:
        assert not lines((1, "checkpoint", {"round": 5, "seconds": 0.1}))

    def test_waiting_is_told_now_and_then(self) -> None:
        steps = [(i / 2, "waiting", {"why": "for 1 more worker", "limit_s": 300}) for i in range(240)]
        assert len(lines(*steps)) == 2
        counting = [(i / 2, "waiting", {"why": f"{300 - i / 2} s left", "limit_s": 300}) for i in range(60)]
        assert len(lines(*counting)) == 6

    def test_waiting_again_is_told_again(self) -> None:
        waiting = {"why": "for 1 more worker", "limit_s": 300}
        ring = {"members": 1, "workers": 1, "round": 3}
        assert len(lines((1, "waiting", waiting), (2, "ring", ring), (3, "waiting", waiting))) == 3

    def test_reloading_has_progress_and_a_newcomer_beside_the_training_has_none(self) -> None:
        progress = [
            (s, "worker_progress", {"worker": 1, "rows": s * 10_000, "total_rows": 1_000_000}) for s in range(12, 20)
        ]
        told = lines(*until_round_50(), *REPLACED, *progress)
        assert told[-1] == "12:00:17  recover  170,000 of 1,000,000 rows (17%), 53.7 s left"
        assert not [line for line in lines(*until_round_50(), *progress) if "rows (" in line or "rounds (" in line]

    def test_a_stopped_run_says_how_to_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        started: Step = (0, "run_started", {"run": "one", "directory": str(tmp_path / "runs/one")})
        assert lines(started, STOPPED)[-2:] == [
            "12:00:07  stopped  Interrupted.",
            "12:00:07  next     dray resume runs/one",
        ]
        assert "resume" not in "".join(lines(started, (7, "run_failed", {"error": "boom", "fix": ""})))

    def test_a_resumed_run_says_where_it_begins_and_counts_tenths_from_there(self) -> None:
        told = lines(
            (0, "run_started", {"run": "one", "directory": "runs/one", "config": {"rounds": 100}}),
            (1, "resumed", {"round": 50, "from": "checkpoints/round-000050.model"}),
            (1, "phase", {"name": "train"}),
            *((7, "round", {"round": i, "rounds": 100, "seconds": 0.1}) for i in range(51, 61)),
        )
        assert told[1] == "12:00:01  resumed  after round 50, from checkpoints/round-000050.model"
        assert told[2:] == ["12:00:07  train    round 60 of 100, 4.0 s left"]


class TestLiveView:
    def test_while_it_recovers_the_phase_says_so_and_the_worker_is_lost(self) -> None:
        progress = after(*until_round_50(), LOST)
        picture = drawn(progress, 8.0)
        for text in ("● recover 2.0 s", "○ train 5.0 s", "○ save", "50/100 rounds", "Failures  1 worker lost"):
            assert text in picture
        assert "ETA" not in picture
        assert row(picture, "host-b") == ["1", "host-b", "lost"]
        assert "checkpoint: round 50, 2 s ago" in picture

    def test_a_lost_worker_is_red(self) -> None:
        console = Console(file=io.StringIO(), width=110, height=30, force_terminal=True, color_system="standard")
        console.print(view(after(*until_round_50(), LOST), START + 8, console))
        assert "\x1b[1;31mlost" in console.file.getvalue()  # type: ignore[attr-defined]

    def test_a_replacement_shows_how_much_it_has_loaded(self) -> None:
        picture = drawn(after(*until_round_50(), *REPLACED), 8.0)
        assert row(picture, "host-c") == ["1", "host-c", "420,000", "reloading", "42%"]
        assert "420,000/1,000,000 rows" in picture

    def test_after_the_recovery_all_is_as_before_but_for_the_count(self) -> None:
        progress = after(*until_round_50(), *REPLACED, *RECOVERED)
        picture = drawn(progress, 11.2)
        for text in ("● train 6.0 s", "✓ recover 4.2 s", "1 worker lost, 4.2 s to recover, 1,000,000 rows reloaded"):
            assert text in picture
        assert row(picture, "host-c") == ["1", "host-c", "1,000,000"]
        assert "state" not in picture

    def test_a_worker_that_takes_over_rows_in_parts_keeps_its_own(self) -> None:
        def shown(kind: str, **data: Any) -> list[str]:
            progress.event(made_event(START + 8, kind, data))
            return row(drawn(progress, 8.0), "host-a")[2:]

        progress = after(*until_round_50(), LOST)
        assert shown("reload", worker=0, rows=600_000, why="takes over lost rows") == ["1,000,000", "reloading", "0%"]
        assert shown("reload", worker=0, rows=400_000, why="takes over lost rows") == ["1,000,000", "reloading", "0%"]
        told = {"worker": 0, "rows": 1_750_000, "total_rows": 2_000_000}
        assert shown("worker_progress", **told) == ["1,750,000", "reloading", "75%"]
        assert shown("worker_loaded", worker=0, rows=600_000) == ["1,750,000", "reloading", "75%"]
        assert shown("worker_loaded", worker=0, rows=400_000) == ["2,000,000", "reloaded"]
        assert shown("ring", members=3, workers=1, round=50) == ["2,000,000"]
        # Somebody joins and takes half of it.
        assert shown("worker_progress", worker=0, rows=1_000_000, total_rows=1_000_000) == ["1,000,000"]

    def test_rows_to_evaluate_on_do_not_count_once_all_is_loaded(self) -> None:
        told: Step = (7.0, "worker_progress", {"worker": 0, "rows": 1_250_000, "total_rows": 1_250_000})
        assert row(drawn(after(*until_round_50(), told), 8.0), "host-a") == ["0", "host-a", "1,000,000"]

    def test_joining_leaving_and_waiting_are_shown(self) -> None:
        joined: Step = (7.0, "joined", {"worker": 2, "host": "host-d", "rows": 500_000, "round": 61})
        leaving: Step = (7.0, "leaving", {"worker": 0, "host": "host-a", "why": "drained"})
        waiting: Step = (7.0, "waiting", {"why": "Waiting for 1 worker more.", "limit_s": 300})
        picture = drawn(after(*until_round_50(), joined, leaving, waiting), 8.0)
        assert row(picture, "host-d") == ["2", "host-d", "500,000", "joined"]
        assert row(picture, "host-a") == ["0", "host-a", "1,000,000", "leaving"]
        assert "Waiting  for 1 worker more." in picture
        ring: Step = (8.0, "ring", {"members": 3, "workers": 3, "round": 60})
        assert "Waiting" not in drawn(after(*until_round_50(), waiting, ring), 9.0)

    @pytest.mark.parametrize(("width", "height"), [(40, 14), (64, 24), (200, 60)])
    def test_it_fits_the_terminal_whatever_happens(self, width: int, height: int) -> None:
        many = [(5.0, "worker_started", {"worker": w, "host": f"host-{w}", "threads": 4}) for w in range(2, 300)]
        waiting: Step = (7.0, "waiting", {"why": "1 of 2 workers is there, " * 9, "limit_s": 300})
        picture = drawn(after(*until_round_50(), *many, *REPLACED, waiting), 9.0, width, height).splitlines()
        assert all(len(line) <= width for line in picture)
        assert len(picture) <= height

    def test_a_stopped_run_leaves_the_command_to_go_on(self) -> None:
        text = ended(after(*until_round_50(), STOPPED))
        assert "■ Stopped after 7.0 s in phase train" in text
        assert "To go on: dray resume runs/one" in text
        assert "resume" not in ended(after(*until_round_50(), (7, "run_failed", {"error": "boom", "fix": ""})))


RESULT = {"rounds": 100, "seconds": {"train": 10.0, "recovery": 6.1, "total": 12.0}, "metrics": {"eval-auc": 0.9}}


class TestSummary:
    def finished(self, **result: Any) -> Step:
        return (12.0, "run_finished", {"result": RESULT | result})

    def test_failures_are_summed_up(self) -> None:
        text = ended(after(self.finished(failures=2, rows_reloaded=1_000_000)))
        assert "Failures  2 workers lost, 6.1 s to recover, 1,000,000 rows reloaded" in text
        assert "12.0 s (train 10.0 s)" in text

    def test_a_result_that_says_little_leaves_what_was_seen(self) -> None:
        text = ended(after(*until_round_50(), *REPLACED, *RECOVERED, self.finished(seconds={"total": 12.0})))
        assert "1 worker lost, 4.2 s to recover, 1,000,000 rows reloaded" in text

    def test_without_failures_there_is_no_such_line(self) -> None:
        assert "Failures" not in ended(after(self.finished(failures=0, rows_reloaded=0)))

    def test_a_resumed_run_calls_best_only_what_is_best_of_all(self) -> None:
        resumed = {"round": 50, "from": "x"}
        later: Step = (5.0, "round", {"round": 51, "rounds": 100, "metrics": {"eval-auc": 0.5}})
        earlier = [{"round": 40, "metrics": {"eval-auc": 0.8}}]
        text = ended(after((1, "resumed", resumed), later, self.finished()))
        assert "Metric  eval-auc 0.90000" in text.replace("    ", "  ").replace("   ", "  ")
        text = ended(after((1, "resumed", resumed | {"rounds": earlier}), later, self.finished()))
        assert "eval-auc 0.90000, round 100, saved" in text  # round 40 was not better


def test_a_worker_that_vanished_from_the_samples_uses_nothing() -> None:
    def sample(second: float, worker: int) -> Sample:
        return Sample(START + second, worker, "h", 2.0, 10**9, 50, 0, 0)

    progress = after(*until_round_50())
    progress.sample([sample(1, 0), sample(1, 1)])
    progress.sample([sample(4, 0)])
    assert progress.workers[1].cores == 2.0  # a moment's silence
    progress.sample([sample(7, 0)])
    assert [progress.workers[worker].cores for worker in (0, 1)] == [2.0, None]
    assert progress.workers[1].memory_bytes is None
    progress.event(made_event(START + 8, "worker_lost", {"worker": 0}))
    progress.sample([sample(8, 0)])
    assert (progress.workers[0].state, progress.workers[0].cores) == ("lost", None)
