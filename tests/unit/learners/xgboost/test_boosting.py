"""A shard of the rows in a training: alone, in rings of real processes, and from one ring to the next."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xgboost
from ring_process import Trained, make_task, train_member, train_ring, train_worker

from dray.data.features import Column
from dray.data.parquet import Dataset
from dray.data.shards import Units, assign
from dray.data.split import Split
from dray.data.stream import Stream
from dray.errors import ConfigError, DataError
from dray.learners.checkpoint import START, Best, Checkpoint, Step
from dray.learners.xgboost.boosting import Outcome, ShardLearner, Task, conclude
from dray.learners.xgboost.categories import without_categories
from dray.learners.xgboost.matrix import BinnedPreparation, load
from dray.learners.xgboost.model import Model
from dray.learners.xgboost.ring import RingDoor
from dray.rings.rendezvous import Rendezvous
from small_data import mixed_rows, opened, prepare, query_ids, units, write

ROWS = 2400
OTHERS = ("label", "grade", "value", "weight", "query")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    columns = mixed_rows(ROWS, classes=3)
    columns["grade"] = columns.pop("label")
    columns["label"] = pa.array((columns["grade"].to_numpy() > 0).astype(np.int8))
    columns["query"] = pa.array(query_ids(ROWS))
    folder = tmp_path_factory.mktemp("rings")
    write(folder / "a.parquet", pa.table(columns).slice(0, 1000), 300)
    write(folder / "b.parquet", pa.table(columns).slice(1000), 350)
    return opened(folder)


TASKS: dict[str, dict[str, Any]] = {
    "binary": {"label": "label", "objective": "binary:logistic"},
    "binary with weights": {
        "label": "label",
        "objective": "binary:logistic",
        "weight": "weight",
        "params": {"eval_metric": ["auc", "aucpr", "logloss", "error@0.3"]},
    },
    "multi-class": {"label": "grade", "objective": "multi:softprob", "classes": 3, "weight": "weight"},
    "regression": {"label": "value", "objective": "reg:squarederror", "weight": "weight"},
    "ranking": {
        "label": "label",
        "objective": "rank:ndcg",
        "group": "query",
        "params": {"eval_metric": ["map@5", "ndcg@3", "ndcg@10-"]},
    },
}
UNEQUAL: dict[str, dict[str, Any]] = {
    "ranking with weights": TASKS["ranking"] | {"weight": "weight"},
    "quantiles": {"label": "value", "objective": "reg:quantileerror", "params": {"quantile_alpha": [0.1, 0.9]}},
}
"""Whose trees depend on the number of workers."""


class Case:
    """One task on the data set, ready to be trained by any number of members."""

    def __init__(self, dataset: Dataset, name: str, split: Split | None = None, **task: Any) -> None:
        what = (TASKS | UNEQUAL)[name]
        roles = {role: what[role] for role in ("label", "weight", "group") if role in what}
        ignore = [column for column in OTHERS if column not in roles.values()]
        self.preparation = prepare(dataset, ignore=ignore, split=split, **roles)
        self.units = units(dataset, what.get("group"))
        params = what.get("params", {}) | task.pop("params", {})
        self.task = make_task(
            self.preparation,
            self.shards(1)[0],
            what["objective"],
            params=params,
            classes=what.get("classes", 0),
            **task,
        )

    def shards(self, members: int) -> list[Units]:
        return assign(self.units, members)

    def alone(self, other_eval: Units = (), **how: Any) -> Trained:
        return train_member(self.preparation, self.shards(1)[0], other_eval, self.task, **how)


def outcome_of(trained: Trained) -> Outcome:
    assert trained.outcome is not None
    return trained.outcome


def curves(trained: Trained) -> list[dict[str, float]]:
    return [done.metrics for done in trained.rounds]


@pytest.mark.parametrize("name", TASKS)
def test_rings_of_two_and_three_grow_the_same_trees_with_the_same_metrics_as_one(
    dataset: Dataset, name: str, processes: ProcessPoolExecutor
) -> None:
    case = Case(dataset, name, Split(0.3, 1))
    alone = case.alone()
    for members in (2, 3):
        ring = train_ring(processes, case.preparation, case.shards(members), case.task)
        for member in ring:  # each has all that is needed to go on without the others
            assert outcome_of(member).digest == outcome_of(alone).digest
            assert outcome_of(member).metrics == outcome_of(alone).metrics
            assert outcome_of(member).baseline == outcome_of(alone).baseline
            assert curves(member) == curves(alone)
        assert bool(outcome_of(alone).baseline) is (name != "ranking")  # a constant order is no order
        assert sum(member.rows for member in ring) == alone.rows
        assert sum(member.eval_rows for member in ring) == alone.eval_rows


@pytest.mark.parametrize(
    "params",
    [{"colsample_bytree": 0.5, "colsample_bynode": 0.7}, {"booster": "dart", "rate_drop": 0.4}],
    ids=lambda params: next(iter(params)),
)
def test_what_is_drawn_at_random_but_not_by_row_is_drawn_alike(
    dataset: Dataset, params: dict[str, Any], processes: ProcessPoolExecutor
) -> None:
    case = Case(dataset, "binary", params=params, evaluate=False)
    ring = train_ring(processes, case.preparation, case.shards(3), case.task)
    assert outcome_of(ring[0]).digest == outcome_of(case.alone()).digest


def test_any_dealing_of_the_shards_grows_the_same_trees(dataset: Dataset, processes: ProcessPoolExecutor) -> None:
    case = Case(dataset, "regression", Split(0.2, 4))
    uneven: list[Units] = [tuple(case.units[5:]), tuple(case.units[1:5]), tuple(case.units[:1])]
    ring = train_ring(processes, case.preparation, uneven, case.task)
    alone = case.alone()
    assert outcome_of(ring[0]).digest == outcome_of(alone).digest
    assert curves(ring[0]) == curves(alone)


@pytest.mark.parametrize("name", ["multi-class", "ranking"])
def test_a_member_without_evaluation_rows_takes_part(
    dataset: Dataset, name: str, processes: ProcessPoolExecutor
) -> None:
    case = Case(dataset, name)
    evaluation = case.shards(1)[0][:2]
    ring = train_ring(processes, case.preparation, case.shards(2), case.task, [(), evaluation])
    assert curves(ring[0]) == curves(case.alone(evaluation))
    assert ring[0].eval_rows == 0


def test_a_member_without_evaluation_rows_takes_part_in_the_metric_of_several_quantiles(
    dataset: Dataset, processes: ProcessPoolExecutor
) -> None:
    case = Case(dataset, "quantiles")
    evaluation = case.shards(1)[0][:2]
    ring = train_ring(processes, case.preparation, case.shards(2), case.task, [(), evaluation])
    assert curves(ring[0]) == curves(ring[1])
    [first] = curves(ring[0])[0].values()
    [last] = curves(ring[0])[-1].values()
    assert 0 < last < first


def test_a_ranking_whose_groups_all_weigh_nothing_is_refused(tmp_path: Path) -> None:
    """XGBoost divides by the sum of their weights, those of the first rows, and grows leaves of NaN."""
    columns = mixed_rows(300) | {"query": pa.array(np.arange(300) // 10)}
    columns["weight"] = pa.array((np.arange(300) % 10 > 0).astype(np.float32))
    data = opened(write(tmp_path / "a.parquet", columns))
    preparation = prepare(data, label="label", weight="weight", group="query", ignore=["value"])
    with pytest.raises(DataError, match='first row of every group has the weight 0 in "weight"'):
        ShardLearner(1).load(preparation, tuple(units(data, "query")), (), lambda rows: None)


STOPS_EARLY = {"eta": 1.0, "max_depth": 6}
DART = {"booster": "dart", "rate_drop": 0.4}


@pytest.mark.parametrize("params", [STOPS_EARLY, STOPS_EARLY | DART], ids=["gbtree", "dart"])
def test_early_stopping_is_decided_once_for_all(
    dataset: Dataset, processes: ProcessPoolExecutor, params: dict[str, Any]
) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), rounds=60, early_stop=3, params=params)
    alone = case.alone()
    ring = train_ring(processes, case.preparation, case.shards(2), case.task)
    outcome = outcome_of(alone)
    assert outcome.rounds == outcome.best_round + 3 < 60
    assert [len(member.rounds) for member in ring] == [outcome.rounds] * 2
    assert outcome_of(ring[0]).digest == outcome.digest


@pytest.mark.parametrize("params", [STOPS_EARLY, STOPS_EARLY | DART], ids=["gbtree", "dart"])
def test_after_early_stopping_the_model_and_its_metrics_are_those_of_the_best_round(
    dataset: Dataset, params: dict[str, Any]
) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), rounds=60, early_stop=3, params=params)
    stopped = case.alone()
    outcome = outcome_of(stopped)
    assert outcome.metrics == curves(stopped)[outcome.best_round - 1]
    assert outcome.metrics["eval-logloss"] == min(metrics["eval-logloss"] for metrics in curves(stopped))
    case.task = replace(case.task, rounds=outcome.best_round, early_stop=None)
    assert outcome_of(case.alone()).digest == outcome.digest
    assert Model.from_bytes(outcome.model, "model").booster.num_boosted_rounds() == outcome.best_round


def test_going_on_from_a_model_is_as_training_in_one_go(dataset: Dataset, processes: ProcessPoolExecutor) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), rounds=6)
    whole = case.alone()
    case.task = replace(case.task, rounds=2)
    begun = outcome_of(case.alone())
    params = {name: value for name, value in case.task.params.items() if name != "base_score"}
    case.task = replace(case.task, rounds=4, start_model=without_categories(begun.model), before=2, params=params)
    for continued in (case.alone(), train_ring(processes, case.preparation, case.shards(2), case.task)[0]):
        assert outcome_of(continued).digest == outcome_of(whole).digest
        assert curves(continued) == curves(whole)[2:]


def matrices(case: Case) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    """The train rows as they are binned, and the eval rows as plain numbers, for XGBoost's own training."""
    shard = case.shards(1)[0]
    train = load(Stream(shard, case.preparation, "train"), case.preparation)
    picked = Stream(shard, case.preparation, "eval")
    batches = list(picked.batches())
    known = load(picked, case.preparation)
    assert train is not None and known is not None
    features = np.concatenate([batch.features for batch in batches])
    names, types = train.matrix.feature_names, train.matrix.feature_types
    plain = xgboost.DMatrix(features, feature_names=names, feature_types=types, enable_categorical=True)
    plain.set_info(
        label=np.concatenate([batch.label for batch in batches]),
        weight=known.matrix.get_weight() if case.preparation.weight else None,
        group=known.matrix.get_group() if case.preparation.group else None,
    )
    return train.matrix, plain


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("binary with weights", ["auc", "aucpr", "logloss", "error", "error@0.3", "rmse"]),
        ("binary", ["auc", "aucpr", "logloss", "error@0.7"]),
        ("multi-class", ["mlogloss", "merror", "auc"]),
        ("regression", ["rmse", "mae", "mape", "mphe"]),
        ("ranking", ["ndcg@5", "map@5", "ndcg", "map@3-", "pre@2", "auc"]),
        ("ranking with weights", ["map@5", "pre@2"]),  # XGBoost's NDCG is wrong there: test_weighted_ndcg.py
    ],
)
def test_metrics_are_what_xgboost_itself_computes(dataset: Dataset, name: str, metrics: list[str]) -> None:
    case = Case(dataset, name, Split(0.3, 1), params={"eval_metric": metrics})
    train, evaluation = matrices(case)
    expected: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        case.task.params | {"nthread": 1},
        train,
        case.task.rounds,
        evals=[(evaluation, "eval")],
        evals_result=expected,
        verbose_eval=False,
    )
    trained = case.alone()
    for metric in metrics:
        found = [done.metrics[f"eval-{metric}"] for done in trained.rounds]
        assert found == pytest.approx(expected["eval"][metric], rel=1e-9), metric
    assert list(trained.rounds[0].metrics) == [f"eval-{metric}" for metric in metrics]
    assert outcome_of(trained).digest == Model(booster, (), Column("y", "number"), case.task.objective).digest()


