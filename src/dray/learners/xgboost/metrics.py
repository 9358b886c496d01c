"""The objectives: what they predict, the metrics reported by default, and the metrics that make sense. Pure.

The last metric decides early stopping, so the last default is the objective's own: what XGBoost itself would evaluate.
XGBoost computes any metric on whatever an objective predicts, and gives a log loss of margins or an error of
relevances without a word. Such pairs are refused here, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dray.errors import ConfigError, DataError, nearest
from dray.events.metrics import Metric, parse_metric
from dray.learners.labels import LabelSummary, full_name, has_exponential_gain

Predicts = Literal["probability", "logit", "class", "classes", "value", "mean", "quantile", "score"]
"""A logit is the margin of a probability, a mean is never negative, a score has a meaning within its group only."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One of XGBoost's objectives."""

    predicts: Predicts
    metrics: tuple[str, ...]
    """Reported by default; the last one is the objective's own."""


OBJECTIVES: dict[str, Objective] = {
    "binary:logistic": Objective("probability", ("auc", "logloss")),
    "binary:logitraw": Objective("logit", ("auc", "logloss")),
    "binary:hinge": Objective("class", ("error",)),
    "multi:softprob": Objective("classes", ("merror", "mlogloss")),
    "multi:softmax": Objective("classes", ("merror", "mlogloss")),
    "reg:squarederror": Objective("value", ("mae", "rmse")),
    "reg:linear": Objective("value", ("mae", "rmse")),
    "reg:logistic": Objective("probability", ("mae", "rmse")),
    "reg:squaredlogerror": Objective("value", ("mae", "rmse", "rmsle")),
    "reg:pseudohubererror": Objective("value", ("mae", "rmse", "mphe")),
    "reg:absoluteerror": Objective("value", ("rmse", "mae")),
    "reg:quantileerror": Objective("quantile", ("quantile",)),
    "reg:gamma": Objective("mean", ("mae", "rmse", "gamma-deviance")),
    "reg:tweedie": Objective("mean", ("mae", "rmse", "tweedie-nloglik")),
    "count:poisson": Objective("mean", ("mae", "rmse", "poisson-nloglik")),
    "rank:ndcg": Objective("score", ("ndcg@10",)),
    "rank:pairwise": Objective("score", ("ndcg@10",)),
    "rank:map": Objective("score", ("ndcg@10", "map@10")),
}
"""All but survival analysis, which needs two labels a row."""

_OF_VALUES: tuple[Predicts, ...] = ("probability", "value", "mean", "quantile")
_OF_ORDER: tuple[Predicts, ...] = ("probability", "logit", "class", "classes", "value", "mean", "score")
_MEANINGFUL: dict[str, tuple[Predicts, ...]] = {
    "logloss": ("probability", "logit"),
    "error": ("probability", "logit", "class"),
    "ams": ("probability", "logit"),
    "auc": _OF_ORDER,
    "aucpr": _OF_ORDER,
    "merror": ("classes",),
    "mlogloss": ("classes",),
    "rmse": _OF_VALUES,
    "rmsle": _OF_VALUES,
    "mae": _OF_VALUES,
    "mape": _OF_VALUES,
    "mphe": _OF_VALUES,
    "quantile": ("value", "mean", "quantile"),
    "poisson-nloglik": ("mean",),
    "gamma-nloglik": ("mean",),
    "gamma-deviance": ("mean",),
    "tweedie-nloglik": ("mean",),
    "pre": ("score",),
    "map": ("score",),
    "ndcg": ("score",),
}
"""Which predictions a metric says something about. Those of survival analysis are missing: none."""

_WORDS: dict[Predicts, str] = {
    "probability": "a probability",
    "logit": "a margin",
    "class": "0 or 1",
    "classes": "classes",
    "value": "a number of any sign",
    "mean": "a positive number",
    "quantile": "quantiles",
    "score": "a score within a group",
}


def known_objective(name: str) -> str:
    """Return the full name of an objective, or raise for one that dray cannot train."""
    full = full_name(name)
    if full.startswith("survival:"):
        raise ConfigError(f"The objective {full} is not supported yet.", fix="Use another objective.")
    if full not in OBJECTIVES:
        raise ConfigError(
            f'XGBoost has no objective "{name}".{nearest(full, OBJECTIVES)}',
            fix=f"Known: binary, multiclass, regression, ranking, {', '.join(sorted(OBJECTIVES))}.",
        )
    return full


def asked_metrics(asked: Any) -> list[Metric]:
    """Return the metrics that `eval_metric` names, in order; a metric that is named twice has its last place."""
    if asked is None or asked == []:
        return []
    names = asked if isinstance(asked, list | tuple) else str(asked).split(",")
    texts = [str(name).strip() for name in names]
    # Without a number it is that of the objective, which `metrics_for` knows.
    parsed = [Metric("tweedie-nloglik") if text == "tweedie-nloglik" else parse_metric(text) for text in texts]
    return list(reversed(dict.fromkeys(reversed(parsed))))


