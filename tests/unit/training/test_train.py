"""Training in one process, from a configuration to a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost

import datasets
import dray
from dray.data.split import Split, hashed
from dray.errors import ConfigError
from dray.learners.xgboost.result import TrainResult
from dray.runs.directory import open_run
from dray.threads.limits import cpus_of_this_process
from s3_server import S3Server

ROLES: dict[str, dict[str, Any]] = {
    "binary": {},
    "multiclass": {},
    "regression": {},
    "ranking": {"group": "query"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("data")
    return {name: datasets.write(root / name, getattr(datasets, name)()) for name in ROLES}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(location: str, **settings: Any) -> TrainResult:
    defaults = {"label": "label", "ignore": ["id", "weight"], "rounds": 6, "workers": 0}
    return dray.train(location, **{**defaults, **settings})


def trees(result: TrainResult) -> list[dict[str, Any]]:
    return [json.loads(tree) for tree in result.booster.get_dump(dump_format="json")]


def depth(tree: dict[str, Any]) -> int:
    return 1 + max(map(depth, tree["children"])) if "children" in tree else 0


def predictions(result: TrainResult, location: str, **settings: Any) -> pa.Table:
    out = Path(result.directory).with_name("predictions")
    dray.predict(result.directory, location, str(out), workers=0, **settings)
    return datasets.read(out)


@pytest.mark.parametrize(
    ("task", "objective", "metrics"),
    [
        ("binary", "binary:logistic", ["eval-auc", "eval-logloss"]),
        ("multiclass", "multi:softprob", ["eval-merror", "eval-mlogloss"]),
        ("regression", "reg:squarederror", ["eval-mae", "eval-rmse"]),
        ("ranking", "rank:ndcg", ["eval-ndcg@10"]),
    ],
)
def test_the_objective_follows_from_the_label(
    data: dict[str, str], task: str, objective: str, metrics: list[str]
) -> None:
    result = run(data[task], eval_fraction=0.25, **ROLES[task])
    assert result.objective == objective
    assert list(result.metrics) == metrics
    assert result.learner == "xgboost"
    assert result.rows + result.eval_rows == datasets.ROWS
    assert 0.2 < result.eval_rows / datasets.ROWS < 0.3
    assert result.features == len(datasets.FEATURES)
    assert (result.workers, result.rounds, result.failures) == (0, 6, 0)
    assert result.identity.holds
    assert len(result.model_digest) == 64


@pytest.mark.parametrize(
    ("label", "objective"),
    [
        (pa.array([True, False] * 300), "binary:logistic"),
        (pa.array(["no", "yes"] * 300), "binary:logistic"),
        (pa.array(["a", "b", "c"] * 200).dictionary_encode(), "multi:softprob"),
        (pa.array([0, 1, 2] * 200), "reg:squarederror"),
        (pa.array([1, 2] * 300), "binary:logistic"),
    ],
    ids=["booleans", "two strings", "three of a dictionary", "three numbers", "two other numbers"],
)
def test_it_follows_for_every_kind_of_label(label: pa.Array, objective: str, tmp_path: Path) -> None:
    table = datasets.replaced(datasets.binary(600), label=label)
    assert run(datasets.write(tmp_path / "data", table), rounds=1).objective == objective


def test_whole_numbers_are_classes_when_asked_for(tmp_path: Path) -> None:
    location = datasets.write(tmp_path / "data", datasets.replaced(datasets.binary(600), label=[0, 1, 2] * 200))
    result = run(location, objective="multiclass", rounds=2)
    assert result.objective == "multi:softprob"
    assert len(trees(result)) == 6


@pytest.mark.parametrize("stratify", [False, True])
def test_the_metrics_of_a_split_are_those_of_its_rows(data: dict[str, str], stratify: bool) -> None:
    result = run(data["binary"], eval_fraction=0.3, seed=5, stratify=stratify)
    labels, positions = datasets.read(data["binary"])["label"].to_numpy(), np.arange(datasets.ROWS)
    picked = Split(0.3, 5).picks(positions)
    if stratify:  # of each class the rows of the lowest hashes
        order = positions[np.argsort(hashed(positions, 5), kind="stable")]
        classes = [order[labels[order] == value] for value in (0, 1)]
        picked = np.isin(positions, np.concatenate([rows[: round(0.3 * len(rows))] for rows in classes]))
    scores = predictions(result, data["binary"])["prediction"].to_numpy()[picked]
    truth = labels[picked]
    assert result.eval_rows == picked.sum()
    assert result.metrics["eval-auc"] == pytest.approx(datasets.auc(truth, scores), abs=1e-6)
    losses = -np.log(np.where(truth == 1, scores, 1 - scores))
    assert result.metrics["eval-logloss"] == pytest.approx(losses.mean(), abs=1e-6)


def test_the_metrics_of_another_set_are_those_of_its_rows_with_their_weights(
    data: dict[str, str], tmp_path: Path
) -> None:
    other = datasets.write(tmp_path / "eval", datasets.binary(700, seed=9), files=2)
    result = run(data["binary"], eval=[other], weight="weight", ignore=["id"])
    table = datasets.read(other)
    scores = predictions(result, other)["prediction"].to_numpy()
    by_hand = datasets.auc(table["label"].to_numpy(), scores, table["weight"].to_numpy())
    assert (result.rows, result.eval_rows) == (datasets.ROWS, 700)
    assert result.metrics["eval-auc"] == pytest.approx(by_hand, abs=1e-6)


def test_the_metrics_of_several_classes_of_values_and_of_ranks_are_right(data: dict[str, str], tmp_path: Path) -> None:
    def evaluated(task: str, **settings: Any) -> tuple[dict[str, float], pa.Table, pa.Table]:
        other = datasets.write(tmp_path / task / "eval", getattr(datasets, task)(500, seed=3))
        result = run(data[task], eval=[other], out=str(tmp_path / task / "run"), **ROLES[task], **settings)
        return result.metrics, datasets.read(other), predictions(result, other, **settings.get("predict", {}))

    metrics, table, predicted = evaluated("multiclass")
    by_class = np.stack([predicted[f"prediction_{name}"].to_numpy() for name in datasets.CLASSES], axis=1)
    truth = np.array([datasets.CLASSES.index(name) for name in table["label"].to_pylist()])
    assert metrics["eval-merror"] == pytest.approx((by_class.argmax(axis=1) != truth).mean(), abs=1e-6)
    assert metrics["eval-mlogloss"] == pytest.approx(-np.log(by_class[np.arange(500), truth]).mean(), abs=1e-5)

    metrics, table, predicted = evaluated("regression")
    errors = predicted["prediction"].to_numpy() - table["label"].to_numpy()
    assert metrics["eval-rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-5)
    assert metrics["eval-mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)

    metrics, table, predicted = evaluated("ranking")
    scores, queries = predicted["prediction"].to_numpy(), table["query"].to_numpy()
    alone = [ndcg(table["label"].to_numpy()[queries == query], scores[queries == query]) for query in set(queries)]
    assert metrics["eval-ndcg@10"] == pytest.approx(np.mean(alone), abs=1e-5)


def ndcg(relevance: np.ndarray[Any, Any], scores: np.ndarray[Any, Any], top: int = 10) -> float:
    def gain(ranked: np.ndarray[Any, Any]) -> float:
        return float(((2.0**ranked - 1) / np.log2(np.arange(len(ranked)) + 2)).sum())

    best = gain(np.sort(relevance)[::-1][:top])
    return gain(relevance[np.argsort(-scores, kind="stable")][:top]) / best if best else 1.0


def test_without_an_evaluation_set_there_are_no_metrics(data: dict[str, str]) -> None:
    result = run(data["binary"])
    assert (result.metrics, result.eval_rows, result.best_round) == ({}, 0, 6)


def test_early_stopping_keeps_the_best_round(data: dict[str, str]) -> None:
    settings = {"eval_fraction": 0.3, "params": {"eta": 0.9, "max_depth": 8}}
    stopped = run(data["binary"], rounds=80, early_stop=3, **settings)
    assert stopped.rounds < 80
    assert stopped.rounds == stopped.best_round + 3
    assert stopped.booster.num_boosted_rounds() == stopped.best_round
    assert stopped.model_digest == run(data["binary"], rounds=stopped.best_round, **settings).model_digest
    losses = open_run(stopped.directory).read_table("rounds.parquet")["eval-logloss"].to_numpy()
    assert len(losses) == stopped.rounds
    assert losses.argmin() + 1 == stopped.best_round
    assert stopped.metrics["eval-logloss"] == losses.min()


def test_early_stopping_follows_the_last_metric_and_knows_which_way_is_up(data: dict[str, str]) -> None:
    params = {"eta": 0.9, "max_depth": 8, "eval_metric": ["logloss", "auc"]}
    result = run(data["binary"], rounds=60, early_stop=3, eval_fraction=0.3, params=params)
    areas = open_run(result.directory).read_table("rounds.parquet")["eval-auc"].to_numpy()
    assert areas.argmax() + 1 == result.best_round
    assert list(result.metrics) == ["eval-logloss", "eval-auc"]


@pytest.mark.parametrize("task", ROLES)
def test_ten_rounds_and_ten_more_are_twenty(data: dict[str, str], task: str) -> None:
    whole = run(data[task], rounds=20, **ROLES[task])
    half = run(data[task], rounds=10, **ROLES[task])
    more = run(data[task], rounds=10, continue_from=half.directory, **ROLES[task])
    assert half.model_digest != whole.model_digest
    assert more.model_digest == whole.model_digest
    assert more.objective == whole.objective
    assert more.booster.num_boosted_rounds() == 20


def test_going_on_with_new_categories_keeps_the_old_numbers(data: dict[str, str], tmp_path: Path) -> None:
    first = run(data["binary"], rounds=3)
    table = datasets.binary(900, seed=4)
    colours = ["azure" if colour == "blue" else colour for colour in table["colour"].to_pylist()]
    other = datasets.write(tmp_path / "more", datasets.replaced(table, colour=colours))
    second = dray.load(run(other, rounds=3, continue_from=first.directory).directory)
    [colour] = [feature for feature in second.features if feature.name == "colour"]
    assert colour.categories == (*datasets.COLOURS, "azure")
    before = [tree["split"] for tree in trees(first) if "split" in tree]
    assert [json.loads(tree)["split"] for tree in second.booster.get_dump(dump_format="json")[:3]] == before


def test_going_on_stops_early_on_its_own_rounds(data: dict[str, str]) -> None:
    first = run(data["binary"], rounds=4, eval_fraction=0.3)
    params = {"eta": 0.9, "max_depth": 8}
    more = run(data["binary"], rounds=60, eval_fraction=0.3, early_stop=3, params=params, continue_from=first.directory)
    assert more.rounds == more.best_round + 3
    assert more.booster.num_boosted_rounds() == 4 + more.best_round


def test_weights_count_as_repetitions(data: dict[str, str], tmp_path: Path) -> None:
    table = datasets.binary(800)
    twice = np.arange(800) % 3 == 0
    weighted = datasets.replaced(table, weight=np.where(twice, 2.0, 1.0))
    repeated = table.take(np.repeat(np.arange(800), np.where(twice, 2, 1)))
    # The same cuts for both, and no category: those depend on how often a value is seen.
    one = run(datasets.write(tmp_path / "one", weighted.select(["whole", "flag", "label", "weight"])), weight="weight",
              ignore=[])  # fmt: skip
    two = run(datasets.write(tmp_path / "two", repeated.select(["whole", "flag", "label"])), ignore=[])
    rows = xgboost.DMatrix(np.array([[number, 0] for number in range(50)], np.float32), feature_names=["whole", "flag"])
    np.testing.assert_allclose(one.booster.predict(rows), two.booster.predict(rows), rtol=1e-4)
    plain = run(str(tmp_path / "one"), ignore=["weight"])
    assert plain.model_digest != one.model_digest


def test_ignored_columns_and_roles_are_no_features(data: dict[str, str]) -> None:
    result = run(data["ranking"], group="query", weight="weight", ignore=["id", "price", "colour"])
    names = [feature.name for feature in dray.load(result.directory).features]
    assert names == [name for name in datasets.FEATURES if name not in ("price", "colour")]


def test_parameters_reach_the_learner(data: dict[str, str]) -> None:
    assert max(map(depth, trees(run(data["binary"], params={"max_depth": 2})))) == 2
    assert max(map(depth, trees(run(data["binary"], params={"max_depth": 5})))) == 5
    result = run(data["binary"], params={"eval_metric": "aucpr,error"}, eval_fraction=0.2)
    assert list(result.metrics) == ["eval-aucpr", "eval-error"]


def test_the_seed_decides_the_split_and_the_columns_drawn(data: dict[str, str]) -> None:
    settings = {"params": {"colsample_bytree": 0.5}}
    digests = [run(data["binary"], seed=seed, **settings).model_digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_sampling_rows_breaks_the_promise_and_says_so(data: dict[str, str]) -> None:
    result = run(data["binary"], params={"subsample": 0.5})
    assert not result.identity.holds
    assert "subsample" in result.identity.why
    assert any("subsample" in warning for warning in result.warnings)


def test_threads_are_what_was_asked_for_and_measured(data: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.threads.verify.LEAST_SECONDS", 0.0)  # this run is too short to be judged otherwise
    most = cpus_of_this_process()
    for asked, decided in ((None, most), (1, 1)):
        result = run(data["binary"], threads=asked)
        [proof] = result.threads
        assert (proof.worker, proof.decided) == (0, decided)
        assert proof.used > 0
        assert proof.ok == (proof.used >= 0.6 * decided)
        assert proof.ok or any(f"of {decided} cores used" in warning for warning in result.warnings)


def test_the_layout_of_the_files_does_not_matter(data: dict[str, str], tmp_path: Path) -> None:
    table = datasets.read(data["binary"])
    one_file = datasets.write(tmp_path / "one", table, files=1, row_group_rows=5000)
    assert run(one_file).model_digest == run(data["binary"]).model_digest


def test_the_run_directory_holds_all_there_is_to_know(data: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    result = run(data["binary"], out=str(out), eval_fraction=0.2, params={"max_depth": 3})
    assert {file.name for file in out.iterdir()} == {
        "run.json", "model.ubj", "cuts.parquet", "data.json", "events.jsonl", "rounds.parquet", "workers.parquet",
    }  # fmt: skip
    noted = json.loads((out / "data.json").read_text())
    assert sum(rows for _, rows, _ in noted["train"]) == datasets.ROWS
    assert [Path(file).name for file, *_ in noted["train"]] == [f"part-{index}.parquet" for index in range(3)]
    assert noted["eval"] == []
    document = json.loads((out / "run.json").read_text())
    assert document["status"] == "finished"
    assert document["run"] == result.run
    assert document["config"]["params"] == {"max_depth": 3}
    assert document["versions"]["xgboost"] == xgboost.__version__
    assert document["result"]["model_digest"] == result.model_digest
    assert document["result"]["metrics"] == result.metrics
    assert (result.directory, result.model) == (str(out), str(out / "model.ubj"))
    rounds = pq.read_table(out / "rounds.parquet")
    assert rounds["round"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert rounds["eval-auc"].to_pylist()[-1] == result.metrics["eval-auc"]
    cuts = pq.read_table(out / "cuts.parquet")
    assert tuple(cuts.column_names) == datasets.FEATURES
    assert set(pq.read_table(out / "workers.parquet")["worker"].to_pylist()) == {0}
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    phases = [event["name"] for event in events if event["kind"] == "phase"]
    assert phases == ["prepare", "start", "load", "train", "save"]
    assert {"data", "decided", "worker_started", "worker_loaded", "round", "threads"} <= set(kinds)
    [told] = [event for event in events if event["kind"] == "data"]
    assert (told["rows"], told["features"], told["files"]) == (datasets.ROWS, 9, 3)
    native = xgboost.Booster(model_file=str(out / "model.ubj"))
    assert native.num_boosted_rounds() == 6


def test_runs_are_kept_apart_by_default(data: dict[str, str], tmp_path: Path) -> None:
    one, two = run(data["binary"], rounds=1), run(data["binary"], rounds=1)
    assert one.directory != two.directory
    assert {Path(result.directory).parent for result in (one, two)} == {tmp_path / "runs"}


def test_data_and_run_may_be_in_a_bucket_and_no_key_is_written(
    data: dict[str, str], s3_server: S3Server, tmp_path: Path
) -> None:
    datasets.write(s3_server.directory / "data", datasets.binary(), files=3)
    result = run(s3_server.url("data"), out=s3_server.url("runs/one"), eval_fraction=0.2, rounds=4)
    local = run(data["binary"], eval_fraction=0.2, rounds=4)
    assert result.model_digest == local.model_digest
    assert result.metrics == local.metrics
    assert result.model == s3_server.url("runs/one/model.ubj")
    written = {file.name: file.read_bytes() for file in (s3_server.directory / "runs" / "one").iterdir()}
    assert set(written) == {file.name for file in Path(local.directory).iterdir()}
    for content in (*written.values(), *(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())):
        assert s3_server.secret_key.encode() not in content
        assert s3_server.access_key.encode() not in content
    assert dray.load(result.directory).digest() == result.model_digest


def test_continuing_keeps_the_bins_of_the_earlier_run(data: dict[str, str]) -> None:
    first = run(data["binary"], rounds=3, params={"max_bin": 16})
    more = run(data["binary"], rounds=3, continue_from=first.directory)
    assert more.model_digest == run(data["binary"], rounds=6, params={"max_bin": 16}).model_digest
    with pytest.raises(ConfigError, match="max_bin 16, not 32"):
        run(data["binary"], rounds=3, continue_from=first.directory, params={"max_bin": 32})