def test_rounds_are_told_one_by_one(dataset: Dataset) -> None:
    trained = Case(dataset, "binary", evaluate=False).alone()
    assert [done.round for done in trained.rounds] == [1, 2, 3, 4, 5]
    assert all(done.seconds > 0 and done.metrics == {} for done in trained.rounds)
    assert outcome_of(trained).rounds == outcome_of(trained).best_round == 5


def test_the_progress_of_loading_counts_every_row_of_every_pass(dataset: Dataset) -> None:
    case = Case(dataset, "binary", Split(0.3, 1))
    told: list[int] = []
    shard = case.shards(1)[0]
    ShardLearner(1).load(case.preparation, shard, (), told.append)
    assert sum(told) == ShardLearner.rows_to_read(ROWS, 0, split=True)


def test_values_that_training_does_not_know_are_counted_once(tmp_path: Path, dataset: Dataset) -> None:
    case = Case(dataset, "binary", rounds=1)
    strange = mixed_rows(40, seed=5) | {"colour": pa.array(["pink"] * 25 + ["red"] * 15)}
    other = opened(write(tmp_path / "eval.parquet", strange))
    assert case.alone(assign(units(other), 1)[0]).unseen == {"colour": 25}


def one_file(path: Path, columns: dict[str, Any]) -> tuple[BinnedPreparation, Units]:
    dataset = opened(write(path / "one.parquet", columns))
    weight = "weight" if "weight" in columns else None
    return prepare(dataset, label="y", weight=weight), assign(units(dataset), 1)[0]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), None])
