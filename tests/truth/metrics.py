"""Metrics by their definitions, in float64, from labels and predictions: a second opinion on what dray tells.

A prediction is what `dray predict` writes: a probability, a class (hinge), a mean, a score, a quantile; a column each
for several classes or quantiles. Nothing here asks XGBoost, but for the test that compares the two on ordinary data.
Definitions where libraries differ are XGBoost's: https://xgboost.readthedocs.io/en/stable/parameter.html (eval_metric).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

TO_MAXIMISE = frozenset({"auc", "aucpr", "ndcg", "map", "pre", "ams"})


@dataclass(frozen=True)
class Rows:
    """Rows to be judged: a label and a prediction each."""

    label: Floats
    prediction: Floats
    """One column a class or quantile, where there are several."""
    weight: Floats | None = None
    """Of rows; in ranking of groups."""
    group: npt.NDArray[Any] | None = None
    """Names the group of a row; groups stand together."""

    @property
    def weights(self) -> Floats:
        return np.ones(len(self.label)) if self.weight is None else self.weight

    def groups(self) -> list[tuple[slice, float]]:
        """Return where each group stands, with its weight."""
        assert self.group is not None
        borders = [0, *(np.flatnonzero(self.group[1:] != self.group[:-1]) + 1).tolist(), len(self.label)]
        slices = [slice(start, stop) for start, stop in itertools.pairwise(borders)]
        weights = [1.0] * len(slices) if self.weight is None else [float(self.weight[part.start]) for part in slices]
        return list(zip(slices, weights, strict=True))


def metric(name: str, rows: Rows, params: Mapping[str, Any] | None = None) -> float:
    """Return a metric by the name that XGBoost gives it, such as "ndcg@5-"; `params` are the objective's."""
    bare, _, argument = name.removeprefix("eval-").partition("@")
    return _METRICS[bare.rstrip("-")](rows, argument + ("-" if bare.endswith("-") else ""), params or {})


def is_better(name: str, value: float, than: float) -> bool:
    bare = name.removeprefix("eval-").partition("@")[0].rstrip("-")
    return value > than if bare in TO_MAXIMISE else value < than


def as_predicted(objective: str, margin: Floats) -> Floats:
    """Return predictions from margins, by the definition of the objective."""
    if objective.startswith(("binary:logi", "reg:logistic")):  # logitraw too: its margin means that probability
        return 1 / (1 + np.exp(-np.maximum(margin, -700)))
    if objective == "binary:hinge":
        return (margin > 0).astype(np.float64)
    if objective.startswith("multi:"):
        scaled = np.exp(margin - margin.max(axis=1, keepdims=True))
        shares: Floats = scaled / scaled.sum(axis=1, keepdims=True)
        return shares
    if objective in ("count:poisson", "reg:gamma", "reg:tweedie"):
        return np.exp(margin)
    return margin


def _mean(losses: Floats, rows: Rows) -> float:
    return float((losses * rows.weights).sum() / rows.weights.sum())


