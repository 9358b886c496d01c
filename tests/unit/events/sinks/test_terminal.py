"""What a run looks like on a terminal and in a log."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from dray.events.kinds import Event
from dray.events.run_view import RunView
from dray.events.sinks import live
from dray.events.sinks.live import LiveView, ending, view
from dray.events.sinks.terminal import PlainLines, terminal
from dray.events.telemetry import DRIVER, Sample, Sink
from made_events import made_event

START = 1_700_000_000.0
RESULT = {
    "run": "one",
    "directory": "runs/one",
    "model": "runs/one/model.ubj",
    "model_digest": "sha256:0123456789abcdef",
    "learner": "xgboost",
    "rows": 1_000_000,
    "features": 100,
    "workers": 2,
    "rounds": 100,
    "best_round": 90,
    "seconds": {"start": 1.0, "load": 5.0, "train": 10.0, "total": 16.5},
    "metrics": {"eval-auc": 0.79},
    "verdict": "eval-auc 0.79000 (always the base rate: 0.50000): better",
    "threads": [
        {"worker": 0, "host": "a", "decided": 4, "used": 3.8, "ok": True},
        {"worker": 1, "host": "b", "decided": 4, "used": 1.0, "ok": False},
    ],
    "peak_memory_bytes": 2_000_000_000,
    "failures": 0,
}


def loading(workers: int = 2) -> list[Event]:
    steps: list[tuple[float, str, dict[str, object]]] = [
        (0.0, "run_started", {"run": "one", "directory": "runs/one", "config": {}}),
        (0.0, "phase", {"name": "prepare"}),
        (0.5, "data", {"rows": 1_000_000, "features": 100, "files": 16, "row_groups": 64, "bytes": 412_000_000}),
        (0.5, "phase", {"name": "start"}),
        *((1.0, "worker_started", {"worker": w, "host": f"host-{w}", "pid": -w, "threads": 4}) for w in range(workers)),
        (1.5, "phase", {"name": "load"}),
        *(
            (1.5 + i / 4, "worker_progress", {"worker": w, "rows": i * 100, "total_rows": 100_000})
            for i in range(100)
            for w in range(workers)
        ),
    ]
    return [made_event(START + offset, kind, data) for offset, kind, data in steps]


def training(rounds: int = 60) -> list[Event]:
    steps: list[tuple[float, str, dict[str, object]]] = [
        (30.0, "worker_loaded", {"worker": 0, "rows": 500_000, "seconds": 28.0}),
        (30.0, "worker_loaded", {"worker": 1, "rows": 500_000, "seconds": 28.0}),
        (30.0, "decided", {"workers": 2, "threads": 4, "objective": "binary:logistic", "reasons": ["because"]}),
        (30.0, "phase", {"name": "train"}),
        *(
            (30.0 + i / 10, "round",
             {"round": i, "rounds": 100, "seconds": 0.1, "metrics": {"eval-auc": 0.8 - abs(i - 50) / 1000}})
            for i in range(1, rounds + 1)
        ),
        (36.0, "warning", {"message": "Worker 1 uses 1.0 of 4 cores.", "fix": "Unset OMP_NUM_THREADS."}),
    ]  # fmt: skip
    return [made_event(START + offset, kind, data) for offset, kind, data in steps]


FINISHED = made_event(START + 40, "run_finished", {"result": RESULT})
SAMPLES = [
    Sample(START, 0, "host-0", 3.8, 412_000_000, 90, 0, 0),
    Sample(START, 1, "host-1", 1.0, 400_000_000, 90, 0, 0),
    Sample(START, DRIVER, "laptop", 0.1, 250_000_000, 90, 0, 0),
]


def drawn(events: list[Event], now: float, width: int = 100, height: int = 30) -> str:
    progress = RunView()
    for event in events:
        progress.event(event)
    progress.sample(SAMPLES)
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(view(progress, START + now, console))
    return console.export_text()


class TestLiveView:
    def test_while_loading_it_shows_phase_rows_and_workers(self) -> None:
        picture = drawn(loading(), 26.5)
        for text in ("one", "0:26", "✓ prepare", "✓ start", "● load", "○ train", "○ save"):
            assert text in picture
        assert "1,000,000 rows x 100 features in 16 files (412 MB)" in picture
        assert "19,800/1,000,000 rows" in picture
        assert "ETA" in picture
        rows = [line.split() for line in picture.splitlines()]
        assert ["0", "host-0", "9,900", "10%", "■■■■■■■■", "3.8", "of", "4", "412", "MB"] in rows
        assert ["driver", "laptop", "0.1", "250", "MB"] in rows

    def test_while_training_it_shows_rounds_metric_best_and_warnings(self) -> None:
        picture = drawn(loading() + training(), 36.0)
        for text in ("● train", "60/100 rounds", "ETA 0:04", "0.10 s/round", "eval-auc", "0.79000"):
            assert text in picture
        assert "best 0.80000 at round 50" in picture
        assert "2 workers x 4 threads, binary:logistic" in picture
        assert "! Worker 1 uses 1.0 of 4 cores. Unset OMP_NUM_THREADS." in picture

    @pytest.mark.parametrize(("width", "height"), [(40, 12), (64, 24), (200, 60)])
    def test_it_fits_the_terminal_however_many_workers(self, width: int, height: int) -> None:
        picture = drawn(loading(workers=300), 26.5, width, height)
        assert all(len(line) <= width for line in picture.splitlines())
        assert len(picture.splitlines()) <= height
        assert "more" in picture

    def test_it_draws_on_a_terminal_and_leaves_the_summary(self) -> None:
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, width=100, height=30, color_system=None)
        sink = LiveView(stream, console)
        for event in loading() + training():
            sink.event(event)
        sink.sample(SAMPLES)
        deadline = time.monotonic() + 5
        while "60/100 rounds" not in stream.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        sink.event(FINISHED)
        sink.close()
        sink.close()
        text = stream.getvalue()
        assert text.count("Done in") == 1
        assert text.rindex("Done in") > text.rindex("60/100 rounds")
        assert "\x1b[?25h" in text  # the cursor is back

    def test_it_does_not_draw_more_often_than_it_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawings = []
        monkeypatch.setattr(live, "view", lambda progress, now, console: drawings.append(now) or "")
        sink = LiveView(io.StringIO())
        started = time.monotonic()
        while time.monotonic() - started < 1.2:
            sink.event(made_event(time.time(), "round", {"round": 1, "rounds": 10}))
            time.sleep(0.005)
        sink.close()
        took_s = time.monotonic() - started  # the machine may be busy
        assert len(drawings) <= took_s / live.REFRESH_S + 2

    def test_a_failure_to_draw_reaches_the_reporter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> None:
            raise OSError("terminal is gone")

        monkeypatch.setattr(live, "view", broken)
        sink = LiveView(io.StringIO())
        sink.event(made_event(START, "phase", {"name": "load"}))
        sink._drawer.join(5)
        with pytest.raises(OSError, match="terminal is gone"):
            sink.event(made_event(START, "phase", {"name": "train"}))
        sink.close()


def ended(*events: Event) -> str:
    progress = RunView()
    for event in events:
        progress.event(event)
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(ending(progress, START + 50))
    return console.export_text()


class TestEnding:
    def test_a_finished_run_says_what_came_of_it_and_what_is_next(self) -> None:
        text = " ".join(ended(*loading(), *training(), FINISHED).split())
        for part in (
            "Done in 40.0 s",
            "100 on 1,000,000 rows x 100 features, on 2 workers",
            "eval-auc 0.79000, round 100, saved; best was 0.80000 at round 50: --early-stop 10 would keep it",
            "eval-auc 0.79000 (always the base rate: 0.50000): better",
            "16.5 s (start 1.0 s, load 5.0 s, train 10.0 s)",
            "4.8 used of 8 decided; too few on worker 1",
            "2.0 GB at most",
            "runs/one/model.ubj (sha256:0123456789abcdef)",
            "dray predict runs/one DATA OUT",
            "! Worker 1 uses 1.0 of 4 cores.",
        ):
            assert part in text

    @pytest.mark.parametrize(
        ("metrics", "best", "words"),
        [
            ({"eval-rmse": 0.5}, 7, "eval-rmse 0.50000, round 7 of 100, saved"),
            ({"eval-rmse": 0.6}, 7, "round 100, saved; best was 0.50000 at round 7: --early-stop 10 would keep it"),
            ({"eval-mae": 0.1, "eval-rmse": 0.6}, 7, "; best eval-rmse was 0.50000 at round 7"),
            ({"eval-rmse": 0.5}, 100, "eval-rmse 0.50000, round 100, saved"),
            ({"eval-rmse": 0.4}, 7, "eval-rmse 0.40000, round 100, saved"),
        ],
    )
    def test_the_last_words_are_about_the_model_that_was_saved(
        self, metrics: dict[str, float], best: int, words: str
    ) -> None:
        step = made_event(START, "round", {"round": best, "rounds": 100, "metrics": {"eval-rmse": 0.5}})
        result = RESULT | {"metrics": metrics}
        text = ended(step, made_event(START, "run_finished", {"result": result}))
        assert words in " ".join(text.split()).partition(" Verdict")[0] + " "
        assert "best" in words or "best" not in text

    def test_the_patience_it_names_would_have_reached_the_best_round(self) -> None:
        better_at = {1: 0.9, 2: 0.8, 27: 0.7, 30: 0.6}
        steps = [
            made_event(START, "round", {"round": i, "rounds": 100, "metrics": {"eval-rmse": better_at.get(i, 1.0)}})
            for i in range(1, 101)
        ]
        result = RESULT | {"metrics": {"eval-rmse": 1.0}}
        text = " ".join(ended(*steps, made_event(START, "run_finished", {"result": result})).split())
        assert "best was 0.60000 at round 30: --early-stop 30 would keep it" in text

    def test_without_an_evaluation_it_says_how_to_get_one(self) -> None:
        result = {name: value for name, value in RESULT.items() if name != "verdict"} | {"metrics": {}, "eval_rows": 0}
        text = ended(made_event(START, "run_finished", {"result": result}))
        assert "--eval-fraction 0.2 tells how good it is" in " ".join(text.split())

    def test_paths_below_the_working_directory_are_as_one_would_type_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        result = RESULT | {"directory": str(tmp_path / "runs/two"), "model": str(tmp_path / "runs/two/model.ubj")}
        assert "dray predict runs/two DATA OUT" in ended(made_event(START, "run_finished", {"result": result}))

    def test_a_prediction_has_its_own_summary(self) -> None:
        result = {"rows": 5000, "seconds": 2.0, "rows_per_second": 2500.0, "peak_memory_bytes": 10**8, "output": "out"}
        text = ended(made_event(START, "run_finished", {"result": result}))
        for part in ("5,000", "2.0 s (2,500 rows a second)", "100 MB at most", "out"):
            assert part in text
        assert "dray predict" not in text

    def test_a_failed_run_says_in_which_phase(self) -> None:
        text = ended(*loading(), made_event(START + 20, "run_failed", {"error": "boom", "fix": ""}))
        assert "Failed after 20.0 s in phase load" in text


class TestPlainLines:
    def lines(self, events: list[Event]) -> list[str]:
        stream = io.StringIO()
        sink = PlainLines(stream)
        for event in events:
            sink.event(event)
        sink.sample(SAMPLES)
        sink.close()
        return stream.getvalue().splitlines()

    def test_progress_comes_every_five_seconds_at_most(self) -> None:
        lines = [line for line in self.lines(loading()) if " left" in line]
        assert len(lines) == 4

    def test_rounds_come_every_tenth(self) -> None:
        lines = [line for line in self.lines(training(100)) if "round " in line]
        assert len(lines) == 10
        assert "round 60 of 100, eval-auc 0.79000 (best 0.80000 at round 50), 4.0 s left" in lines[5]

    def test_a_short_run_is_told_by_its_summary(self) -> None:
        steps: list[tuple[float, str, dict[str, object]]] = [
            (0.0, "phase", {"name": "start", "alone": True}),
            (0.0, "worker_started", {"worker": 0, "host": "a", "pid": 1, "threads": 2}),
            (0.1, "worker_loaded", {"worker": 0, "rows": 2000, "seconds": 0.1}),
            (0.1, "decided", {"workers": 0, "threads": 2, "objective": "binary:logistic",
             "reasons": ["workers: this process (why)", "threads: 2", "objective: binary (two values)"]}),
            (0.1, "phase", {"name": "train"}),
            *((0.1, "round", {"round": i, "rounds": 100, "metrics": {"eval-auc": 0.8}}) for i in range(1, 101)),
            (0.3, "threads", {"worker": 0, "host": "a", "decided": 2, "used": 0.4, "ok": True}),
            (0.3, "phase", {"name": "save"}),
        ]  # fmt: skip
        told = [line[10:] for line in self.lines([made_event(START + after, *step) for after, *step in steps])]
        assert told == [
            "load     2,000 rows in 0.10 s",
            "decided  this process, 2 threads, binary:logistic",
            "         objective: binary (two values)",
        ]

    def test_rounds_without_a_metric_are_told_every_five_seconds(self) -> None:
        events = [made_event(START, "phase", {"name": "train"})]
        events += [made_event(START + i / 10, "round", {"round": i, "rounds": 100}) for i in range(1, 101)]
        assert [line.split("round ")[1][:2] for line in self.lines(events)] == ["50", "10"]

    def test_slow_rounds_come_every_minute(self) -> None:
        events = [made_event(START, "phase", {"name": "train"})]
        events += [
            made_event(START + 20 * i, "round", {"round": i, "rounds": 1000, "seconds": 20.0}) for i in range(1, 31)
        ]
        assert len([line for line in self.lines(events) if "round " in line]) == 10

    def test_every_line_has_the_time_and_no_escape_codes(self) -> None:
        lines = self.lines([*loading(), *training(), FINISHED])
        assert all(line[2] == ":" and line[5] == ":" for line in lines)
        assert not any("\x1b" in line for line in lines)
        assert any(line.endswith("dray predict runs/one DATA OUT") for line in lines)
        assert any("warning" in line and "Unset OMP_NUM_THREADS." in line for line in lines)


def test_a_log_or_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def kind(live: bool, encoding: str = "utf-8") -> type[Sink]:
        sink = terminal(io.TextIOWrapper(io.BytesIO(), encoding=encoding), live)
        sink.close()
        return type(sink)

    monkeypatch.setenv("TERM", "xterm")
    assert kind(live=False) is PlainLines
    assert kind(live=True) is LiveView
    assert kind(live=True, encoding="ascii") is PlainLines
    monkeypatch.setenv("TERM", "dumb")
    assert kind(live=True) is PlainLines