def test_a_weight_that_is_none_is_refused(tmp_path: Path, bad: float | None) -> None:
    preparation, shard = one_file(tmp_path, {"x": [1.0, 2, 3], "y": [0, 1, 0], "weight": [1.0, bad, 2]})
    with pytest.raises(DataError, match='1 rows have a negative, missing or infinite weight in "weight"'):
        ShardLearner(1).load(preparation, shard, (), lambda rows: None)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 1e300])
def test_an_infinite_feature_is_refused(tmp_path: Path, value: float) -> None:
    preparation, shard = one_file(tmp_path, {"x": [1.0, value, 3], "y": [0, 1, 0]})
    with pytest.raises(DataError, match="infinite value"):
        ShardLearner(1).load(preparation, shard, (), lambda rows: None)


def test_columns_without_any_value_do_not_disturb(tmp_path: Path) -> None:
    columns = {
        "x": [1.0, 2, 3, 4] * 10,
        "nothing": pa.nulls(40),
        "numbers": pa.nulls(40, pa.float32()),
        "texts": pa.nulls(40, pa.string()),
        "y": [0, 1, 0, 1] * 10,
    }
    preparation, shard = one_file(tmp_path, columns)
    task = make_task(preparation, shard, "binary:logistic", evaluate=False)
    model = Model.from_bytes(outcome_of(train_member(preparation, shard, (), task)).model, "model")
    assert len(model.features) == 4
    assert model.booster.get_score().keys() <= {"x"}


