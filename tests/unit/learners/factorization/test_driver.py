"""Training of a recommender in this process: what it equals, how it is measured, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.errors import ConfigError, DataError, DrayError, ModelError
from dray.learners.configs import make_config
from dray.learners.factorization import checkpointing
from dray.learners.factorization import split as splitting
from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.factors import Factors
from dray.learners.factorization.measuring import list_baseline, poor
from dray.learners.factorization.result import FactorResult
from dray.runs.directory import open_run
from dray.training import train as training
from factor_group import Call, FactorGroup, together, train_alone, train_together
from rating_files import EXPLICIT, IMPLICIT, ROLES, ROWS, as_ratings, rated, write
from serial_factorization import fit_explicit
from whole_evaluation import ranking_quality, rating_errors


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return rated()


@pytest.fixture(scope="module")
def data(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "rows.parquet", table)


def without_repeats(table: pa.Table) -> pa.Table:
    pairs = list(zip(table["u"].to_pylist(), table["i"].to_pylist(), strict=True))
    last = {pair: row for row, pair in enumerate(pairs)}
    return table.take(sorted(last.values()))


def fit(values: dict[str, Any], **settings: Any) -> FactorResult:
    return train_alone(values | settings)[0]


# What it equals


def same_bits(left: Factors, right: Factors) -> bool:
    names = ("users", "items", "user_bias", "item_bias")
    return left.mean == right.mean and all(
        getattr(left, name).tobytes() == getattr(right, name).tobytes() for name in names
    )


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", [0, 7])
def test_ratings_give_the_factors_of_the_serial_replay_bit_for_bit(table: pa.Table, seed: int, workers: int) -> None:
    pairs = without_repeats(table)
    asked = EXPLICIT | {"data": write(Path("pairs.parquet"), pairs), "seed": seed, "out": "run"}
    result = train_together(asked, workers)[0] if workers else fit(asked)
    serial = fit_explicit(as_ratings(pairs), ExplicitSettings(factors=8, epochs=4, seed=seed))
    assert same_bits(result.loaded.factors, serial.factors)
    assert result.metrics["train-rmse"] == pytest.approx(serial.epochs[-1].train_rmse, rel=1e-12)


def test_the_files_and_row_groups_that_rows_are_in_do_not_matter(table: pa.Table) -> None:
    whole = fit(EXPLICIT, data=write(Path("whole.parquet"), table, 5000), out="a")
    for number, piece in enumerate((slice(0, 1000), slice(1000, 1500), slice(1500, None))):
        write(Path("pieces", f"{number}.parquet"), table[piece], 130)
    assert fit(EXPLICIT, data="pieces", out="b").model_digest == whole.model_digest


def test_the_model_knows_every_pair_with_the_rating_that_counts(table: pa.Table, data: str) -> None:
    model = fit(EXPLICIT, data=data, out="run").loaded
    rows = (table[name].to_pylist() for name in ("u", "i", "r"))
    last = {(user, item): np.float32(value) for user, item, value in zip(*rows, strict=True)}
    seen = model.seen
    assert seen.values is not None
    users = np.repeat(np.arange(len(model.user_ids)), np.diff(seen.starts))
    found = {
        (model.user_ids[int(user)].as_py(), model.item_ids[int(item)].as_py()): value
        for user, item, value in zip(users, seen.items, seen.values, strict=True)
    }
    assert found == last


# How it is measured


def indices(table: pa.Table) -> tuple[Any, Any]:
    return tuple(np.unique(table[name].to_numpy(), return_inverse=True)[1].astype(np.int32) for name in ("u", "i"))


def test_errors_and_rankings_are_those_of_the_whole(table: pa.Table, data: str) -> None:
    asked = EXPLICIT | {"data": data, "eval_fraction": 0.2, "eval_at": [5, 10], "out": "run"}
    result, _, _ = train_together(asked, 3)
    users, items = indices(table)
    test = splitting.at_random(users, items, 0.2, 0)
    # Of a pair that is rated several times, all are on one side, and the last one counts.
    last = {(int(users[row]), int(items[row])): row for row in np.flatnonzero(test)}
    rows = np.array(sorted(last.values()))
    model, values = result.loaded, table["r"].to_numpy().astype(np.float32)
    errors = rating_errors(model.factors, users[rows], items[rows], values[rows], model.limits)
    assert result.metrics["eval-rmse"] == pytest.approx(errors.rmse, rel=1e-9)
    assert result.metrics["eval-mae"] == pytest.approx(errors.mae, rel=1e-9)
    of_mean = np.sqrt(np.mean(np.square(values[rows].astype(np.float64) - model.factors.mean)))
    assert result.baseline["eval-rmse"] == pytest.approx(of_mean, rel=1e-9)
    assert result.baseline["eval-ndcg@5"] == result.metrics["popular-ndcg@5"]
    assert result.verdict.startswith("eval-rmse ") and "(always the mean: " in result.verdict
    assert model.limits == (float(values[~test].min()), float(values[~test].max()))
    quality = ranking_quality(model.factors, model.seen, users[rows], items[rows], (5, 10))
    for at in quality.at:
        for name in ("recall", "ndcg", "map", "coverage"):
            assert result.metrics[f"eval-{name}@{at.k}"] == pytest.approx(getattr(at, name), rel=1e-9)
    assert result.evaluation["users"] == quality.users
    assert result.evaluation["pairs"] == quality.pairs == len(rows)
    assert result.eval_rows == int(test.sum())


def test_a_model_of_ratings_that_is_worse_than_their_mean_says_so(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    noise = pa.table({"u": random.integers(0, 100, 2000), "i": random.integers(0, 50, 2000)})
    noise = noise.append_column("r", pa.array(random.integers(1, 6, 2000)))
    pq.write_table(noise, tmp_path / "noise.parquet")
    asked = EXPLICIT | {"data": str(tmp_path / "noise.parquet"), "eval_fraction": 0.2, "rounds": 20, "out": "run"}
    asked |= {"params": {"factors": 16, "regularization": 0.0001}}
    result, _, _ = train_together(asked, 1)
    assert result.verdict.endswith(" % worse")
    assert any("worse than no model" in warning and "always the mean" in warning for warning in result.warnings)


@pytest.mark.parametrize(("ndcg", "told"), [(0.2, True), (0.2005, True), (0.21, False)])
def test_lists_are_told_where_their_verdict_says_no_better(ndcg: float, told: bool) -> None:
    metrics = {"eval-ndcg@10": ndcg, "popular-ndcg@10": 0.2}
    assert bool(list(poor("implicit", metrics, [10], None))) == told
    assert list_baseline(metrics, [10]).verdict(metrics).endswith("no better") == told


def test_rankings_of_events_are_those_of_the_whole(table: pa.Table, data: str) -> None:
    asked = IMPLICIT | {"data": data, "eval_fraction": 0.2, "out": "run"}
    result, _, _ = train_together(asked, 3)
    users, items = indices(table)
    weights = np.array(
        [{"view": 1, "add_to_cart": 3, "purchase": 5, "payment_failed": -2}[e] for e in table["e"].to_pylist()]
    )
    test = splitting.at_random(users, items, 0.2, 0)
    sums: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(test):
        pair = int(users[row]), int(items[row])
        sums[pair] = sums.get(pair, 0) + int(weights[row])
    pairs = np.array([pair for pair, weight in sums.items() if weight > 0], np.int32)
    quality = ranking_quality(result.loaded.factors, result.loaded.seen, pairs[:, 0], pairs[:, 1])
    assert result.metrics["eval-ndcg@10"] == pytest.approx(quality.at[0].ndcg, rel=1e-9)
    assert result.metrics["eval-recall@10"] == pytest.approx(quality.at[0].recall, rel=1e-9)


def test_early_stopping_keeps_the_best_epoch(data: str) -> None:
    asked = EXPLICIT | {"data": data, "eval_fraction": 0.3, "rounds": 60, "seed": 3}
    asked |= {"params": {"factors": 16, "learning_rate": 0.1, "regularization": 0.0001}}
    result, told = train_alone(asked | {"early_stop": 3, "out": "run"})
    scores = {event["round"]: event["metrics"]["eval-rmse"] for event in told.of("round")}
    assert result.best_round == min(scores, key=lambda number: (scores[number], number))
    assert result.rounds == len(scores) == result.best_round + 3 < 60
    assert result.metrics["eval-rmse"] == scores[result.best_round]
    short = fit(asked, rounds=result.best_round, out="short")
    assert same_bits(result.loaded.factors, short.loaded.factors)
    assert train_together(asked | {"early_stop": 3, "out": "many"}, 3)[0].model_digest == result.model_digest


def test_early_stopping_of_events_goes_by_the_ndcg_of_the_first_length(data: str) -> None:
    asked = IMPLICIT | {"data": data, "eval_fraction": 0.3, "rounds": 40, "eval_at": [5, 20], "early_stop": 2}
    result, told = train_alone(asked | {"out": "run"})
    scores = {event["round"]: event["metrics"]["eval-ndcg@5"] for event in told.of("round")}
    assert result.best_round == max(scores, key=lambda number: (scores[number], -number))
    assert result.rounds == len(scores) == result.best_round + 2 < 40


def test_evaluation_data_may_have_users_and_items_that_are_not_known(table: pa.Table, data: str) -> None:
    stranger = pa.table(
        {"u": ["nobody", "u001", "u002"], "i": [7, 999_999, 14], "r": [4.0, 3.0, 2.0], "e": ["view"] * 3, "t": [0] * 3}
    )
    other = write(Path("eval.parquet"), stranger)
    for asked in (EXPLICIT, IMPLICIT):
        out = "ratings" if asked is EXPLICIT else "events"
        result, told = train_alone(asked | {"data": data, "eval": [other], "out": out})
        assert result.users == 91 and result.items == 61
        assert (result.eval_rows, result.rows) == (3, ROWS)
        assert result.evaluation["pairs_of_unseen_items"] == 1
        assert result.evaluation["users_without_training"] == 1
        [warning] = [event["message"] for event in told.of("warning") if "no user had in" in event["message"]]
        assert warning.startswith("1 of ")
        assert not np.any(result.loaded.factors.items[result.loaded.find_items([999_999])])


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_split_by_time_puts_the_last_share_aside(table: pa.Table, data: str, kind: str) -> None:
    asked = EXPLICIT if kind == "explicit" else IMPLICIT
    asked = asked | {"data": data, "eval_fraction": 0.25, "eval_by": "time", "time": "t"}
    result = fit(asked, out="run")
    times = np.sort(table["t"].to_numpy())
    assert result.eval_rows == pytest.approx(ROWS // 4, abs=20)
    moment = times[-result.eval_rows]
    kept = table.filter(pa.array(table["t"].to_numpy() < moment))
    trained = set(zip(*(kept[name].to_pylist() for name in ("u", "i")), strict=True))
    if kind == "explicit":
        assert result.pairs == len(trained)
    assert train_together(asked | {"out": "many"}, 3)[0].model_digest == result.model_digest


def test_the_last_events_of_each_user_are_put_aside(table: pa.Table, data: str) -> None:
    asked = IMPLICIT | {"data": data, "eval_last": 2, "time": "t"}
    result = fit(asked, out="run")
    counts = np.unique(table["u"].to_numpy(), return_counts=True)[1]
    assert result.eval_rows == int(np.minimum(2, counts - 1).sum())
    assert train_together(asked | {"out": "many"}, 2)[0].model_digest == result.model_digest


# When it diverges


@pytest.mark.parametrize("workers", [0, 2])
def test_a_divergence_halves_the_step_goes_back_and_is_told(data: str, workers: int) -> None:
    asked = EXPLICIT | {"data": data, "params": {"factors": 8, "learning_rate": 50.0}, "out": "run"}
    if workers:
        result, _, told = train_together(asked, workers)
    else:
        result, told = train_alone(asked)
    diverged = told.of("diverged")
    assert [event["learning_rate"] for event in diverged] == [50 / 2**n for n in range(1, len(diverged) + 1)]
    assert {event["round"] for event in diverged} <= {1, 2, 3, 4}
    assert [event["round"] for event in told.of("round")] == [1, 2, 3, 4]
    assert told.of("round")[-1]["halvings"] == len(diverged)
    assert np.isfinite(result.loaded.factors.users).all() and np.isfinite(result.metrics["train-rmse"])
    assert any("halved" in warning for warning in result.warnings)
    serial = fit_explicit(as_ratings(rated()), ExplicitSettings(factors=8, epochs=4, learning_rate=50.0))
    assert serial.halvings > 0


def test_after_a_divergence_the_model_is_that_of_the_smaller_step(data: str) -> None:
    asked = EXPLICIT | {"data": data, "rounds": 1}
    result, told = train_alone(asked | {"params": {"factors": 8, "learning_rate": 50.0}, "out": "a"})
    rate = told.of("diverged")[-1]["learning_rate"]
    small = fit(asked, params={"factors": 8, "learning_rate": rate}, out="b")
    assert same_bits(result.loaded.factors, small.loaded.factors)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_diverges_with_any_step_is_an_error_that_says_what_to_do(data: str, workers: int) -> None:
    asked = EXPLICIT | {"data": data, "params": {"factors": 8, "learning_rate": 1e30}, "out": "run"}
    with pytest.raises(DataError, match="diverges even with a learning rate") as caught:
        train_together(asked, workers) if workers else train_alone(asked)
    assert "regularization" in caught.value.fix
    assert caught.value.exit_code == 2
    assert not Path("run").exists()


# Going on


def test_a_run_goes_on_with_new_users_and_items_and_keeps_the_old_pairs(table: pa.Table, data: str) -> None:
    first = fit(EXPLICIT, data=data, out="first")
    again = (table["u"][0].as_py(), table["i"][0].as_py())
    more = pa.table({"u": ["new", "new", again[0], "u003"], "i": [7, 5555, again[1], 5555], "r": [4.0, 3.0, 0.5, 2.0]})
    asked = {**EXPLICIT, "data": write(Path("more.parquet"), more), "continue_from": first.directory, "rounds": 2}
    asked["params"] = {}
    result = fit(asked, out="second")
    before, after = first.loaded, result.loaded
    assert (result.users, result.items) == (first.users + 1, first.items + 1)
    assert result.pairs == first.pairs + 3
    assert result.factors == 8
    user, item = int(after.find_users([again[0]])[0]), int(after.find_items([again[1]])[0])
    items, place = after.seen.of_user(user), int(after.seen.starts[user])
    assert after.seen.values is not None
    assert after.seen.values[place + int(np.searchsorted(items, item))] == np.float32(0.5)
    assert after.mean == before.mean
    known = after.factors.users[after.find_users(before.user_ids)]
    assert 0 < np.abs(known - before.factors.users).max() < 0.2  # two more epochs, from where they were
    assert train_together({**asked, "out": "many"}, 3)[0].model_digest == result.model_digest


def test_a_run_does_not_go_on_from_a_model_that_was_changed(data: str) -> None:
    first = fit(EXPLICIT, data=data, out="first")
    file = Path(first.directory) / "model" / "seen_items.npy"
    items = np.load(file)
    items[0] += 1_000_000
    np.save(file, items)
    with pytest.raises(ModelError, match="not what its digest says"):
        fit(EXPLICIT, data=data, continue_from=first.directory, out="second")


def test_events_go_on_from_a_run_and_add_up(data: str) -> None:
    first = fit(IMPLICIT, data=data, out="first")
    user, item = "u000", int(first.loaded.item_ids[int(first.loaded.seen.of_user(0)[0])].as_py())
    more = pa.table({"u": [user, user, "new"], "i": [item, 5555, item], "e": ["purchase", "view", "view"]})
    asked = {**IMPLICIT, "data": write(Path("more.parquet"), more), "continue_from": first.directory, "params": {}}
    result = fit(asked, out="second")
    before, after = first.loaded.seen, result.loaded.seen
    assert before.values is not None and after.values is not None
    place = int(after.starts[result.loaded.find_users([user])[0]])
    assert after.values[place] == before.values[0] + 5
    assert result.pairs == first.pairs + 2
    assert train_together({**asked, "out": "many"}, 2)[0].model_digest == result.model_digest


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"rating": None, "event": "e"}, "The earlier run learned from ratings, this one is to learn from events"),
        ({"params": {"factors": 9}}, "The earlier run has 8 factors, not 9"),
    ],
)
def test_a_run_goes_on_as_what_it_is(data: str, change: dict[str, Any], what: str) -> None:
    first = fit(EXPLICIT, data=data, out="first")
    asked = {name: value for name, value in (EXPLICIT | change).items() if value is not None}
    with pytest.raises(ConfigError, match=what) as caught:
        fit(asked, data=data, continue_from=first.directory, out="second")
    assert caught.value.fix
    assert not Path("second").exists()


def test_rows_that_the_earlier_run_was_trained_on_are_not_evaluated_on(data: str, table: pa.Table) -> None:
    first = fit(EXPLICIT, data=data, out="first")
    with pytest.raises(ConfigError, match="was trained on all of it"):
        fit(EXPLICIT, data=data, continue_from=first.directory, eval_fraction=0.2, out="second")
    new_users = table.set_column(0, "u", pa.array([f"new {user}" for user in table["u"].to_pylist()]))
    other = write(Path("other.parquet"), new_users)
    result = fit(EXPLICIT, data=other, continue_from=first.directory, eval_fraction=0.2, out="second")
    assert any("not known whether the evaluation rows are new" in warning for warning in result.warnings)


def test_lists_of_events_are_judged_by_pairs_that_no_run_was_trained_on(data: str) -> None:
    first = fit(IMPLICIT, data=data, out="first")
    with pytest.raises(DataError, match="No pair is left to evaluate on"):
        fit(IMPLICIT, data=data, continue_from=first.directory, eval_fraction=0.2, out="second")


def test_the_same_rows_are_held_out_again(data: str) -> None:
    first = fit(EXPLICIT, data=data, eval_fraction=0.2, seed=5, out="first")
    with pytest.raises(ConfigError, match=r"--eval-fraction 0\.2 --split-seed 5"):
        fit(EXPLICIT, data=data, continue_from=first.directory, eval_fraction=0.2, seed=6, out="second")
    more = fit(EXPLICIT, data=data, continue_from=first.directory, eval_fraction=0.2, seed=5, out="second")
    assert not [warning for warning in more.warnings if "not known" in warning]


def interrupted_at(method: str, calls: int) -> FactorGroup:
    """A group in which a signal comes when worker 1 is called for the nth time."""
    group, counted = FactorGroup(), 0

    def count(call: Call) -> None:
        nonlocal counted
        counted += (call.worker, call.method) == (1, method)
        if counted == calls:
            raise KeyboardInterrupt

    group.on_call = count
    return group


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
def test_an_interrupted_run_is_resumed_from_its_last_epoch_to_the_same_model(data: str, kind: str, after: int) -> None:
    asked = (EXPLICIT if kind == "explicit" else IMPLICIT) | {"data": data, "eval_fraction": 0.2, "early_stop": 4}
    whole = fit(asked, out="whole")
    # In the middle of the next epoch, or while the last is measured in all ways.
    method, calls = ("turn", 4 * after + 2) if kind == "explicit" else ("solve", 2 * after + 2)
    group = interrupted_at(*((method, calls) if after < 4 else ("popular", 1)))
    with together(group, 2), pytest.raises(KeyboardInterrupt):
        training.train(make_config(asked | {"out": "run"}))
    checkpoint = Path("run", "checkpoints", "latest.json")
    written = json.loads(checkpoint.read_text())["round"] if checkpoint.exists() else 0
    assert written == after
    result = dray.resume("run", workers=0)
    assert isinstance(result, FactorResult)
    assert (result.model_digest, result.metrics) == (whole.model_digest, whole.metrics)
    assert result.best_round == whole.best_round
    rounds = open_run("run").read_table("rounds.parquet")["round"].to_pylist()
    assert rounds == [1, 2, 3, 4]


def test_a_checkpoint_holds_the_best_epoch_too(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "EVERY_S", 0.0)
    asked = EXPLICIT | {"data": data, "eval_fraction": 0.3, "rounds": 60, "early_stop": 4}
    asked |= {"params": {"factors": 16, "learning_rate": 0.1, "regularization": 0.0001}}
    whole = fit(asked, out="whole")
    best = whole.best_round
    group = interrupted_at("finish", best + 3)  # two epochs later than the best one
    with together(group, 2), pytest.raises(KeyboardInterrupt):
        training.train(make_config(asked | {"out": "run"}))
    result = dray.resume("run", workers=0)
    assert (result.model_digest, result.best_round) == (whole.model_digest, best)


# What is refused

OTHERS = {"u": ["a", "b", "a", "b"], "i": [1, 2, 2, 1], "r": [1.0, 2.0, 3.0, 4.0], "e": ["view"] * 4}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "text": (
        EXPLICIT,
        {"r": ["good", "1", "2", "3"]},
        r'is text, and 1 of 4 rows hold no number, such as "good"',
        "numbers",
    ),
    "numbers as text": (EXPLICIT, {"r": ["1", "2", "3", "4"]}, "is text, though it looks like numbers", "as numbers"),
    "no weight": (
        IMPLICIT,
        {"e": ["view", "veiw", "view", "view"]},
        r'no weight: "veiw" \(1 rows\)',
        'such as event_weights={"veiw": 1}',
    ),
    "negative": (EXPLICIT, {"r": [1.0, -1.0, 2.0, 3.0]}, "1 of 4 rows have a negative rating", "Shift the scale"),
    "infinite": (EXPLICIT, {"r": [1.0, float("inf"), 2.0, 3.0]}, "1 of 4 rows have a rating .* infinite", "--filter"),
    "not a number": (EXPLICIT, {"r": [1.0, float("nan"), 2.0, 3.0]}, "1 of 4 rows have no rating", "--filter"),
    "one user": (EXPLICIT, {"u": ["a"] * 4, "i": [1, 2, 3, 4]}, "one user only", "several users"),
    "one item": (IMPLICIT, {"i": [1] * 4, "u": list("abcd")}, "one item only", "several items"),
    "no user": (
        EXPLICIT | {"missing_id": "error"},
        {"u": ["a", None, "b", "b"]},
        '1 of 4 rows have no user in "u"',
        'missing_id="drop"',
    ),
    "no item": (
        IMPLICIT | {"missing_id": "error"},
        {"i": [1, None, 2, 1]},
        '1 of 4 rows have no item in "i"',
        'missing_id="drop"',
    ),
    "no user and item": (
        IMPLICIT,
        {"i": [1, None, 2, None], "u": [None, "a", None, "b"]},
        "None of the 4 rows",
        "columns: user and item",
    ),
    "floats as ids": (IMPLICIT, {"i": [1.0, 2.0, 2.0, 1.0]}, "which cannot be an id", "int64"),
    "no column": (EXPLICIT | {"rating": "stars"}, {}, '"stars"', ""),
    "cancelled": (
        IMPLICIT | {"event_weights": {"view": 1, "undo": -1}},
        {"i": [1, 1, 2, 2], "u": list("aabb"), "e": ["view", "undo"] * 2},
        "No pair is left to train on",
        "event_weights",
    ),
}


@pytest.mark.parametrize("base", [EXPLICIT, IMPLICIT])
def test_rows_without_a_user_or_an_item_are_left_out_and_counted(table: pa.Table, base: dict[str, Any]) -> None:
    no_user, no_item = np.arange(len(table)) % 50 == 0, np.arange(len(table)) % 40 == 0
    users = pa.array(table["u"].to_pylist(), mask=no_user)
    holes = table.set_column(0, "u", users).set_column(1, "i", pa.array(table["i"].to_numpy(), mask=no_item))
    gone = no_user | no_item
    found = dray.train(write(Path("holes.parquet"), holes), workers=0, out="holes", **base)
    without = dray.train(write(Path("without.parquet"), table.filter(pa.array(~gone))), workers=0, out="less", **base)
    assert found.model_digest == without.model_digest
    assert (found.rows, found.rows_dropped, found.eval_rows_dropped) == (without.rows, gone.sum(), 0)
    [told] = [warning for warning in found.warnings if 'no "u" or no "i"' in warning]
    assert f"{gone.sum()} of {len(table):,} rows" in told and 'missing_id="error"' in told


def test_events_of_weight_0_need_no_item(table: pa.Table) -> None:
    searches = pa.table({"u": ["u001"] * 9, "i": pa.nulls(9, pa.int64()), "e": ["search"] * 9})
    events = pa.concat_tables([table.select(["u", "i", "e"]), searches])
    weights = {"view": 1, "add_to_cart": 3, "purchase": 5, "payment_failed": -2, "search": 0}
    place = write(Path("events.parquet"), events)
    asked = IMPLICIT | {"event_weights": weights, "missing_id": "error"}
    result = dray.train(place, workers=0, out="run", **asked)
    assert result.rows_dropped == 9
    assert result.warnings[0].endswith("They are left out: their events weigh 0.")
    with pytest.raises(DataError, match=r"9 of .* rows have no item"):
        dray.train(place, workers=0, out="other", **asked | {"event_weights": weights | {"search": 1}})


def refused(asked: dict[str, Any], data: Any) -> DrayError:
    with pytest.raises(DrayError) as caught:
        dray.train(data, workers=0, out="run", **asked)
    assert caught.value.exit_code == 2
    assert caught.value.fix
    assert not Path("run").exists()
    return caught.value


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_what_to_do(case: str) -> None:
    asked, changed, what, fix = REFUSED[case]
    error = refused(asked, write(Path("rows.parquet"), pa.table(OTHERS | changed)))
    assert re.search(what, error.what), error.what
    assert fix in error.fix


@pytest.mark.parametrize("case", ["text", "no weight", "negative", "one user"])
def test_bad_input_is_refused_in_csv_and_json_too(case: str) -> None:
    asked, changed, _, fix = REFUSED[case]
    rows = pa.table(OTHERS | changed).to_pylist()
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("rows.csv").write_text(
        "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]) + "\n"
    )
    for file in ("rows.jsonl", "rows.csv"):
        assert fix in refused(asked, file).fix


def test_ids_that_differ_only_by_type_are_refused_across_files() -> None:
    write(Path("data", "a.parquet"), pa.table(OTHERS | {"i": [1, 2, 2, 1]}))
    write(Path("data", "b.parquet"), pa.table(OTHERS | {"i": ["1", "2", "2", "1"]}))
    error = refused(EXPLICIT, "data")
    assert '"i"' in error.what or "item" in error.what


def test_ids_that_differ_only_by_type_are_refused_between_data_and_evaluation() -> None:
    train = write(Path("a.parquet"), pa.table(OTHERS))
    test = write(Path("b.parquet"), pa.table(OTHERS | {"i": ["1", "2", "2", "1"]}))
    error = refused(EXPLICIT | {"eval": [test]}, train)
    assert "1 and '1' are different items" in error.what
    assert "as text" in error.fix


def test_ids_that_are_numbers_and_texts_within_json_lines_are_all_text() -> None:
    rows = [{"u": "a", "i": 1, "r": 1}, {"u": "b", "i": "1", "r": 2}, {"u": "a", "i": 2, "r": 3}]
    results = []
    for name, items in (("mixed", [1, "1", 2]), ("texts", ["1", "1", "2"])):
        lines = [json.dumps(row | {"i": item}) + "\n" for row, item in zip(rows, items, strict=True)]
        Path(f"{name}.jsonl").write_text("".join(lines))
        results.append(dray.train(f"{name}.jsonl", workers=0, out=name, **EXPLICIT | {"rounds": 1}))
    mixed, texts = results
    assert (mixed.rows, mixed.users, mixed.items) == (3, 2, 2)
    assert mixed.model_digest == texts.model_digest


def test_evaluation_that_has_nothing_to_say_is_refused(data: str) -> None:
    error = refused(EXPLICIT | {"eval_fraction": 1e-9}, data)
    assert "No pair is left to evaluate on" in error.what


# What is told


def test_repeated_ratings_are_counted_and_told(data: str, table: pa.Table) -> None:
    result = fit(EXPLICIT, data=data, out="run")
    repeats = ROWS - len(without_repeats(table))
    assert any(f"{repeats:,} ratings are of a pair that had one before" in warning for warning in result.warnings)
    assert result.pairs == ROWS - repeats


def test_an_item_that_no_user_rated_in_the_training_rows_is_told(table: pa.Table) -> None:
    rare = {"u": ["u001", "u002"], "i": [999, 1006], "r": [1.0, 2.0], "e": ["view"] * 2, "t": [2_000_000_000] * 2}
    path = write(Path("rows.parquet"), pa.concat_tables([table, pa.table(rare, schema=table.schema)]))
    result = fit(EXPLICIT, data=path, eval_fraction=0.1, eval_by="time", time="t", out="run")
    [warning] = [warning for warning in result.warnings if "no user had in" in warning]
    assert warning.startswith("2 of ")
    assert "Fold new items in" in warning


def test_more_workers_than_blocks_is_told(table: pa.Table) -> None:
    few = write(Path("few.parquet"), pa.table(OTHERS), 1)
    result, _, _ = train_together(ROLES | {"data": few, "out": "run"}, 3)
    assert any("3 workers for 2 blocks" in warning for warning in result.warnings)


def test_weights_age_as_of_the_last_row_to_train_on_however_late_the_test_rows_are(tmp_path: Path) -> None:
    table = rated()
    times = table["t"].to_numpy()
    limit = np.sort(times)[int(len(times) * 0.75)]
    later = np.where(times >= limit, times + 100 * 86_400, times)
    asked = IMPLICIT | {"eval_fraction": 0.25, "eval_by": "time", "time": "t", "half_life_days": 20.0}
    models = []
    for name, moments in (("as it is", times), ("later", later)):
        data = write(tmp_path / f"{name}.parquet", table.set_column(table.column_names.index("t"), "t", [moments]))
        result = fit(asked, data=data, out=str(tmp_path / name))
        models.append(result.loaded)
    assert models[0].as_of == models[1].as_of == times[times < limit].max()
    assert models[0].digest == models[1].digest
