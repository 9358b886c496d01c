"""A recommender's run on a terminal and in a log."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from dray.events.kinds import Event
from dray.events.run_view import RunView
from dray.events.sinks.live import ending, view
from dray.events.sinks.terminal import PlainLines
from made_events import made_event

START = 1_700_000_000.0
EVENTS = {
    "rows": 1_000,
    "pairs": 800,
    "users": 50,
    "items": 30,
    "by_host": {"a": 600, "b": 400},
    "types": {"view": 9},
    "noun": "ratings",
}
RESULT: dict[str, Any] = {
    "run": "one",
    "directory": "runs/one",
    "model": "runs/one/model",
    "model_digest": "sha256:0123456789abcdef",
    "learner": "factorization",
    "objective": "explicit",
    "rows": 1_000,
    "pairs": 800,
    "users": 50,
    "items": 30,
    "factors": 16,
    "workers": 2,
    "rounds": 4,
    "best_round": 3,
    "seconds": {"start": 1.0, "load": 5.0, "train": 10.0, "total": 16.5},
    "metrics": {"eval-rmse": 0.9, "eval-ndcg@10": 0.25},
    "threads": [],
}


def epoch(number: int, workers: int = 2) -> dict[str, Any]:
    told = [{"worker": worker, "host": f"host-{worker}", "rows_per_second": 8e6 + worker} for worker in range(workers)]
    metrics = {"train-rmse": 1 - number / 100, "eval-rmse": 1 - number / 200}
    return {"round": number, "rounds": 4, "seconds": 1.25, "metrics": metrics, "workers": told}


def run(workers: int = 2, **config: Any) -> list[Event]:
    values = {"model": "factorization", "rounds": 4, "rating": "stars", **config}
    members = max(1, workers)
    steps: list[tuple[float, str, dict[str, Any]]] = [
        (0, "run_started", {"run": "one", "directory": "runs/one", "config": values, "step": "epoch"}),
        (0, "phase", {"name": "prepare"}),
        (1, "data", {"rows": 1_000, "files": 2, "bytes": 4_000}),
        *((1, "worker_started", {"worker": w, "host": f"host-{w}", "pid": -w, "threads": 1}) for w in range(members)),
        (2, "phase", {"name": "load"}),
        (3, "events", EVENTS),
        (3, "decided", {"workers": workers, "threads": 1, "objective": "explicit", "reasons": []}),
        (3, "phase", {"name": "train"}),
        (4, "round", epoch(1, members)),
        (5, "round", epoch(2, members)),
        (6, "diverged", {"round": 3, "learning_rate": 0.00375, "why": "its factors are not finite"}),
        (7, "round", epoch(3, members)),
    ]
    return [made_event(START + offset, kind, data) for offset, kind, data in steps]


FINISHED = made_event(START + 20, "run_finished", {"result": RESULT})


def lines(*events: Event) -> list[str]:
    stream = io.StringIO()
    sink = PlainLines(stream)
    for event in events:
        sink.event(event)
    return [line[10:] for line in stream.getvalue().splitlines()]


def drawn(events: list[Event], width: int = 110) -> str:
    progress = RunView()
    for event in events:
        progress.event(event)
    console = Console(file=io.StringIO(), width=width, height=30, record=True)
    picture = view(progress, START + 8, console) if progress.result is None else ending(progress, START + 20)
    console.print(picture)
    return console.export_text()


def test_every_epoch_is_a_line_with_the_pace_of_each_worker() -> None:
    told = [line for line in lines(*run()) if line.startswith("train")]
    assert len(told) == 3
    assert told[0] == (
        "train    epoch 1 of 4, train-rmse 0.99000, eval-rmse 0.99500, 1.2 s; "
        "worker 0 on host-0 8.0M ratings/s, worker 1 on host-1 8.0M ratings/s"
    )


def test_one_process_names_no_worker() -> None:
    told = [line for line in lines(*run(workers=0)) if line.startswith("train")]
    assert told[0].endswith("1.2 s, 8.0M ratings/s")


def test_what_the_rows_came_to_and_what_diverged_are_lines() -> None:
    told = lines(*run())
    assert "data     1,000 rows in 2 files (4.0 kB)" in told
    assert "events   1,000 rows: 800 pairs of 50 users and 30 items; view 9; a 600 rows, b 400 rows" in told
    [line] = [line for line in told if line.startswith("diverged")]
    assert line == "diverged epoch 3: its factors are not finite; it is done again with a learning rate of 0.00375"


def test_losses_and_resumptions_speak_of_epochs() -> None:
    after = [
        ("worker_lost", {"worker": 1, "host": "host-1", "cause": "it was killed", "round": 4}),
        ("recovered", {"round": 3, "seconds": 2.0, "rows_reloaded": 400, "workers": 1}),
        ("joined", {"worker": 2, "host": "host-2", "rows": 400, "round": 4}),
        ("ring", {"members": 2, "workers": 2, "round": 3}),
        ("resumed", {"round": 3, "rounds": []}),
    ]
    told = lines(*run(), *(made_event(START + 9, kind, data) for kind, data in after))[-5:]
    assert all("epoch" in line and "round" not in line for line in told), told


def test_the_summary_says_what_was_learnt_and_how_to_recommend() -> None:
    told = lines(*run(), FINISHED)
    assert "epochs   4 on 800 ratings, 50 users x 30 items, 16 factors, on 2 workers" in told
    assert "metric   eval-rmse 0.90000, eval-ndcg@10 0.25000, at epoch 3" in told
    assert told[-1] == "next     dray recommend runs/one --top 10 --out DIR"
    last = made_event(
        START + 20, "run_finished", {"result": RESULT | {"objective": "implicit", "best_round": 4, "workers": 0}}
    )
    told = lines(*run(), last)
    assert "epochs   4 on 800 pairs, 50 users x 30 items, 16 factors, in this process" in told
    assert "metric   eval-rmse 0.90000, eval-ndcg@10 0.25000" in told


TIMES = {"start": 3.2, "load": 5.0, "train": 10.0, "total": 20.5, "copy": 1.8}
COPY = [
    made_event(START + 1, "phase", {"name": "ingest"}),
    made_event(START + 1, "phase", {"name": "plan"}),
    made_event(START + 2, "phase", {"name": "ingest"}),
    made_event(START + 2.5, "progress", {"done": 1, "total": 1, "unit": "rows"}),
    made_event(START + 2.75, "copied", {"source": "e.jsonl", "format": "json", "copy": "c", "made": True, "rows": 1}),
]


def test_the_time_of_copying_stands_apart() -> None:
    first, rest = run()[:2], run()[2:]
    told = lines(*first, *COPY, *rest, made_event(START + 20, "run_finished", {"result": RESULT | {"seconds": TIMES}}))
    assert "time     20.5 s (copy 1.8 s, start 3.2 s, load 5.0 s, train 10.0 s)" in told
    assert "data     e.jsonl is json: copied to Parquet in c, 1 row" in told
    assert "   ✓ copy 1.8 s   ○ start   ● load" in drawn([*first, *COPY, *rest[:4]])
    assert "● copy" in drawn([*first, *COPY[:2]])


def test_what_is_done_has_no_time_left() -> None:
    done = made_event(START + 30, "progress", {"done": 1, "total": 1, "unit": "users"})
    assert lines(made_event(START, "phase", {"name": "recommend"}), done) == ["recommend 1 of 1 user (100%)"]
    assert "ETA" not in drawn([made_event(START, "phase", {"name": "recommend"}), done])


def test_the_live_view_shows_the_newest_epoch() -> None:
    picture = drawn(run())
    for text in ("3/4 epochs", "1.2 s/epoch", "epoch 3, 1.2 s, 16M ratings/s", "eval-rmse", "at epoch 3", "ratings/s"):
        assert text in picture
    assert "1,000 rows: 800 pairs of 50 users and 30 items" in picture
    assert "Diverged  epoch 3: its factors are not finite" in picture
    assert "round" not in picture
    rows = [line.split() for line in picture.splitlines()]
    assert ["0", "host-0", "8.0M"] in rows


def test_the_live_view_fits_a_narrow_terminal() -> None:
    assert all(len(line) <= 60 for line in drawn(run(), width=60).splitlines())


def test_the_live_view_ends_with_the_summary() -> None:
    picture = drawn([*run(), FINISHED])
    assert "dray recommend runs/one --top 10 --out DIR" in picture
    assert "Epochs" in picture and "Rounds" not in picture