@pytest.mark.parametrize("name", ["binary with weights", "multi-class", "regression", "ranking"])
def test_a_member_without_a_row_to_train_on_takes_part_and_changes_nothing(
    dataset: Dataset, tmp_path: Path, name: str, processes: ProcessPoolExecutor
) -> None:
    case = Case(dataset, name, Split(0.3, 1))
    nothing = pa.array(np.full(40, np.nan))
    columns = mixed_rows(40, seed=7) | {"query": pa.array(query_ids(40)), "grade": nothing}
    other = opened(write(tmp_path / "unlabelled.parquet", columns | {"label": nothing, "value": nothing}))
    unlabelled = assign(units(other, "query" if name == "ranking" else None), 1)[0]
    learner = ShardLearner(1)
    assert learner.load(case.preparation, unlabelled, (), lambda rows: None).rows == 0
    assert learner.train_rows is not None and learner.eval_rows is None
    assert (len(learner.train_rows.dropped) + learner.eval_dropped, learner.eval_dropped > 0) == (40, True)
    ring = train_ring(processes, case.preparation, [unlabelled, case.shards(1)[0]], case.task)
    alone = case.alone()
    assert [member.rows for member in ring] == [0, alone.rows]
    for member in ring:
        assert outcome_of(member).digest == outcome_of(alone).digest
        assert curves(member) == curves(alone)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"max_depth": -3}, "max_depth"),
        ({"eta": "quick"}, "learning_rate"),
        ({"eval_metric": "aauc"}, "aauc"),
        ({"objective": "binary:logistics"}, "binary:logistics"),
        ({"monotone_constraints": "(1,1,1,1,1,1,1,1)"}, "constraint"),
    ],
)
def test_a_parameter_that_xgboost_refuses_is_the_users_mistake(
    dataset: Dataset, params: dict[str, Any], named: str
) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), rounds=1)
    case.task = replace(case.task, params=case.task.params | params)
    with pytest.raises(ConfigError, match=r"XGBoost refuses|XGBoost has no metric") as raised:
        case.alone()
    assert named in raised.value.what


