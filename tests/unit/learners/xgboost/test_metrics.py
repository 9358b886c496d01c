"""The table of objectives and metrics, compared with XGBoost itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from dray.errors import ConfigError, DataError
from dray.events.metrics import HIGHER_IS_BETTER, XGBOOST_METRICS, parse_metric
from dray.learners.labels import LabelSummary
from dray.learners.xgboost.metrics import OBJECTIVES, check_metric_labels, known_objective, metrics_for

NEEDED: dict[str, dict[str, Any]] = {
    "multi:softprob": {"num_class": 2},
    "multi:softmax": {"num_class": 2},
    "reg:quantileerror": {"quantile_alpha": [0.9]},
}
WITH_A_NUMBER = {"ams": "ams@0.15", "tweedie-nloglik": "tweedie-nloglik@1.5"}


def booster(objective: str, **params: Any) -> tuple[xgboost.Booster, xgboost.DMatrix]:
    labels = np.arange(20) % 2 + (objective == "reg:gamma")
    rows = xgboost.DMatrix(np.arange(20, dtype=np.float32)[:, None] % 7, label=labels)
    if objective.startswith("rank:"):
        rows.set_group([10, 10])
    own = {"objective": objective, "verbosity": 0} | NEEDED.get(objective, {}) | params
    made = xgboost.Booster(own, cache=[rows])
    made.update(rows, 0)
    return made, rows


def told(objective: str, **params: Any) -> list[str]:
    made, rows = booster(objective, **params)
    return [item.rpartition(":")[0] for item in made.eval(rows, "eval").split("\t")[1:]]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_last_default_metric_is_the_one_that_xgboost_chooses(objective: str) -> None:
    [own] = told(objective)
    chosen = metrics_for(objective, NEEDED.get(objective, {}))
    assert parse_metric(chosen[-1]).name == parse_metric(own.removeprefix("eval-")).name
    assert told(objective, eval_metric=chosen) == [f"eval-{name}" for name in chosen]


def test_the_table_holds_every_objective_of_xgboost() -> None:
    with pytest.raises(xgboost.core.XGBoostError) as raised:
        booster("nonsense")
    known = {line.rpartition(" ")[2] for line in str(raised.value).splitlines() if line.startswith("Objective cand")}
    assert known - {"survival:aft", "survival:cox"} == set(OBJECTIVES)


@pytest.mark.parametrize("name", sorted(XGBOOST_METRICS))
def test_xgboost_has_every_metric_of_the_table(name: str) -> None:
    metric = WITH_A_NUMBER.get(name, name)
    objective = "multi:softprob" if name in ("merror", "mlogloss") else "reg:squarederror"
    if name in ("aft-nloglik", "interval-regression-accuracy"):  # they need labels of their own kind
        with pytest.raises(xgboost.core.XGBoostError, match="labels_lower_bound"):
            told(objective, eval_metric=metric)
    else:
        assert told(objective, eval_metric=metric, quantile_alpha=0.5) == [f"eval-{metric}"]


def test_the_direction_of_each_metric_is_that_of_a_better_model() -> None:
    """Fifty rounds fit the rows better than one does, and each metric says so in its own direction."""
    for objective in ("binary:logistic", "multi:softprob", "rank:pairwise", "count:poisson", "reg:squarederror"):
        names = []
        for name in XGBOOST_METRICS:
            metric = WITH_A_NUMBER.get(name, name)
            try:
                names += metrics_for(objective, {"eval_metric": metric, "quantile_alpha": 0.5})
            except ConfigError:
                continue
        random = np.random.default_rng(3)
        values = random.normal(size=(400, 3)).astype(np.float32)
        labels = (values[:, 0] + values[:, 1] + random.normal(size=400) > 0).astype(np.float32)
        if objective in ("count:poisson", "reg:squarederror"):
            labels, names = labels + 1, [name for name in names if "auc" not in name]
        rows = xgboost.DMatrix(values, label=labels)
        if objective.startswith("rank:"):
            rows.set_group([40] * 10)
        params = {"objective": objective, "eval_metric": names, "quantile_alpha": 0.5, "verbosity": 0}
        params |= {"num_class": 2} if objective.startswith("multi:") else {}
        made, seen = xgboost.Booster(params, cache=[rows]), []
        for number in range(50):
            made.update(rows, number)
            seen.append({k: float(v) for k, v in (item.rsplit(":", 1) for item in made.eval(rows).split("\t")[1:])})
        assert names
        for name in names:
            first, last = seen[0][f"eval-{name}"], seen[-1][f"eval-{name}"]
            assert (last > first) is HIGHER_IS_BETTER[parse_metric(name).name], (objective, name, first, last)


def test_companions_stand_before_the_metric_that_decides() -> None:
    assert metrics_for("binary:logistic", {}) == ["auc", "logloss"]
    assert metrics_for("multi:softprob", {}) == ["merror", "mlogloss"]
    assert metrics_for("reg:squarederror", {}) == ["mae", "rmse"]
    assert metrics_for("reg:absoluteerror", {}) == ["rmse", "mae"]
    assert metrics_for("rank:ndcg", {}) == ["ndcg@10"]
    assert metrics_for("rank:map", {}) == ["ndcg@10", "map@10"]
    assert metrics_for("binary:hinge", {}) == ["error"]
    assert metrics_for("reg:quantileerror", {"quantile_alpha": [0.1, 0.9]}) == ["quantile"]


def test_the_metric_of_tweedie_has_the_power_of_the_objective() -> None:
    assert metrics_for("reg:tweedie", {})[-1] == "tweedie-nloglik@1.5"
    assert metrics_for("reg:tweedie", {"tweedie_variance_power": 1.2})[-1] == "tweedie-nloglik@1.2"
    assert metrics_for("reg:tweedie", {"eval_metric": "tweedie-nloglik", "tweedie_variance_power": "1.7"}) == [
        "tweedie-nloglik@1.7"
    ]


def test_metrics_may_be_a_list_or_a_text_and_keep_their_order() -> None:
    assert metrics_for("binary:logistic", {"eval_metric": "logloss, auc"}) == ["logloss", "auc"]
    assert metrics_for("binary:logistic", {"eval_metric": ["error@0.7", "auc"]}) == ["error@0.7", "auc"]
    assert metrics_for("binary:logistic", {"eval_metric": []}) == ["auc", "logloss"]


def test_a_metric_that_is_named_twice_decides_when_it_is_last() -> None:
    assert metrics_for("binary:logistic", {"eval_metric": ["auc", "logloss", "auc"]}) == ["logloss", "auc"]


MEANINGLESS = [
    ("binary:logistic", "mlogloss"),
    ("binary:logistic", "poisson-nloglik"),
    ("binary:logitraw", "rmse"),  # of margins
    ("binary:hinge", "logloss"),  # of 0 and 1
    ("multi:softprob", "logloss"),
    ("multi:softprob", "rmse"),
    ("reg:squarederror", "logloss"),  # -34 for labels of 0 to 4
    ("reg:squarederror", "error"),
    ("reg:squarederror", "merror"),
    ("reg:squarederror", "gamma-deviance"),
    ("reg:squarederror", "cox-nloglik"),
    ("reg:squarederror", "aft-nloglik"),
    ("reg:squarederror", "ndcg@5"),  # without groups
    ("binary:logistic", "pre@5"),
    ("rank:ndcg", "rmse"),
    ("rank:ndcg", "logloss"),
    ("count:poisson", "error"),
]


@pytest.mark.parametrize(("objective", "metric"), MEANINGLESS)
def test_a_metric_that_says_nothing_about_the_predictions_is_refused(objective: str, metric: str) -> None:
    with pytest.raises(ConfigError, match=f"{metric} does not fit {objective}") as raised:
        metrics_for(objective, {"eval_metric": ["auc", metric]})
    assert "leave eval_metric out" in raised.value.fix


def test_several_quantiles_have_no_metric_of_one_prediction() -> None:
    several = {"quantile_alpha": [0.1, 0.9]}
    with pytest.raises(ConfigError, match="one prediction a row"):
        metrics_for("reg:quantileerror", several | {"eval_metric": "mae"})
    with pytest.raises(ConfigError, match="takes one quantile"):
        metrics_for("reg:squarederror", several | {"eval_metric": "quantile"})
    with pytest.raises(ConfigError, match="needs quantile_alpha"):
        metrics_for("reg:squarederror", {"eval_metric": "quantile"})
    assert metrics_for("reg:quantileerror", {"quantile_alpha": 0.9, "eval_metric": "mae"}) == ["mae"]


def summary(*labels: float) -> LabelSummary:
    return LabelSummary.of(np.array(labels, np.float32))


@pytest.mark.parametrize(
    ("objective", "metric", "labels", "need"),
    [
        ("reg:squarederror", "auc", (0, 2), "labels from 0 to 1"),
        ("reg:squarederror", "aucpr", (-1, 1), "labels from 0 to 1"),
        ("rank:ndcg", "aucpr", (0, 2), "labels of 0 and 1"),
        ("rank:ndcg", "map@5", (0, 3), "labels of 0 and 1"),
        ("rank:ndcg", "pre@5", (0, 0.5), "labels of 0 and 1"),
        ("rank:pairwise", "ndcg@5", (0, 32), "up to 31"),
        ("rank:pairwise", "ndcg@5", (0, 1.5), "whole numbers"),
        ("reg:squarederror", "rmsle", (-1, 3), "greater than -1"),
        ("count:poisson", "gamma-deviance", (0, 3), "positive labels"),
        ("reg:squarederror", "mape", (0, 3), "by which it divides"),
    ],
)
def test_labels_that_a_metric_cannot_be_taken_of_are_refused(
    objective: str, metric: str, labels: tuple[float, ...], need: str
) -> None:
    with pytest.raises(DataError, match=need) as raised:
        check_metric_labels("y", summary(*labels), objective, [metric, *OBJECTIVES[objective].metrics[-1:]], {})
    assert metric in raised.value.what and '"y"' in raised.value.what


def test_other_labels_pass() -> None:
    check_metric_labels("y", summary(0, 0.5, 1), "reg:squarederror", ["auc", "rmse"], {})
    check_metric_labels("y", summary(0, 3), "rank:ndcg", ["auc", "ndcg@3"], {})
    check_metric_labels("y", summary(0, 1), "rank:ndcg", ["map@3", "pre", "aucpr"], {})
    check_metric_labels("y", summary(0, 40.5), "rank:pairwise", ["ndcg@3"], {"ndcg_exp_gain": "false"})
    check_metric_labels("y", summary(0, 2), "multi:softprob", ["auc", "aucpr", "mlogloss"], {})
    check_metric_labels("y", summary(-3, 3), "reg:squarederror", ["mape"], {})


def test_an_area_that_decides_needs_both_outcomes() -> None:
    with pytest.raises(DataError, match="Every label of the evaluation set is 1"):
        check_metric_labels("y", summary(1, 1), "binary:logistic", ["logloss", "auc"], {})
    check_metric_labels("y", summary(1, 1), "binary:logistic", ["auc", "logloss"], {})


def test_objectives_are_known_by_either_name() -> None:
    assert known_objective("ranking") == "rank:ndcg"
    assert known_objective("count:poisson") == "count:poisson"
