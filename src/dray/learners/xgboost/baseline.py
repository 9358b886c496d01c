"""The model without a tree: what every row is given when nothing is known of it. Pure but for XGBoost's own estimate.

Its metrics are XGBoost's, taken as those of every round, so that they hold for every objective and metric; it is
estimated once, from the labels that the starting point of all predictions comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xgboost

from dray.events.metrics import parse_metric
from dray.learners.labels import LabelSample
from dray.learners.xgboost.errors import translated
from dray.learners.xgboost.intercept import ABOUT_FEATURES, intercept

_BY_ORDER = ("pre", "map", "ndcg", "ams")
"""Metrics of an order of the rows: one prediction for all gives none."""
_NOT_OF_LABELS = (*ABOUT_FEATURES, "base_score", "scale_pos_weight")
"""Parameters that move the starting point of the trees, but not what is known without a model."""
_STEPS_TO_MEAN = ("reg:squaredlogerror", "reg:pseudohubererror")
"""XGBoost starts these one step from a constant, which is far from every label where the labels are large."""
_TAKES_SHARE_FOR_MARGIN = "binary:logitraw"
"""XGBoost starts this one at the margin 0.3 where the base rate is 0.3."""
_LEAST_SHARE = 1e-6
"""XGBoost starts a class without a row here: with less, a model would be the better one for that alone."""
_WHAT = {
    "binary:": "always the base rate",
    "binary:hinge": "always the majority",
    "multi:": "always the class shares",
    "reg:absoluteerror": "always the median",
    "reg:quantileerror": "always the quantile",
}


def constant_margins(params: Mapping[str, Any], sample: LabelSample) -> tuple[float, ...]:
    """Return the margin that every row gets, one a class or quantile; none for a ranking."""
    objective = str(params["objective"])
    if objective.startswith("rank:"):
        return ()
    if objective.startswith("multi:"):
        shares = np.bincount(sample.labels.astype(np.int64), sample.weights, int(params["num_class"]))
        return tuple(np.log(np.maximum(shares / shares.sum(), _LEAST_SHARE)).tolist())
    if objective == _TAKES_SHARE_FOR_MARGIN:
        rate = np.clip(_mean(sample), 1e-15, 1 - 1e-15)
        return (float(np.log(rate / (1 - rate))),)
    plain = {name: value for name, value in params.items() if name not in _NOT_OF_LABELS}
    row = xgboost.DMatrix(np.full((1, 1), np.nan, np.float32), label=sample.labels[:1])
    with translated():
        start = _mean(sample) if objective in _STEPS_TO_MEAN else intercept(plain, sample)
        booster = xgboost.Booster(plain | {"base_score": start}, cache=[row])
        return tuple(booster.predict(row, output_margin=True).ravel().tolist())


def _mean(sample: LabelSample) -> float:
    return float(np.average(sample.labels.astype(np.float64), weights=sample.weights))


def comparable(metric: str) -> bool:
    """Whether one prediction for all rows has that metric."""
    return parse_metric(metric.removeprefix("eval-")).name not in _BY_ORDER


def what_is_constant(objective: str) -> str:
    """Return the constant prediction in words: "always the mean"."""
    found = [words for start, words in _WHAT.items() if objective.startswith(start)]
    return found[-1] if found else "always the mean"