def test_the_best_round_is_the_first_of_the_best_by_the_last_metric() -> None:
    best = Best()
    for number, (auc, loss) in enumerate([(0.5, 3.0), (0.9, 2.0), (0.7, 1.0), (0.8, 1.0)], start=1):
        best.see(Step(number, 0.1, {"eval-auc": auc, "eval-logloss": loss}))
    assert (best.round, best.metrics["eval-auc"]) == (3, 0.7)


def test_a_task_says_the_same_after_pickling() -> None:
    import pickle

    task = Task({"eta": 0.1}, "binary:logistic", 3, None, True, b"model", 2)
    assert pickle.loads(pickle.dumps(task)) == task


PIECES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in TASKS},
    "columns of a tree and of a node": ("multi-class", {"colsample_bytree": 0.5, "colsample_bynode": 0.7}),
    "columns of a level": ("regression", {"colsample_bylevel": 0.6}),
    "dart": ("binary", {"booster": "dart", "rate_drop": 0.5}),
    "parallel trees": ("regression", {"num_parallel_tree": 2, "colsample_bynode": 0.7}),
    "lossguide": ("binary", {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0}),
}


@pytest.mark.parametrize("name", PIECES)
def test_a_training_in_pieces_by_ever_other_members_comes_to_the_same(
    dataset: Dataset, name: str, processes: ProcessPoolExecutor
) -> None:
    task, params = PIECES[name]
    case = Case(dataset, task, Split(0.3, 1), params=params, rounds=7)
    whole = case.alone()
    first = case.alone(pause_after=2)
    assert (first.how, first.checkpoint.round, first.outcome) == ("paused", 2, None)
    second = train_ring(processes, case.preparation, case.shards(3), case.task, at=first.checkpoint, pause_after=4)
    assert [(member.how, member.checkpoint.round) for member in second] == [("paused", 4)] * 3
    assert len({member.checkpoint.model for member in second}) == 1
    third = train_ring(processes, case.preparation, case.shards(2), case.task, at=second[2].checkpoint, pause_after=6)
    last = case.alone(at=third[0].checkpoint)
    assert outcome_of(last).digest == outcome_of(whole).digest
    assert outcome_of(last).metrics == outcome_of(whole).metrics
    assert [done.metrics for done in last.checkpoint.rounds] == curves(whole)
    assert curves(first) + curves(second[1]) + curves(third[1]) + curves(last) == curves(whole)


def test_rows_drawn_at_random_do_not_depend_on_interruptions(dataset: Dataset) -> None:
    case = Case(dataset, "binary", params={"subsample": 0.5, "colsample_bytree": 0.8}, evaluate=False, rounds=6)
    first = case.alone(pause_after=3)
    assert outcome_of(case.alone(at=first.checkpoint)).digest == outcome_of(case.alone()).digest


