"""The second opinion itself: on ordinary data it says what XGBoost says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from truth.metrics import Rows, as_predicted, is_better, metric

ROWS = 700

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("binary:logistic", {}, ["logloss", "auc", "aucpr", "error", "error@0.3", "rmse", "mae"]),
    ("binary:hinge", {}, ["error", "auc"]),
    ("binary:logitraw", {}, ["auc", "aucpr"]),
    ("binary:logistic", {"num_parallel_tree": 20, "colsample_bynode": 0.5}, ["ams@0.15", "ams@0"]),
    ("multi:softprob", {"num_class": 4}, ["merror", "mlogloss", "auc"]),
    ("multi:softmax", {"num_class": 4}, ["merror", "mlogloss"]),
    ("reg:squarederror", {}, ["rmse", "mae", "mape", "mphe"]),
    ("reg:pseudohubererror", {"huber_slope": 2.5}, ["mphe"]),
    ("reg:squaredlogerror", {}, ["rmsle"]),
    ("reg:absoluteerror", {}, ["mae"]),
    ("reg:quantileerror", {"quantile_alpha": 0.95}, ["quantile"]),
    ("reg:quantileerror", {"quantile_alpha": [0.1, 0.5, 0.9]}, ["quantile"]),
    ("count:poisson", {}, ["poisson-nloglik", "rmse"]),
    ("reg:gamma", {}, ["gamma-nloglik", "gamma-deviance"]),
    ("reg:tweedie", {"tweedie_variance_power": 1.3}, ["tweedie-nloglik@1.3", "tweedie-nloglik@1.8"]),
    ("rank:ndcg", {}, ["ndcg", "ndcg@3", "ndcg@3-"]),
    ("rank:ndcg", {"ndcg_exp_gain": False}, ["ndcg@4"]),
    ("rank:map", {}, ["map", "map@3", "map@3-", "pre@3"]),
    ("rank:pairwise", {}, ["ndcg@5"]),
]


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("objective", "params", "names"), CASES)
def test_a_metric_is_what_xgboost_says(
    objective: str, params: dict[str, Any], names: list[str], weighted: bool
) -> None:
    random = np.random.default_rng(len(names) + ROWS)
    features = random.normal(size=(ROWS, 4)).astype(np.float32)
    signal = features[:, 0] + random.normal(size=ROWS)
    group = None
    if objective.startswith("binary"):
        label = (signal > 0.3).astype(np.float32)
    elif objective.startswith("multi"):
        label = np.searchsorted([-1, 0, 1], signal).astype(np.float32)
    elif objective.startswith("rank"):
        label = np.searchsorted([0.5, 1, 2] if objective != "rank:map" else [0.5], signal).astype(np.float32)
        group = np.repeat(np.arange(ROWS), random.integers(1, 12, ROWS))[:ROWS]
        if weighted:  # XGBoost's NDCG gives a group without any relevance the weight 1
            label[np.unique(group, return_index=True)[1]] = 1
    elif objective == "count:poisson":
        label = random.poisson(np.exp(signal / 2)).astype(np.float32)
    else:
        label = np.exp(signal).astype(np.float32)
    matrix = xgboost.DMatrix(features, label)
    weight = None
    if group is not None:
        sizes = np.unique(group, return_counts=True)[1]
        matrix.set_group(sizes)
    if weighted:
        by_group = random.uniform(0.2, 3, len(np.unique(group)) if group is not None else ROWS)
        matrix.set_weight(by_group)
        weight = by_group.astype(np.float32).astype(np.float64)
        weight = weight if group is None else np.repeat(weight, np.unique(group, return_counts=True)[1])
    told: dict[str, Any] = {}
    asked = {"objective": objective, "eval_metric": names, "max_depth": 3, **params}
    booster = xgboost.train(asked, matrix, 5, evals=[(matrix, "eval")], evals_result=told, verbose_eval=False)
    margin = booster.predict(matrix, output_margin=True).astype(np.float64)
    prediction = margin if objective == "binary:logitraw" else as_predicted(objective, margin)
    rows = Rows(label.astype(np.float64), prediction, weight, group)
    for name in names:
        assert metric(name, rows, params) == pytest.approx(told["eval"][name][-1], rel=2e-6), name


def test_predictions_come_from_margins_as_in_xgboost() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(200, 3)).astype(np.float32)
    whole = (features[:, 0] > 0).astype(int) + (features[:, 1] > 0)
    for objective, params in (
        ("binary:logistic", {}),
        ("binary:hinge", {}),
        ("multi:softprob", {"num_class": 3}),
        ("count:poisson", {}),
        ("reg:gamma", {}),
        ("reg:tweedie", {}),
        ("reg:logistic", {}),
        ("reg:absoluteerror", {}),
    ):
        label = np.minimum(whole, 1) if objective.startswith(("binary", "reg:logistic")) else whole
        label = label + 1 if objective == "reg:gamma" else label
        booster = xgboost.train({"objective": objective, **params}, xgboost.DMatrix(features, label), 3)
        rows = xgboost.DMatrix(features)
        found = as_predicted(objective, booster.predict(rows, output_margin=True).astype(np.float64))
        np.testing.assert_allclose(found, booster.predict(rows), rtol=1e-6, err_msg=objective)


def test_more_is_better_only_where_it_is() -> None:
    assert is_better("eval-auc", 0.8, 0.7)
    assert is_better("ndcg@5-", 0.8, 0.7)
    assert is_better("ams@0.15", 3, 2)
    assert not is_better("eval-logloss", 0.8, 0.7)
    assert is_better("quantile", 0.1, 0.7)
