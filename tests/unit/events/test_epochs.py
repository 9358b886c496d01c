"""What a recommender's training says, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dray.events.epochs import describe_epoch, describe_pairs, describe_repetition, describe_unknown
from dray.events.format import brief
from dray.events.kinds import PairsFound, StepFinished, StepRepeated, UnknownEvent
from dray.events.metrics import higher_is_better
from dray.events.run_view import RunView
from made_events import made_event

EPOCH: dict[str, Any] = {
    "round": 3,
    "rounds": 20,
    "seconds": 1.21,
    "metrics": {"train-rmse": 0.871, "eval-rmse": 0.902},
    "workers": [
        {"worker": 0, "host": "host-a", "rows_per_second": 8_123_456.0},
        {"worker": 1, "host": "host-b", "rows_per_second": 8_000_000.0},
    ],
}


def after(*steps: tuple[float, str, dict[str, object]]) -> RunView:
    progress = RunView()
    for time, kind, data in steps:
        progress.event(made_event(time, kind, data))
    return progress


def started(**config: Any) -> tuple[float, str, dict[str, object]]:
    return 0, "run_started", {"run": "one", "directory": "runs/one", "config": {"rounds": 20, **config}}


def epoch(**data: Any) -> StepFinished:
    event = made_event(0, "round", data)
    assert isinstance(event, StepFinished)
    return event


def test_an_epoch_tells_its_metrics_its_time_and_the_pace_of_each_worker() -> None:
    assert describe_epoch(epoch(**EPOCH), "ratings", alone=False) == (
        "epoch 3 of 20, train-rmse 0.87100, eval-rmse 0.90200, 1.2 s; "
        "worker 0 on host-a 8.1M ratings/s, worker 1 on host-b 8.0M ratings/s"
    )


def test_of_many_metrics_an_epoch_tells_the_one_that_decides() -> None:
    ranking = {"eval-recall@5": 0.1, "eval-ndcg@5": 0.2, "eval-map@5": 0.3, "eval-ndcg@10": 0.4}
    events = describe_epoch(epoch(round=1, metrics=ranking), "pairs", alone=True)
    assert events == "epoch 1, eval-ndcg@5 0.20000"
    ratings = describe_epoch(epoch(round=1, metrics=EPOCH["metrics"] | ranking), "ratings", alone=True)
    assert ratings == "epoch 1, train-rmse 0.87100, eval-rmse 0.90200"


def test_in_one_process_it_names_no_worker() -> None:
    alone = EPOCH | {"workers": EPOCH["workers"][:1]}
    assert describe_epoch(epoch(**alone), "pairs", alone=True).endswith("0.90200, 1.2 s, 8.1M pairs/s")


def test_it_says_what_it_knows() -> None:
    assert describe_epoch(epoch(round=2), "pairs", alone=False) == "epoch 2"
    told = describe_epoch(epoch(round=2, rounds=3, seconds=4, metrics={"eval-rmse": None}), "pairs", alone=True)
    assert told == "epoch 2 of 3, 4.0 s"


def test_events_tell_their_types_and_where_they_were_read() -> None:
    found = PairsFound(rows=1_000_000, pairs=800_000, users=5_000, items=300, by_host={}, types={})
    assert describe_pairs(found) == "1,000,000 rows: 800,000 pairs of 5,000 users and 300 items"
    assert describe_pairs(replace(found, by_host={"host-a": 1_000_000})) == describe_pairs(found)
    types, by_host = {"purchase": 10, "view": 999_990}, {"host-a": 400_000, "host-b": 600_000}
    assert describe_pairs(replace(found, types=types, by_host=by_host)).endswith(
        " items; view 999,990, purchase 10; host-a 400,000 rows, host-b 600,000 rows"
    )


def test_one_of_anything_is_told_in_the_singular() -> None:
    assert describe_pairs(PairsFound(1, 1, 1, 1, {}, {})) == "1 row: 1 pair of 1 user and 1 item"


def test_a_divergence_says_why_and_what_follows() -> None:
    told = describe_repetition(StepRepeated(3, 0.00375, "its factors are not finite."))
    assert told == "epoch 3: its factors are not finite; it is done again with a learning rate of 0.00375"


def test_an_event_of_a_newer_dray_is_told_as_it_is() -> None:
    assert describe_unknown(UnknownEvent("moved", {"worker": 1, "to": "host-b"})) == "worker 1, to host-b"
    assert len(describe_unknown(UnknownEvent("moved", {"x": "y" * 1000}))) == 201


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (812.4, "812"), (8_123, "8.1k"), (81_234, "81k"), (999_499, "999k"), (999_600, "1.0M")),
        *((8_123_456, "8.1M"), (812_345_678, "812M"), (1.5e9, "1.5G")),
    ],
)
def test_large_numbers_are_brief(value: float, text: str) -> None:
    assert brief(value) == text


def test_a_step_and_rows_are_called_what_the_run_calls_them() -> None:
    assert after(started()).word == "round"
    assert after(started(), (1, "data", {"rows": 3})).rows_are == "rows"
    begun = (0.0, "run_started", {"step": "epoch"})
    assert after(begun).word == "epoch"
    assert after(begun, (1, "events", {"noun": "ratings"})).rows_are == "ratings"


def test_progress_keeps_the_newest_epoch_and_each_workers_pace() -> None:
    progress = after(
        (0, "run_started", {"step": "epoch"}),
        (1, "worker_started", {"worker": 0, "host": "host-a"}),
        (1, "worker_started", {"worker": 1, "host": "host-b"}),
        (2, "phase", {"name": "train"}),
        (3, "round", EPOCH),
        (4, "round", EPOCH | {"round": 4, "workers": EPOCH["workers"][:1]}),
    )
    assert progress.epoch is not None and progress.epoch.round == 4
    assert progress.workers[0].rows_per_second == pytest.approx(8_123_456)
    assert progress.workers[1].rows_per_second is None
    bar = progress.bar(4)
    assert bar is not None
    assert (bar.done, bar.total, bar.unit) == (4, 20, "epochs")


def test_a_metric_without_a_value_is_passed_over() -> None:
    progress = after(started(model="factorization"), (1, "round", EPOCH | {"metrics": {"eval-rmse": None}}))
    assert progress.metrics == progress.best == {}


@pytest.mark.parametrize("name", ["eval-recall@10", "eval-ndcg@5", "eval-map@10", "eval-coverage@10"])
def test_ranking_improves_upwards(name: str) -> None:
    assert higher_is_better(name)
    assert not higher_is_better("eval-rmse")