def test_a_shard_that_paused_goes_on_as_it_is(dataset: Dataset) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), params={"colsample_bynode": 0.5})
    learner = ShardLearner(1)
    learner.load(case.preparation, case.shards(1)[0], (), lambda rows: None)
    learner.restore(case.task, START)
    told: list[int] = []

    def train(*, pause: bool) -> str:
        return learner.train(
            case.task,
            RingDoor(None),
            0,
            on_round=lambda _, done: told.append(done.round),
            wants_pause=lambda: pause,
        )

    assert [train(pause=True), train(pause=True)] == ["paused", "paused"]
    assert learner.is_whole and learner.done(case.task) == 2
    assert train(pause=False) == "finished"
    assert told == [1, 2, 3, 4, 5]
    outcome = conclude(case.task, learner.checkpoint(case.task), case.preparation.features, case.preparation.label)
    assert outcome.digest == outcome_of(case.alone()).digest


def test_a_pause_that_is_asked_for_in_the_last_round_comes_too_late(dataset: Dataset) -> None:
    assert Case(dataset, "binary", Split(0.3, 1)).alone(pause_after=5).how == "finished"


def test_a_pause_does_not_change_when_training_stops_early(dataset: Dataset, processes: ProcessPoolExecutor) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), rounds=60, early_stop=3, params={"eta": 1.0, "max_depth": 6})
    whole = outcome_of(case.alone())
    first = case.alone(pause_after=whole.best_round + 1)  # in the middle of the patience
    assert first.how == "paused"
    ring = train_ring(processes, case.preparation, case.shards(2), case.task, at=first.checkpoint)
    assert [outcome_of(member) for member in ring] == [whole] * 2


@pytest.mark.parametrize("early_stop", [None, 3])
def test_a_round_whose_metrics_were_lost_is_evaluated_and_not_grown_again(
    dataset: Dataset, early_stop: int | None, processes: ProcessPoolExecutor
) -> None:
    params = {"eta": 1.0, "max_depth": 6}
    case = Case(dataset, "binary", Split(0.3, 1), rounds=30, early_stop=early_stop, params=params)
    whole = case.alone()
    for lost in (1, outcome_of(whole).best_round, outcome_of(whole).rounds):
        model = case.alone(pause_after=lost).checkpoint.model
        at = Checkpoint(lost, model, whole.checkpoint.rounds[: lost - 1])
        assert not case.task.is_over_at(at)
        ring = train_ring(processes, case.preparation, case.shards(2), case.task, at=at)
        assert [done.round for done in ring[1].rounds] == list(range(lost, outcome_of(whole).rounds + 1))
        assert curves(ring[1]) == curves(whole)[lost - 1 :]
        assert [outcome_of(member).digest for member in ring] == [outcome_of(whole).digest] * 2


def test_a_training_that_is_over_grows_nothing_more(dataset: Dataset) -> None:
    case = Case(dataset, "binary", Split(0.3, 1))
    done = case.alone()
    again = case.alone(at=done.checkpoint)
    assert (again.how, again.rounds, again.outcome) == ("finished", [], done.outcome)


def test_two_members_in_one_process_and_one_in_another_grow_the_same_trees(
    dataset: Dataset, processes: ProcessPoolExecutor
) -> None:
    case = Case(dataset, "binary", Split(0.3, 1), params={"colsample_bytree": 0.5})
    one, two, three = case.shards(3)
    with Rendezvous(3, "127.0.0.1") as meeting:
        workers = [
            processes.submit(train_worker, case.preparation, seats, case.task, meeting.address)
            for seats in ({0: one, 1: three}, {2: two})
        ]
        ends = [worker.result(timeout=60) for worker in workers]
    whole = case.alone()
    for how, checkpoint in ends:
        assert how == "finished"
        outcome = conclude(case.task, checkpoint, case.preparation.features, case.preparation.label)
        assert outcome == whole.outcome