def quantiles_of(params: Mapping[str, Any]) -> list[float]:
    """Return the numbers of `quantile_alpha`, given as one, as several or as text; none when it is not given."""
    asked = params.get("quantile_alpha")
    if asked is None:
        return []
    texts = asked.strip("[]() ").split(",") if isinstance(asked, str) else asked
    try:
        quantiles = [float(text) for text in (texts if isinstance(texts, list | tuple) else [texts])]
    except (TypeError, ValueError):
        quantiles = []
    if not quantiles or not all(0 < quantile < 1 for quantile in quantiles) or len(set(quantiles)) < len(quantiles):
        raise ConfigError(
            f"quantile_alpha is {asked!r}, and must be different numbers between 0 and 1.",
            fix="Give --param quantile_alpha=0.9, or --param quantile_alpha=[0.1,0.5,0.9].",
        )
    return quantiles


def metrics_for(objective: str, params: Mapping[str, Any]) -> list[str]:
    """Return the metrics to report, in order: as asked or by default. The last one decides early stopping."""
    predicts, default = OBJECTIVES[objective].predicts, OBJECTIVES[objective].metrics
    metrics = asked_metrics(params.get("eval_metric")) or asked_metrics(default)
    quantiles = quantiles_of(params)
    for metric in metrics:
        if predicts not in _MEANINGFUL.get(metric.name, ()):
            raise ConfigError(
                f"The metric {metric} does not fit {objective}, which predicts {_WORDS[predicts]}.",
                fix=f"Use {', '.join(_metrics_of(predicts))}, or leave eval_metric out: {', '.join(default)}.",
            )
        if len(quantiles) > 1:
            _require_quantile(metric, objective)
        if metric.name == "quantile" and not quantiles:
            raise ConfigError("The metric quantile needs quantile_alpha.", fix="Give --param quantile_alpha=0.9.")
    power = float(params.get("tweedie_variance_power") or 1.5)
    return [str(Metric(m.name, power) if m == Metric("tweedie-nloglik") else m) for m in metrics]


def _require_quantile(metric: Metric, objective: str) -> None:
    if objective != "reg:quantileerror":
        raise ConfigError(
            f"The metric quantile of {objective} takes one quantile, not several.", fix="Give one quantile_alpha."
        )
    if metric.name != "quantile":
        raise ConfigError(
            f"The metric {metric} compares one prediction a row, and here a row has one a quantile.",
            fix="Leave eval_metric out: quantile.",
        )


def _metrics_of(predicts: Predicts) -> list[str]:
    return [name for name, kinds in _MEANINGFUL.items() if predicts in kinds]


def check_metric_labels(
    column: str, summary: LabelSummary, objective: str, metrics: Sequence[str], params: Mapping[str, Any]
) -> None:
    """Raise for a metric that the labels of the evaluation set do not allow."""
    predicts = OBJECTIVES[objective].predicts
    span = f"runs from {summary.minimum:g} to {summary.maximum:g}"
    for text in metrics:
        need = _unmet(text, predicts, summary, params)
        if need is not None:
            raise DataError(
                f'The metric {text} needs {need[0]}, and the label "{column}" of the evaluation set {span}.',
                fix=f"{need[1]}.",
            )
    decides = parse_metric(metrics[-1]).name
    if decides in ("auc", "aucpr") and predicts != "score" and summary.minimum == summary.maximum:
        raise DataError(
            f"Every label of the evaluation set is {summary.minimum:g}: its {decides}, which decides, is not defined.",
            fix="Evaluate on rows with both outcomes, or name another metric last in eval_metric.",
        )


def _unmet(text: str, predicts: Predicts, summary: LabelSummary, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Say what a metric needs of the labels and they are not, and what to do."""
    name = parse_metric(text).name
    other = "Name another eval_metric"
    binary = summary.whole and summary.minimum >= 0 and summary.maximum <= 1
    if name in ("auc", "aucpr") and predicts not in ("classes", "score"):
        return None if summary.minimum >= 0 and summary.maximum <= 1 else ("labels from 0 to 1", other)
    if name in ("pre", "map") or (name == "aucpr" and predicts == "score"):
        return None if binary else ("labels of 0 and 1", f"{other}, such as ndcg@10")
    if name == "ndcg" and has_exponential_gain(params) and not (summary.whole and summary.maximum <= 31):
        return "whole numbers up to 31 with an exponential gain", "Give --param ndcg_exp_gain=false"
    if name == "rmsle" and summary.minimum <= -1:
        return "labels greater than -1", other
    if name in ("gamma-nloglik", "gamma-deviance") and summary.minimum <= 0:
        return "positive labels", other
    if name == "mape" and 0 in (summary.minimum, summary.maximum):
        return "labels other than 0, by which it divides", other
    return None
