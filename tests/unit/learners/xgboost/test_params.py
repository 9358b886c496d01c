from __future__ import annotations

import json
from typing import Any

import pytest

from dray.errors import ConfigError
from dray.learners.xgboost.params import (
    asked_objective,
    bins_of,
    broken_promise,
    check_objective,
    check_params,
    complete,
    samples_columns_or_rows,
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


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"learning_rate": 0}, "greater than 0"),
        ({"eta": float("nan")}, '"eta" is nan'),
        ({"lambda": float("inf")}, '"lambda" is inf'),
        ({"base_score": [0.1, float("nan")]}, "base_score"),
        ({"subsample": 0}, "at most 1"),
        ({"colsample_bytree": "0"}, "greater than 0 and at most 1"),
        ({"tweedie_variance_power": 1}, "less than 2"),
        ({"tweedie_variance_power": 2}, "less than 2"),
        ({"huber_slope": -1}, "greater than 0"),
        ({"scale_pos_weight": 0}, "greater than 0"),
        ({"lambdarank_num_pair_per_sample": -3}, "at least 1"),
        ({"eta": 0.1, "learning_rate": 0.2}, "one parameter"),
        ({"lambda": 1, "reg_lambda": 2}, "one parameter"),
        ({"eval_metric": "aucc"}, 'Did you mean "auc"'),
        ({"eval_metric": ["auc", 3]}, 'no metric "3"'),
        ({"quantile_alpha": []}, "between 0 and 1"),
        ({"quantile_alpha": 1}, "between 0 and 1"),
        ({"quantile_alpha": [0.1, 2]}, "between 0 and 1"),
        ({"quantile_alpha": [0.1, 0.1]}, "different numbers"),
        ({"quantile_alpha": ["a"]}, "between 0 and 1"),
    ],
)
def test_values_that_xgboost_would_take_and_make_nonsense_of_are_refused(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_params(params)


def test_a_parameter_that_is_none_is_not_given() -> None:
    check_params({"subsample": None, "max_depth": None, "quantile_alpha": None})
    params = complete({"subsample": None, "quantile_alpha": None}, objective="binary:logistic", classes=0, seed=0)
    assert "subsample" not in params and "quantile_alpha" not in params
    assert broken_promise({"subsample": None}, "binary:logistic") is None
    assert not samples_columns_or_rows({"subsample": None})
    assert samples_columns_or_rows({"colsample_bynode": "0.5"})


@pytest.mark.parametrize(
    ("objective", "params", "words"),
    [
        ("binary:logistic", {"num_class": 3}, '"num_class" is for multi:softprob, multi:softmax'),
        ("binary:logistic", {"num_class": "x"}, "num_class is 'x'"),
        ("multi:softprob", {"num_class": "x"}, "num_class is 'x'"),
        ("reg:squarederror", {"quantile_alpha": 0.9}, '"quantile_alpha" is for reg:quantileerror'),
        ("reg:quantileerror", {}, "which quantile"),
        ("reg:gamma", {"tweedie_variance_power": 1.2}, '"tweedie_variance_power" is for reg:tweedie'),
        ("reg:squarederror", {"huber_slope": 2}, '"huber_slope" is for reg:pseudohubererror'),
        ("binary:logistic", {"lambdarank_pair_method": "topk"}, "is for rank:ndcg, rank:pairwise, rank:map"),
        ("reg:squarederror", {"aft_loss_distribution": "normal"}, "survival analysis"),
        ("binary:logistic", {"base_score": 2}, "between 0 and 1"),
        ("reg:logistic", {"base_score": 0}, "between 0 and 1"),
        ("reg:tweedie", {"base_score": -1}, "positive"),
        ("reg:squarederror", {"base_score": "half"}, "must be one number"),
        ("reg:squarederror", {"base_score": [1, 2]}, "must be one number"),
        ("multi:softprob", {"base_score": [1, 2], "num_class": 3}, "one number or 3"),
        ("binary:logistic", {"eval_metric": "mlogloss"}, "does not fit binary:logistic"),
    ],
)
def test_parameters_of_another_objective_are_refused(objective: str, params: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_objective(params, objective)


@pytest.mark.parametrize(
    ("objective", "params"),
    [
        ("binary:logistic", {"num_class": 1, "base_score": 0.3}),
        ("multi:softprob", {"num_class": 3, "base_score": [0.1, 0.2, 0.3]}),
        ("multi:softprob", {"base_score": [0.1, 0.2, 0.3]}),
        ("reg:squarederror", {"quantile_alpha": 0.9, "eval_metric": "quantile"}),
        ("reg:squarederror", {"huber_slope": 2, "eval_metric": ["mphe"], "base_score": -3}),
        ("rank:pairwise", {"ndcg_exp_gain": False}),
        ("reg:quantileerror", {"quantile_alpha": [0.1, 0.9], "base_score": [1, 2]}),
    ],
)
def test_parameters_of_the_objective_or_its_metric_pass(objective: str, params: dict[str, Any]) -> None:
    check_objective(params, objective)


@pytest.mark.parametrize("given", [[0.1, 0.5], (0.1, 0.5), "0.1,0.5", "[0.1, 0.5]", "(0.1,0.5)"])
def test_several_quantiles_may_be_written_in_any_way(given: Any) -> None:
    params = complete({"quantile_alpha": given}, objective="reg:quantileerror", classes=0, seed=0)
    assert params["quantile_alpha"] == [0.1, 0.5]


def test_one_base_score_stands_for_every_class_and_quantile() -> None:
    """XGBoost trains several outputs from one number, and then refuses to load the model."""
    quantiles = {"quantile_alpha": [0.1, 0.9], "base_score": 3}
    assert json.loads(complete(quantiles, objective="reg:quantileerror", classes=0, seed=0)["base_score"]) == [3, 3]
    for given, expected in (({}, [0.5] * 3), ({"num_class": 4}, [0.5] * 4), ({"base_score": [1, 2, 3]}, [1, 2, 3])):
        params = complete({"base_score": 0.5} | given, objective="multi:softprob", classes=3, seed=0)
        assert json.loads(params["base_score"]) == expected
    assert complete({"base_score": 0.5}, objective="binary:logistic", classes=0, seed=0)["base_score"] == 0.5


def test_an_objective_that_does_not_exist_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'"reg:squareerror".*Did you mean "reg:squarederror"'):
        asked_objective("reg:squareerror", {})
    with pytest.raises(ConfigError, match="not supported yet"):
        asked_objective("survival:cox", {})
    with pytest.raises(ConfigError, match='no objective "5"'):
        asked_objective(None, {"objective": 5})


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


def test_two_bins_are_the_fewest() -> None:
    assert (bins_of({"max_bin": 2}), bins_of({"max_bin": "64"}), bins_of({})) == (2, 64, 256)
    with pytest.raises(ConfigError, match="max_bin is 1: a number from 2 on is needed"):
        bins_of({"max_bin": 1})


def test_random_choices_are_made_below_a_share_of_one_on_a_cpu() -> None:
    for name in ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode"):
        assert samples_columns_or_rows({name: 0.99})
        assert not samples_columns_or_rows({name: 1})
        assert not samples_columns_or_rows({name: 0.5, "device": "cuda"})
    assert not samples_columns_or_rows({})
