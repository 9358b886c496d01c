"""Cases that were told wrong once, by hand: random ones may not hit them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost

import dray
from dray.learners.xgboost.result import TrainResult
from truth.cases import Case, ColumnKind
from truth.checking import check
from truth.metrics import Rows, as_predicted, metric

HERE: dict[str, Any] = {"workers": 0, "threads": 1}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, **columns: Any) -> str:
    table = pa.table({"id": np.arange(len(next(iter(columns.values())))), **columns})
    pq.write_table(table, name, row_group_size=1000)
    return name


def trained(data: str, out: str = "run", **settings: Any) -> TrainResult:
    return dray.train(data, label="label", ignore=["id"], out=out, **HERE, **settings)


def predicted(data: str, run: str = "run", output: Any = None) -> np.ndarray[Any, np.dtype[np.float64]]:
    with tempfile.TemporaryDirectory() as place:
        dray.predict(run, data, f"{place}/out.parquet", keep=["id"], output=output, **HERE)
        found = pq.read_table(f"{place}/out.parquet")
    assert found["id"].to_pylist() == pq.read_table(data)["id"].to_pylist()
    columns = [found[name].to_numpy().astype(np.float64) for name in found.column_names if name != "id"]
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def labels(data: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return pq.read_table(data)["label"].to_numpy().astype(np.float32).astype(np.float64)


def agrees(result: TrainResult, data: str, **params: Any) -> None:
    """Every metric told of the evaluation rows `data` is that of the predictions."""
    rows = Rows(labels(data), predicted(data, result.directory))
    assert result.metrics
    assert result.metrics == {name: pytest.approx(metric(name, rows, params), rel=1e-6) for name in result.metrics}


def amounts(rows: int, seed: int, *, times: float = 1.0, tell: bool = True) -> dict[str, Any]:
    """`amount` is lognormal(3, 2) with 5 % null; the label is 1 for 70 % of the nulls, and for few others."""
    random = np.random.default_rng(seed)
    amount = random.lognormal(3, 2, rows) * times
    null = random.random(rows) < 0.05
    label = random.random(rows) < np.where(null, 0.7 if tell else 0.02, 0.02)
    return {"amount": pa.array(amount, mask=null), "label": label.astype(np.int64)}


# What is told is what is predicted.


def test_large_amounts_are_not_taken_for_missing_ones() -> None:
    data, more = write("train.parquet", **amounts(20_000, 1)), write("eval.parquet", **amounts(20_000, 2))
    result = trained(data, eval=[more], rounds=20)
    agrees(result, more)
    table = pq.read_table(more)
    large = table["amount"].to_numpy() > np.nanmax(pq.read_table(data)["amount"].to_numpy()) * 0.5
    missing = np.asarray(table["amount"].is_null())
    score = predicted(more, result.directory)
    assert score[missing].mean() == pytest.approx(0.7, abs=0.1)
    assert large.any()
    assert score[large].max() < 0.3


def test_an_evaluation_file_with_a_column_50_times_as_wide_is_told_as_it_is() -> None:
    wide = amounts(4000, 2, times=50)
    result = trained(write("train.parquet", **amounts(20_000, 1)), eval=[write("wide.parquet", **wide)], rounds=20)
    agrees(result, "wide.parquet")


def test_a_run_that_goes_on_with_wide_data_is_told_as_it_is() -> None:
    trained(write("train.parquet", **amounts(4000, 1)), rounds=10)
    wide = write("wide.parquet", **amounts(4000, 2, times=50, tell=False))
    result = trained(wide, "next", eval=[wide], rounds=10, continue_from="run")
    agrees(result, wide)


@pytest.mark.parametrize("factor", [50.0, -50.0, 1e30])
def test_values_beyond_all_of_training_go_where_the_largest_go(factor: float) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=3000)
    hidden = random.random(3000) < 0.1
    label = np.where(hidden, 10.0, x)
    data = write("train.parquet", x=pa.array(x, mask=hidden), label=label)
    far = write("far.parquet", x=np.array([factor, factor * 2, np.sign(factor) * 3e38]), label=np.zeros(3))
    result = trained(data, eval=[far], rounds=30)
    agrees(result, far)
    best = x.max() if factor > 0 else x.min()
    ends = write("ends.parquet", x=np.array([best]), label=np.zeros(1))
    assert set(predicted(far, result.directory)) == set(predicted(ends, result.directory))


# The booster in plain XGBoost.


def test_plain_xgboost_predicts_the_same_from_pandas_categories_in_any_order_with_one_absent() -> None:
    random = np.random.default_rng(0)
    names = np.array(["ash", "birch", "cedar", "date palm", "elm"])
    tree, other = random.choice(names, 2000), random.choice(names, 2000)
    label = (np.sin(3 * np.searchsorted(names, tree)) + random.normal(size=2000) > 0).astype(int)
    data = write(
        "train.parquet", tree=tree, other=pa.array(other).dictionary_encode(), x=random.normal(size=2000), label=label
    )
    result = trained(data, rounds=20, params={"max_cat_to_onehot": 1})
    told = predicted(data, result.directory)
    booster = xgboost.Booster(model_file=f"{result.directory}/model.ubj")
    rows = tree != "ash"
    frame = pq.read_table(data).to_pandas()[["tree", "other", "x"]][rows]
    for order in (["elm", "cedar", "birch", "date palm"], ["birch", "date palm", "elm", "cedar"]):
        frame["tree"] = pd.Categorical(tree[rows], categories=order)
        frame["other"] = pd.Categorical(other[rows], categories=names[::-1])
        found = booster.predict(xgboost.DMatrix(frame, enable_categorical=True))
        np.testing.assert_allclose(found, told[rows], rtol=1e-6)


# Early stopping looks at the objective's own metric.


def positives(rows: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    label = np.exp(x[:, 0] + 0.7 * random.standard_normal(rows))
    return {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": label}


@pytest.mark.parametrize(
    ("objective", "params", "own"),
    [
        ("reg:quantileerror", {"quantile_alpha": 0.95}, "quantile"),
        ("reg:gamma", {}, "gamma-deviance"),
        ("reg:absoluteerror", {}, "mae"),
        ("reg:pseudohubererror", {}, "mphe"),
        ("reg:squaredlogerror", {}, "rmsle"),
        ("reg:tweedie", {"tweedie_variance_power": 1.3}, "tweedie-nloglik@1.3"),
    ],
)
def test_the_objectives_own_metric_decides(objective: str, params: dict[str, Any], own: str) -> None:
    data, held = write("train.parquet", **positives(1500, 1)), write("eval.parquet", **positives(1500, 2))
    settings: dict[str, Any] = {"eval": [held], "rounds": 150, "early_stop": 5, "objective": objective}
    result = trained(data, params={"eta": 0.4, **params}, **settings)
    assert list(result.metrics)[-1] == f"eval-{own}"
    assert result.rounds == result.best_round + 5 < 150
    values = pq.read_table(f"{result.directory}/rounds.parquet")[f"eval-{own}"].to_pylist()
    assert int(np.argmin(values)) + 1 == result.best_round
    assert result.booster.num_boosted_rounds() == result.best_round
    agrees(result, held, **params)


def binary(rows: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    return {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": (x[:, 0] + random.normal(size=rows) > 0).astype(int)}


def test_the_log_loss_of_logitraw_is_that_of_its_probabilities() -> None:
    data, held = write("train.parquet", **binary(1500, 1)), write("eval.parquet", **binary(1500, 2))
    settings: dict[str, Any] = {"eval": [held], "rounds": 100, "early_stop": 5}
    result = trained(data, objective="binary:logitraw", **settings)
    assert 1 < result.best_round < result.rounds < 100
    margins = predicted(held, result.directory, output="margin")
    rows = Rows(labels(held), as_predicted("binary:logitraw", margins))
    assert result.metrics == {name: pytest.approx(metric(name, rows), rel=1e-6) for name in result.metrics}
    assert result.metrics["eval-logloss"] < 0.6


def test_hinge_stops_by_its_error() -> None:
    data, held = write("train.parquet", **binary(1500, 1)), write("eval.parquet", **binary(1500, 2))
    result = trained(data, objective="binary:hinge", eval=[held], rounds=60, early_stop=5)
    assert list(result.metrics)[-1] == "eval-error"
    assert result.best_round > 1
    agrees(result, held)


def test_ams_is_to_be_large() -> None:
    data, held = write("train.parquet", **binary(3000, 1)), write("eval.parquet", **binary(3000, 2))
    result = trained(data, eval=[held], rounds=40, early_stop=5, params={"eval_metric": "ams@0.2", "max_depth": 3})
    values = pq.read_table(f"{result.directory}/rounds.parquet")["eval-ams@0.2"].to_pylist()
    assert int(np.argmax(values)) + 1 == result.best_round
    assert result.metrics["eval-ams@0.2"] == max(values)


def test_several_quantiles_are_predicted_beside_each_other() -> None:
    data, held = write("train.parquet", **positives(1500, 1)), write("eval.parquet", **positives(500, 2))
    params = {"quantile_alpha": [0.1, 0.5, 0.9]}
    result = trained(data, objective="reg:quantileerror", eval=[held], rounds=20, params=params)
    found = predicted(held, result.directory)
    assert found.shape == (500, 3)
    assert (found[:, 0] < found[:, 2]).mean() > 0.95
    agrees(result, held, **params)


# Dart.


@pytest.mark.parametrize("early_stop", [None, 4])
def test_dart_tells_the_metric_of_the_model_it_keeps(early_stop: int | None) -> None:
    data, held = write("train.parquet", **binary(1500, 1)), write("eval.parquet", **binary(1500, 2))
    params = {"booster": "dart", "rate_drop": 0.3, "eta": 0.5, "one_drop": 1}
    result = trained(data, eval=[held], rounds=40, early_stop=early_stop, params=params)
    if early_stop is not None:
        assert result.best_round < result.rounds < 40
        assert result.booster.num_boosted_rounds() == result.best_round
    agrees(result, held)


@pytest.mark.parametrize(("first", "then"), [("gbtree", "dart"), ("dart", "gbtree"), ("dart", "dart")])
def test_a_run_that_goes_on_with_another_booster_ends(first: str, then: str) -> None:
    """It may be refused, but not go on for ever; in a process of its own, since that one could not be ended here."""
    data, held = write("train.parquet", **binary(400, 1)), write("eval.parquet", **binary(400, 2))
    trained(data, rounds=4, params={"booster": first})
    program = (
        "import json, sys, dray\n"
        "try:\n"
        f"    r = dray.train({data!r}, label='label', ignore=['id'], eval=[{held!r}], rounds=3, workers=0, threads=1,\n"
        f"                   continue_from='run', params={{'booster': {then!r}}}, out='next')\n"
        "    print(json.dumps(r.metrics))\n"
        "except dray.DrayError as error:\n"
        "    print(json.dumps({'refused': str(error)}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(ended.stdout.splitlines()[-1])
    if "refused" in told:
        assert first != then
        assert "dart" in told["refused"]
        return
    rows = Rows(labels(held), predicted(held, "next"))
    assert told == {name: pytest.approx(metric(name, rows), rel=1e-6) for name in told}


# Cuts.


def test_going_on_twice_keeps_600_cuts() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=5000)
    data = write("train.parquet", x=x, label=np.sin(20 * x))
    trained(data, "first", rounds=2, params={"max_bin": 600})
    trained(data, "second", rounds=2, continue_from="first")
    trained(data, "third", rounds=2, continue_from="second")
    first, third = (pq.read_table(f"{run}/cuts.parquet")["x"].to_numpy() for run in ("first", "third"))
    assert np.isfinite(first).sum() >= 600
    np.testing.assert_array_equal(first, third)


# Found by random cases.


def test_the_ndcg_of_weighted_groups_counts_those_without_relevance_by_their_weight() -> None:
    check(
        Case(
            seed=3,
            columns=(ColumnKind("normal64"),),
            objective="rank:ndcg",
            label="relevance",
            weight="uniform",
            evaluation="file",
        ),
        Path.cwd(),
    )


def test_margins_of_softmax_have_a_column_a_class() -> None:
    check(Case(objective="multi:softmax", label="text", columns=(ColumnKind("normal64"),)), Path.cwd())