def _logloss(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    label, one = rows.label, rows.prediction
    losses = -label * np.log(np.maximum(one, 1e-16)) - (1 - label) * np.log(np.maximum(1 - one, 1e-16))
    return _mean(losses, rows)


def _error(rows: Rows, argument: str, _params: Mapping[str, Any]) -> float:
    yes = rows.prediction > (float(argument) if argument else 0.5)
    return _mean(np.where(yes, 1 - rows.label, rows.label), rows)


def _mlogloss(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    own = rows.prediction[np.arange(len(rows.label)), rows.label.astype(int)]
    return _mean(-np.log(np.maximum(own, 1e-16)), rows)


def _merror(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    found = rows.prediction.argmax(axis=1) if rows.prediction.ndim == 2 else rows.prediction
    return _mean((found != rows.label).astype(np.float64), rows)


def _rmse(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    return math.sqrt(_mean((rows.label - rows.prediction) ** 2, rows))


def _mae(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    return _mean(
        np.abs(_beside(rows.label, rows.prediction) - rows.prediction).reshape(len(rows.label), -1).mean(1), rows
    )


def _mape(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    return _mean(np.abs((rows.label - rows.prediction) / rows.label), rows)


def _rmsle(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    with np.errstate(invalid="ignore"):  # not a number where a prediction is below -1
        return math.sqrt(_mean((np.log1p(rows.label) - np.log1p(rows.prediction)) ** 2, rows))


def _mphe(rows: Rows, _argument: str, params: Mapping[str, Any]) -> float:
    slope = float(params.get("huber_slope", 1))
    return _mean(slope**2 * (np.sqrt(1 + ((rows.label - rows.prediction) / slope) ** 2) - 1), rows)


def _poisson(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    mean = np.maximum(rows.prediction, 1e-16)
    log_factorial = np.array([math.lgamma(value + 1) for value in rows.label])
    return _mean(log_factorial + mean - rows.label * np.log(mean), rows)


def _gamma(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    mean = np.maximum(rows.prediction, 1e-6)
    return _mean(rows.label / mean + np.log(mean), rows)


def _gamma_deviance(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    ratio = (rows.label + 1e-6) / (rows.prediction + 1e-6)
    return 2 * _mean(ratio - np.log(ratio) - 1, rows)


def _tweedie(rows: Rows, argument: str, params: Mapping[str, Any]) -> float:
    power = float(argument) if argument else float(params.get("tweedie_variance_power", 1.5))
    mean = rows.prediction
    return _mean(mean ** (2 - power) / (2 - power) - rows.label * mean ** (1 - power) / (1 - power), rows)


def _quantile(rows: Rows, _argument: str, params: Mapping[str, Any]) -> float:
    alpha = np.atleast_1d(np.asarray(params["quantile_alpha"], np.float64))
    over = (_beside(rows.label, rows.prediction) - rows.prediction).reshape(len(rows.label), -1)
    return _mean(np.where(over >= 0, alpha * over, (alpha - 1) * over).mean(1), rows)


def _beside(label: Floats, prediction: Floats) -> Floats:
    return label[:, None] if prediction.ndim == 2 else label


def _auc(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    assert rows.group is None, "XGBoost's AUC of ranking also counts pairs of equal relevance, by their order"
    if rows.prediction.ndim == 2:
        return _one_against_others(rows, _area)
    return _area(rows.label, rows.prediction, rows.weights)


def _area(label: Floats, score: Floats, weight: Floats) -> float:
    """The share of pairs, one of each class, in the right order; ties count half."""
    _, tied = np.unique(score, return_inverse=True)
    good, bad = (np.bincount(tied, weight * part, minlength=tied.max() + 1) for part in (label, 1 - label))
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / (good.sum() * bad.sum()))


def _aucpr(rows: Rows, _argument: str, _params: Mapping[str, Any]) -> float:
    if rows.prediction.ndim == 2:
        return _one_against_others(rows, _area_precision)
    return _area_precision(rows.label, rows.prediction, rows.weights)


def _area_precision(label: Floats, score: Floats, weight: Floats) -> float:
    """The area below precision over recall, between its points as Davis and Goadrich (2006) interpolate."""
    _, tied = np.unique(-score, return_inverse=True)
    good, bad = (np.bincount(tied, weight * part, minlength=tied.max() + 1) for part in (label, 1 - label))
    hits, misses = np.cumsum(good), np.cumsum(bad)
    before_hits, before_misses = hits - good, misses - bad
    area = 0.0
    for hit, miss, old_hit, old_miss in zip(hits, misses, before_hits, before_misses, strict=True):
        if hit == old_hit:
            continue
        slope = (miss - old_miss) / (hit - old_hit)
        a, b = 1 + slope, (old_miss - slope * old_hit) / hits[-1]
        new, old = hit / hits[-1], old_hit / hits[-1]
        if b != 0:
            area += (new - old - b / a * (math.log(a * new + b) - math.log(a * old + b))) / a
        else:
            area += (new - old) / a
    return area


def _one_against_others(rows: Rows, area: Callable[[Floats, Floats, Floats], float]) -> float:
    """The mean over classes, each weighed by its rows."""
    areas, shares = [], []
    for number in range(rows.prediction.shape[1]):
        own = (rows.label == number).astype(np.float64)
        shares.append(float((own * rows.weights).sum()))
        areas.append(area(own, rows.prediction[:, number], rows.weights))
    return float(np.average(areas, weights=shares))


def _mean_of_groups(rows: Rows, score: Callable[[Floats, Floats], float]) -> float:
    scores = [(score(rows.label[part], rows.prediction[part]), weight) for part, weight in rows.groups()]
    return float(np.average([value for value, _ in scores], weights=[weight for _, weight in scores]))


def _cutoff(argument: str, rows: int) -> int:
    digits = argument.rstrip("-")
    return min(int(digits), rows) if digits else rows


def _ranked(label: Floats, score: Floats) -> Floats:
    return label[np.argsort(-score, kind="stable")]


def _ndcg(rows: Rows, argument: str, params: Mapping[str, Any]) -> float:
    exponential = str(params.get("ndcg_exp_gain", True)).lower() in ("true", "1")

    def score(label: Floats, scores: Floats) -> float:
        top = _cutoff(argument, len(label))
        gain = 2.0**label - 1 if exponential else label
        ideal = _discounted(np.sort(gain)[::-1][:top])
        if ideal == 0:
            return 0.0 if argument.endswith("-") else 1.0
        return _discounted(_ranked(gain, scores)[:top]) / ideal

    return _mean_of_groups(rows, score)


def _discounted(gain: Floats) -> float:
    return float((gain / np.log2(np.arange(2, len(gain) + 2))).sum())


def _map(rows: Rows, argument: str, _params: Mapping[str, Any]) -> float:
    def score(label: Floats, scores: Floats) -> float:
        top = _cutoff(argument, len(label))
        relevant = _ranked((label > 0).astype(np.float64), scores)
        if not relevant.any():
            return 0.0 if argument.endswith("-") else 1.0
        precision = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
        return float((precision * relevant)[:top].sum() / min(top, relevant.sum()))

    return _mean_of_groups(rows, score)


def _precision(rows: Rows, argument: str, _params: Mapping[str, Any]) -> float:
    def score(label: Floats, scores: Floats) -> float:
        top = _cutoff(argument, len(label))
        return float(_ranked((label > 0).astype(np.float64), scores)[:top].sum() / top)

    return _mean_of_groups(rows, score)


def _ams(rows: Rows, argument: str, _params: Mapping[str, Any]) -> float:
    """The approximate median significance of the best-scored share `argument` of the rows (Higgs challenge, 2014)."""
    order = np.argsort(-rows.prediction, kind="stable")
    top = int(float(argument) * len(order))
    top = top or len(order)
    best, signal, noise = 0.0, 0.0, 0.0
    regular = 10.0
    label, weight, score = rows.label[order], rows.weights[order], rows.prediction[order]
    for position in range(len(order) - 1):
        if position >= top:
            break
        if label[position] > 0.5:
            signal += weight[position]
        else:
            noise += weight[position]
        if score[position] != score[position + 1]:
            best = max(best, _significance(signal, noise, regular))
    if top == len(order):
        return best
    return _significance(signal, noise, regular)


def _significance(signal: float, noise: float, regular: float) -> float:
    total = (signal + noise + regular) * math.log(1 + signal / (noise + regular)) - signal
    return math.sqrt(2 * total)


_METRICS: dict[str, Callable[[Rows, str, Mapping[str, Any]], float]] = {
    "ams": _ams,
    "auc": _auc,
    "aucpr": _aucpr,
    "error": _error,
    "gamma-deviance": _gamma_deviance,
    "gamma-nloglik": _gamma,
    "logloss": _logloss,
    "mae": _mae,
    "map": _map,
    "mape": _mape,
    "merror": _merror,
    "mlogloss": _mlogloss,
    "mphe": _mphe,
    "ndcg": _ndcg,
    "poisson-nloglik": _poisson,
    "pre": _precision,
    "quantile": _quantile,
    "rmse": _rmse,
    "rmsle": _rmsle,
    "tweedie-nloglik": _tweedie,
}


def known(names: Sequence[str]) -> list[str]:
    """Return those that can be recomputed here."""
    return [name for name in names if name.removeprefix("eval-").partition("@")[0].rstrip("-") in _METRICS]
