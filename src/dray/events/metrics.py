"""The metrics by name: which there are, what follows their "@", and which way is better. Pure.

| as asked              | name            | at   |
|-----------------------|-----------------|------|
| `auc`                 | auc             |      |
| `error@0.7`           | error           | 0.7  |
| `ndcg@5-`             | ndcg            | 5    |
| `tweedie-nloglik@1.5` | tweedie-nloglik | 1.5  |

A closing "-" says that a group without anything relevant counts as 0 and not as 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from dray.errors import ConfigError, nearest

_LOWER = (
    *("rmse", "rmsle", "mae", "mape", "mphe", "quantile", "logloss", "error", "merror", "mlogloss"),
    *("poisson-nloglik", "gamma-nloglik", "gamma-deviance", "tweedie-nloglik", "cox-nloglik", "aft-nloglik"),
)
_HIGHER = ("interval-regression-accuracy", "auc", "aucpr", "ams", "pre", "map", "ndcg")
XGBOOST_METRICS = frozenset((*_LOWER, *_HIGHER))
"""https://xgboost.readthedocs.io/en/release_3.2.0/parameter.html"""
HIGHER_IS_BETTER = dict.fromkeys(_LOWER, False) | dict.fromkeys((*_HIGHER, "recall", "coverage"), True)
"""XGBoost's, and a recommender's beside rmse, mae, map and ndcg."""

_SETS = ("eval-", "train-", "popular-")
_OF_RANKINGS = ("pre", "map", "ndcg")
_NUMBERS: dict[str, tuple[float, float, str]] = {
    "error": (0, 1, "the probability from which on a row counts as 1, such as error@0.7"),
    "ams": (0, 1, "the share of rows that are selected, such as ams@0.15"),
    "tweedie-nloglik": (1, 2, "the variance power between 1 and 2, such as tweedie-nloglik@1.5"),
}
"""Metrics with a number after the "@", and its bounds; NDCG, MAP and precision have the length of a list."""
_NEED_A_NUMBER = ("ams", "tweedie-nloglik")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that was asked for."""

    name: str
    at: float | None = None
    minus: bool = False

    def __str__(self) -> str:
        return self.name + ("" if self.at is None else f"@{self.at:.9g}") + ("-" if self.minus else "")


def parse_metric(text: str) -> Metric:
    """Return what a text such as "ndcg@5-" asks of XGBoost, or say what is wrong with it."""
    name, at, after = text.strip().partition("@")
    minus = (after if at else name).endswith("-")
    name, after = name.removesuffix("-"), after.removesuffix("-")
    if name not in XGBOOST_METRICS:
        raise ConfigError(
            f'XGBoost has no metric "{text}".{nearest(name.lower(), XGBOOST_METRICS)}',
            fix=f"Known: {', '.join(sorted(XGBOOST_METRICS))}.",
        )
    if minus and name not in _OF_RANKINGS:
        raise ConfigError(f'The metric "{text}" ends with "-", which is for {", ".join(_OF_RANKINGS)}.', fix="Drop it.")
    if name in _OF_RANKINGS:
        if at and not (after.isascii() and after.isdigit() and int(after) > 0):
            raise _no_number(text, f"the length of a list, such as {name}@10")
        return Metric(name, float(after) if at else None, minus)
    if not at and name not in _NEED_A_NUMBER:
        return Metric(name)
    if name not in _NUMBERS:
        raise ConfigError(f'The metric "{text}" has an "@", but {name} takes no number.', fix=f"Use {name}.")
    least, most, meaning = _NUMBERS[name]
    number = _number(after)
    if number is None or not least <= number <= most or (name == "tweedie-nloglik" and number in (least, most)):
        raise _no_number(text, meaning)
    return Metric(name, number)


def higher_is_better(metric: str) -> bool:
    """Say whether a metric such as "eval-auc" or "ndcg@10" improves upwards; one that is not known does not."""
    for of_set in _SETS:
        metric = metric.removeprefix(of_set)
    return HIGHER_IS_BETTER.get(metric.partition("@")[0].removesuffix("-"), False)


def is_better(metric: str, value: float, than: float) -> bool:
    """Compare two values of a metric. A tie is not better, any number is better than NaN."""
    if isnan(value) or isnan(than):
        return isnan(than) and not isnan(value)
    return value > than if higher_is_better(metric) else value < than


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _no_number(text: str, meaning: str) -> ConfigError:
    what, _, example = meaning.partition(", such as ")
    return ConfigError(f'The metric "{text}" does not say {what}.', fix=f"Use {example}.")
