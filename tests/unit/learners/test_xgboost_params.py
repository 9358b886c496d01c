from __future__ import annotations

from typing import Any

import pytest

from dray.errors import ConfigError
from dray.learners.xgboost_params import (
    asked_objective,
    bins_of,
    broken_promise,
    check_params,
    complete,
    is_better,
    metrics_for,
)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("max_dept", "max_depth"), ("learnin_rate", "learning_rate"), ("subsampl", "subsample"), ("labmda", "lambda")],
)
def test_an_unknown_parameter_names_the_nearest(misspelt: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f'no parameter "{misspelt}". Did you mean "{meant}"'):
        check_params({"eta": 0.1, misspelt: 1})


def test_an_unknown_parameter_that_resembles_none_is_refused_without_a_guess() -> None:
    with pytest.raises(ConfigError) as raised:
        check_params({"qqqq": 1})
    assert "Did you mean" not in raised.value.what
    assert "parameter.html" in raised.value.fix


def test_known_parameters_and_their_aliases_pass() -> None:
    check_params({"eta": 0.1, "learning_rate": 0.1, "reg_lambda": 1, "lambda": 1, "max_bin": 64, "eval_metric": "auc"})
    check_params({"tree_method": "hist", "booster": "dart", "rate_drop": 0.1})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("nthread", "--threads"),
        ("n_jobs", "--threads"),
        ("num_boost_round", "--rounds"),
        ("n_estimators", "--rounds"),
        ("seed", "--seed"),
        ("early_stopping_rounds", "--early-stop"),
    ],
)
def test_a_parameter_that_dray_decides_names_the_flag(name: str, instead: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_params({name: 3})
    assert name in raised.value.what and instead in raised.value.fix


@pytest.mark.parametrize(("name", "value"), [("tree_method", "exact"), ("booster", "gblinear"), ("updater", "shotgun")])
def test_what_does_not_work_on_binned_data_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError):
        check_params({name: value})


def test_two_objectives_must_be_the_same_one() -> None:
    assert asked_objective("binary", {"objective": "binary:logistic"}) == "binary:logistic"
    assert asked_objective(None, {"objective": "regression"}) == "reg:squarederror"
    assert asked_objective(None, {}) is None
    with pytest.raises(ConfigError, match="Two objectives"):
        asked_objective("binary", {"objective": "reg:squarederror"})


@pytest.mark.parametrize("value", [1, 0, "many", None])
def test_max_bin_must_be_a_number_from_two(value: Any) -> None:
    with pytest.raises(ConfigError, match="max_bin"):
        bins_of({"max_bin": value})


def test_max_bin_is_256_unless_said() -> None:
    assert bins_of({}) == 256
    assert bins_of({"max_bin": "64"}) == 64


def test_the_booster_is_told_everything_that_all_workers_must_share() -> None:
    params = complete({"eta": 0.3}, objective="multi:softprob", classes=4, seed=7)
    assert params["num_class"] == 4
    assert params["seed"] == 7
    assert params["objective"] == "multi:softprob"
    assert params["tree_method"] == "hist"
    assert params["eta"] == 0.3
    assert "num_class" not in complete({}, objective="binary:logistic", classes=0, seed=0)


def test_more_classes_than_seen_may_be_asked_for_but_not_fewer() -> None:
    assert complete({"num_class": 6}, objective="multi:softprob", classes=4, seed=0)["num_class"] == 6
    with pytest.raises(ConfigError, match="num_class is 3, but the label has 4"):
        complete({"num_class": 3}, objective="multi:softprob", classes=4, seed=0)


def test_metrics_may_be_a_list_or_a_text_and_keep_their_order() -> None:
    assert metrics_for("binary:logistic", "logloss, auc") == ["logloss", "auc"]
    assert metrics_for("binary:logistic", ["error@0.7", "auc"]) == ["error@0.7", "auc"]
    assert metrics_for("rank:ndcg", None) == ["ndcg@10"]
    assert metrics_for("count:poisson", None) == ["mae", "rmse"]


@pytest.mark.parametrize(
    "metric",
    ["eval-auc", "eval-aucpr", "eval-ndcg@10", "eval-ndcg", "eval-map@5", "eval-ndcg@5-", "eval-map-", "eval-pre@3"],
)
def test_more_is_better_for_scores(metric: str) -> None:
    assert is_better(metric, 0.8, 0.7) and not is_better(metric, 0.7, 0.8) and not is_better(metric, 0.7, 0.7)


@pytest.mark.parametrize(
    "metric",
    ["eval-logloss", "eval-error@0.5", "eval-rmse", "eval-mape", "eval-tweedie-nloglik@1.5", "eval-poisson-nloglik"],
)
def test_less_is_better_for_losses(metric: str) -> None:
    assert is_better(metric, 0.7, 0.8) and not is_better(metric, 0.8, 0.7) and not is_better(metric, 0.7, 0.7)


@pytest.mark.parametrize(
    ("params", "objective"),
    [
        ({"subsample": 0.8}, "binary:logistic"),
        ({"subsample": "0.8"}, "binary:logistic"),
        ({"lambdarank_pair_method": "mean"}, "rank:ndcg"),
        ({"lambdarank_unbiased": True}, "rank:ndcg"),
        ({"device": "cuda"}, "binary:logistic"),
        ({}, "reg:absoluteerror"),
        ({}, "reg:quantileerror"),
    ],
)
def test_what_breaks_the_promise_of_one_model_is_told(params: dict[str, Any], objective: str) -> None:
    assert broken_promise(params, objective)


def test_weighted_ranking_breaks_the_promise_and_other_weights_do_not() -> None:
    assert broken_promise({}, "rank:ndcg", weighted=True)
    assert broken_promise({}, "binary:logistic", weighted=True) is None


@pytest.mark.parametrize("params", [{}, {"subsample": 1}, {"colsample_bytree": 0.5}, {"lambdarank_unbiased": False}])
def test_the_promise_holds_otherwise(params: dict[str, Any]) -> None:
    assert broken_promise(params, "rank:ndcg") is None
    assert broken_promise(params, "binary:logistic") is None
