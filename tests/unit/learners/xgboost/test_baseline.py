"""The metrics of a model without trees, against what NumPy makes of the labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dray
from dray.data.split import Split
from small_data import mixed_rows, write

ROWS = 1500


def trained(tmp_path: Path, label: str, classes: int = 2, **settings: Any) -> tuple[Any, Any, Any, Any]:
    """Return a result, the labels, which rows were held out, and the weights."""
    columns = mixed_rows(ROWS, classes=classes)
    others = [name for name in ("label", "value", "weight") if name not in (label, settings.get("weight"))]
    data = write(tmp_path / "data.parquet", columns, 400)
    asked = {
        "eval_fraction": 0.3,
        "stratify": False,
        "rounds": 3,
        "ignore": others,
        "out": str(tmp_path / "run"),
    } | settings
    result = dray.train(data, label, **asked)
    held_out = Split(0.3, 0).picks(np.arange(ROWS))
    weight = columns["weight"].to_numpy().astype(float) if "weight" in settings else np.ones(ROWS)
    return result, columns[label].to_numpy().astype(float), held_out, weight


@pytest.mark.parametrize("settings", [{}, {"weight": "weight"}])
def test_a_regression_stands_beside_the_mean_of_the_training_rows(tmp_path: Path, settings: dict[str, Any]) -> None:
    result, y, test, w = trained(tmp_path, "value", **settings)
    mean = np.average(y[~test], weights=w[~test])
    assert result.baseline["eval-rmse"] == pytest.approx(
        np.sqrt(np.average((y[test] - mean) ** 2, weights=w[test])), 1e-6
    )
    assert result.baseline["eval-mae"] == pytest.approx(np.average(np.abs(y[test] - mean), weights=w[test]), 1e-6)
    assert "(always the mean: " in result.verdict and result.verdict.endswith(" % better")


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw"])
def test_two_classes_stand_beside_their_base_rate(tmp_path: Path, objective: str) -> None:
    metrics = {"eval_metric": ["auc", "error", "logloss"]}
    result, y, test, _ = trained(tmp_path, "label", objective=objective, params=metrics | {"scale_pos_weight": 1})
    rate = y[~test].mean()
    assert result.baseline["eval-auc"] == 0.5
    assert result.baseline["eval-error"] == pytest.approx(np.mean(y[test] != (rate > 0.5)))
    loss = -np.mean(np.where(y[test] > 0, np.log(rate), np.log(1 - rate)))
    assert result.baseline["eval-logloss"] == pytest.approx(loss, 1e-6)


def test_weights_of_the_positive_class_do_not_change_the_base_rate(tmp_path: Path) -> None:
    plain, *_ = trained(tmp_path / "a", "label")
    weighted, *_ = trained(tmp_path / "b", "label", params={"scale_pos_weight": 5})
    assert weighted.baseline == plain.baseline


@pytest.mark.parametrize(
    "objective",
    [
        *("reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror"),
        *("count:poisson", "reg:gamma", "reg:tweedie"),
    ],
)
def test_the_mean_is_that_of_the_labels_whatever_the_objective(tmp_path: Path, objective: str) -> None:
    random = np.random.default_rng(3)
    y = np.exp(random.normal(size=ROWS)).astype(np.float32) + 50
    data = write(tmp_path / "data.parquet", {"x": random.normal(size=ROWS), "y": y})
    out = str(tmp_path / "run")
    metrics = {"eval_metric": ["rmse", "mae"]}
    result = dray.train(data, "y", eval_fraction=0.3, rounds=2, objective=objective, params=metrics, out=out)
    test = Split(0.3, 0).picks(np.arange(ROWS))
    mean = y[~test].astype(float).mean()
    assert result.baseline["eval-rmse"] == pytest.approx(np.sqrt(np.mean((y[test] - mean) ** 2)), 1e-3)
    assert result.baseline["eval-mae"] == pytest.approx(np.mean(np.abs(y[test] - mean)), 1e-3)
    assert "(always the mean: " in result.verdict


def test_several_classes_stand_beside_their_shares(tmp_path: Path) -> None:
    result, y, test, _ = trained(tmp_path, "label", classes=3, params={"objective": "multi:softprob"})
    shares = np.bincount(y[~test].astype(int)) / (~test).sum()
    assert result.baseline["eval-mlogloss"] == pytest.approx(-np.log(shares[y[test].astype(int)]).mean(), 1e-6)
    assert result.baseline["eval-merror"] == pytest.approx(np.mean(y[test] != shares.argmax()))


def test_what_is_compared_with_does_not_depend_on_a_base_score_of_the_users(tmp_path: Path) -> None:
    plain, *_ = trained(tmp_path / "a", "value")
    given, *_ = trained(tmp_path / "b", "value", params={"base_score": 7.0})
    assert given.baseline == plain.baseline


def test_the_result_on_disk_has_it_and_a_run_without_evaluation_has_none(tmp_path: Path) -> None:
    result, *_ = trained(tmp_path, "value")
    document = json.loads((tmp_path / "run" / "run.json").read_text())
    assert document["result"]["baseline"] == result.baseline and document["result"]["verdict"] == result.verdict
    none, *_ = trained(tmp_path / "none", "value", eval_fraction=None)
    assert (none.baseline, none.verdict) == ({}, "")


def test_a_model_that_is_worse_than_none_says_so_and_what_to_do(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    data = write(
        tmp_path / "noise.parquet",
        {f"x{i}": random.normal(size=600) for i in range(5)} | {"y": random.normal(size=600)},
    )
    result = dray.train(data, "y", eval_fraction=0.3, rounds=60, out=str(tmp_path / "run"))
    assert result.verdict.endswith(" % worse")
    [told] = [warning for warning in result.warnings if "worse than no model" in warning]
    assert "early" in told
    stopped = dray.train(data, "y", eval_fraction=0.3, rounds=60, early_stop=1, out=str(tmp_path / "stopped"))
    [told] = [warning for warning in stopped.warnings if "worse than no model" in warning]
    assert told.endswith('Take smaller steps: params={"learning_rate": 0.05}.')


@pytest.mark.parametrize(("rate", "warned"), [(0.001, False), (0.2, True)])
def test_a_model_is_worse_than_none_only_where_its_verdict_says_so(tmp_path: Path, rate: float, warned: bool) -> None:
    random = np.random.default_rng(5)
    data = write(tmp_path / "noise.parquet", {"x": random.normal(size=600), "y": random.normal(size=600)})
    params = {"learning_rate": rate}
    result = dray.train(data, "y", eval_fraction=0.3, rounds=10, params=params, out=str(tmp_path / "run"))
    assert result.metrics["eval-rmse"] > result.baseline["eval-rmse"]
    assert result.verdict.endswith(" % worse" if warned else "no better")
    assert any("worse than no model" in warning for warning in result.warnings) == warned
