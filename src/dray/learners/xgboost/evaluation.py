"""Exact metrics: what one process would compute on the whole evaluation set.

XGBoost's own distributed AUC is an average over workers. Here the members of the ring gather their margins, and
the first one asks XGBoost's metric about all of them at once: a model without trees whose base margin is the
prediction. It does so in a thread of its own, because the ring belongs to the training thread and the metric
would otherwise wait for the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost

from dray.errors import DataError
from dray.events.metrics import parse_metric
from dray.learners.xgboost import ring
from dray.learners.xgboost.baseline import comparable
from dray.learners.xgboost.errors import translated
from dray.learners.xgboost.matrix import Loaded
from dray.learners.xgboost.metrics import asked_metrics, quantiles_of
from dray.learners.xgboost.params import class_count

_DIGITS = 12
"""Sums over threads differ in the last bits; early stopping must not."""


class Evaluation:
    """The evaluation set of a ring, seen from one member. `close` it in the end."""

    def __init__(self, loaded: Loaded | None, params: Mapping[str, Any], threads: int) -> None:
        self._matrix = None if loaded is None else loaded.matrix
        self._columns = max(1, class_count(params), len(quantiles_of(params)))
        everyone = _gather_rows(loaded)
        self._rows = len(everyone["label"])
        self._alone = ThreadPoolExecutor(max_workers=1) if ring.rank() == 0 else None
        if self._alone is not None:
            self._metric = self._alone.submit(_Metric, everyone, params, threads).result()

    def metrics(self, booster: xgboost.Booster) -> dict[str, float]:
        """Return the metrics of the booster, the same on every member."""
        return self._told(ring.gather(self._margins(booster)))

    def of_constant(self, margin: Sequence[float]) -> dict[str, float]:
        """Return the metrics of one prediction for all rows, where it has any; the same on every member."""
        one = np.array(margin, np.float32)
        found = self._told(np.tile(one, (self._rows, 1)) if len(one) > 1 else np.full(self._rows, one[0]))
        return {name: value for name, value in found.items() if comparable(name)}

    def _told(self, margins: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, float]:
        """Return the metrics of everyone's margins, which the first member takes."""
        own = {} if self._alone is None else self._alone.submit(self._metric, margins).result()
        metrics: dict[str, float] = json.loads(ring.tell_all(json.dumps(own).encode()))
        return metrics

    def close(self) -> None:
        if self._alone is not None:
            self._alone.shutdown()

    def _margins(self, booster: xgboost.Booster) -> np.ndarray[Any, np.dtype[np.float32]]:
        if self._matrix is None:
            return np.empty((0, self._columns) if self._columns > 1 else (0,), dtype=np.float32)
        margins: np.ndarray[Any, np.dtype[np.float32]] = booster.predict(self._matrix, output_margin=True)
        return margins


def _gather_rows(loaded: Loaded | None) -> dict[str, Any]:
    """Labels, weights and groups of all members. A member without rows cannot know whether there are weights."""
    nothing = np.empty(0, dtype=np.float32)
    label = ring.gather(nothing if loaded is None else loaded.matrix.get_label())
    weight = ring.gather(nothing if loaded is None else loaded.matrix.get_weight())
    groups = ring.gather(nothing.astype(np.uint32) if loaded is None else loaded.matrix.get_group())
    if len(weight) and not weight.any():
        raise DataError("The weight is 0 in every row of the evaluation set.", fix="Evaluate on rows that count.")
    return {
        "label": label,
        "weight": weight if len(weight) else None,
        "group": groups if len(groups) else None,
    }


