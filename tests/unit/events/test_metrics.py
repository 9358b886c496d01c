from __future__ import annotations

from math import inf, nan

import pytest

from dray.errors import ConfigError
from dray.events.metrics import Metric, higher_is_better, is_better, parse_metric

HIGHER = ["auc", "aucpr", "ams@0.15", "ndcg", "ndcg@10", "ndcg@5-", "ndcg-", "map@5", "map-", "pre@3", "recall@10"]
LOWER = ["logloss", "error@0.5", "rmse", "rmsle", "mape", "mphe", "quantile", "merror", "mlogloss"]
LOWER += ["tweedie-nloglik@1.5", "poisson-nloglik", "gamma-nloglik", "gamma-deviance", "cox-nloglik", "aft-nloglik"]


@pytest.mark.parametrize("name", [*HIGHER, "coverage@10", "interval-regression-accuracy"])
def test_more_is_better_for_scores(name: str) -> None:
    for told in (name, f"eval-{name}", f"popular-{name}"):
        assert higher_is_better(told)
        assert is_better(told, 0.8, 0.7) and not is_better(told, 0.7, 0.8) and not is_better(told, 0.7, 0.7)


@pytest.mark.parametrize("name", [*LOWER, "mae", "unheard-of"])
def test_less_is_better_for_losses(name: str) -> None:
    for told in (name, f"eval-{name}", f"train-{name}"):
        assert not higher_is_better(told)
        assert is_better(told, 0.7, 0.8) and not is_better(told, 0.8, 0.7) and not is_better(told, 0.7, 0.7)


def test_any_number_is_better_than_nan_and_nan_than_none() -> None:
    for name in ("eval-auc", "eval-rmse"):
        assert is_better(name, 5.0, nan) and is_better(name, -inf, nan)
        assert not is_better(name, nan, 5.0) and not is_better(name, nan, nan)


@pytest.mark.parametrize("text", [*HIGHER[:-1], *LOWER])
def test_a_metric_is_written_as_it_was_asked_for(text: str) -> None:
    assert str(parse_metric(text)) == text
    assert parse_metric(f" {text} ") == parse_metric(text)


def test_what_stands_after_the_at_is_a_number() -> None:
    assert parse_metric("ndcg@5-") == Metric("ndcg", 5, minus=True)
    assert parse_metric("tweedie-nloglik@1.5") == Metric("tweedie-nloglik", 1.5)
    assert parse_metric("auc") == Metric("auc")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aucc", 'no metric "aucc". Did you mean "auc"'),
        ("RMSE", 'Did you mean "rmse"'),
        ("recall@10", "no metric"),  # a recommender's
        ("", "no metric"),
        ("rmse@3", "takes no number"),
        ("auc@3", "takes no number"),
        ("auc-", "ends with"),
        ("rmse-", "ends with"),
        ("error@", "does not say the probability"),
        ("error@x", "does not say the probability"),
        ("error@1.5", "does not say the probability"),
        ("ndcg@x", "does not say the length"),
        ("ndcg@", "does not say the length"),
        ("pre@0", "does not say the length"),
        ("ndcg@-1", "does not say the length"),
        ("ndcg@2.5", "does not say the length"),
        ("ams", "does not say the share"),
        ("ams@nan", "does not say the share"),
        ("tweedie-nloglik", "does not say the variance power"),
        ("tweedie-nloglik@1", "does not say the variance power"),
        ("tweedie-nloglik@2", "does not say the variance power"),
    ],
)
def test_a_metric_that_xgboost_does_not_have_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        parse_metric(text)
    assert raised.value.fix