class _Metric:
    def __init__(self, rows: Mapping[str, Any], params: Mapping[str, Any], threads: int) -> None:
        self._threads = threads
        self._told = [str(metric) for metric in asked_metrics(params["eval_metric"])]
        own = {key: value for key, value in params.items() if key not in _ABOUT_TREES} | {"nthread": threads}
        groups = _Hitless.of(rows)
        of_logits = [metric for metric in self._told if _is_of_logits(str(params["objective"]), metric)]
        self._logits = _Logits(rows["label"], rows["weight"], of_logits)
        self._asked: list[tuple[_Asking, xgboost.DMatrix, xgboost.Booster]] = []
        with translated(), xgboost.config_context(nthread=threads):
            whole = _matrix(rows, threads)
            even = whole if groups is None else _matrix({**rows, "weight": groups.even}, threads)
            for asking in _askings([metric for metric in self._told if metric not in of_logits], groups):
                data = whole if asking.groups is None else even
                self._asked.append((asking, data, xgboost.Booster(own | {"eval_metric": asking.metrics}, cache=[data])))

    def __call__(self, margins: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, float]:
        values = {metric: (f"eval-{metric}", value) for metric, value in self._logits.metrics(margins).items()}
        for asking, data, model in self._asked:
            data.set_base_margin(margins)
            with translated(), xgboost.config_context(nthread=self._threads, verbosity=0):
                text = model.eval(data, "eval")
            pairs = (item.rpartition(":") for item in text.split("\t")[1:])
            for metric, (name, _, told) in zip(asking.metrics, pairs, strict=True):
                value = float(told) if asking.groups is None else asking.groups.weighted(metric, float(told))
                values[metric] = name, value
        told = (values[metric] for metric in self._told)
        return {name: float(f"{value:.{_DIGITS}g}") for name, value in told}


def _matrix(rows: Mapping[str, Any], threads: int) -> xgboost.DMatrix:
    matrix = xgboost.DMatrix(np.full((len(rows["label"]), 1), np.nan, dtype=np.float32), nthread=threads)
    matrix.set_info(**rows)
    return matrix


@dataclass(frozen=True)
class _Hitless:
    """Ranking groups without a relevant row, which XGBoost's NDCG counts once whatever their weight.

    It divides by the sum of all weights nevertheless, and ends the training when more than 1 comes out. So these groups
    are given the weight 1, with which the answer is right, and their own weights are put in afterwards.
    """

    even: np.ndarray[Any, np.dtype[np.float32]]
    """The weights of all groups, 1 for these."""
    weight: float
    """Of all groups."""
    more: float
    """By how much the weights of these groups exceed 1."""

    @staticmethod
    def of(rows: Mapping[str, Any]) -> _Hitless | None:
        """None where there are no groups with weights."""
        if rows["group"] is None or rows["weight"] is None:
            return None
        starts = np.concatenate([[0], np.cumsum(rows["group"])[:-1]]).astype(np.int64)
        hitless = np.maximum.reduceat(rows["label"], starts) <= 0
        weight = rows["weight"].astype(np.float64)
        even = np.where(hitless, 1.0, weight)
        return _Hitless(even.astype(np.float32), float(weight.sum()), float((weight - even).sum()))

    def weighted(self, metric: str, told: float) -> float:
        score = 0.0 if metric.endswith("-") else 1.0
        return (told * (self.weight - self.more) + score * self.more) / self.weight


@dataclass(frozen=True)
class _Asking:
    """Metrics that one model without trees is asked for."""

    metrics: list[str]
    groups: _Hitless | None = None


def _askings(metrics: Sequence[str], groups: _Hitless | None) -> Iterator[_Asking]:
    """Yield what to ask XGBoost of the margins."""
    of_groups = [metric for metric in metrics if groups is not None and parse_metric(metric).name == "ndcg"]
    others = [metric for metric in metrics if metric not in of_groups]
    if others:
        yield _Asking(others)
    if of_groups:
        yield _Asking(of_groups, groups)


def _is_of_logits(objective: str, metric: str) -> bool:
    return objective == "binary:logitraw" and parse_metric(metric).name in _OF_PROBABILITIES


@dataclass(frozen=True)
class _Logits:
    """Log loss and error of binary:logitraw, which predicts margins: XGBoost takes them for probabilities there."""

    label: np.ndarray[Any, np.dtype[np.float32]]
    weight: np.ndarray[Any, np.dtype[np.float32]] | None
    names: Sequence[str]

    def metrics(self, margins: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, float]:
        found, margin, label = {}, margins.astype(np.float64), self.label.astype(np.float64)
        for name in self.names:
            metric = parse_metric(name)
            if metric.name == "logloss":
                losses = label * np.logaddexp(0, -margin) + (1 - label) * np.logaddexp(0, margin)
            else:
                limit = 0.5 if metric.at is None else metric.at
                with np.errstate(divide="ignore", invalid="ignore"):
                    losses = np.where(margin > np.log(limit) - np.log1p(-limit), 1 - label, label)
            found[name] = float(np.average(losses, weights=self.weight))
        return found


_OF_PROBABILITIES = ("logloss", "error")
_ABOUT_TREES = ("booster", "multi_strategy", "monotone_constraints", "interaction_constraints")
