"""Exact metrics: what one process would compute on the whole evaluation set.

XGBoost's own distributed AUC is an average over workers. Here the members of the ring gather their margins, and
the first one asks XGBoost's metric about all of them at once: a model without trees whose base margin is the
prediction. It does so in a thread of its own, because the ring belongs to the training thread and the metric
would otherwise wait for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import xgboost

from dray.errors import DataError
from dray.learners import xgboost_ring as ring
from dray.learners.xgboost_errors import translated
from dray.learners.xgboost_matrix import Loaded
from dray.learners.xgboost_metrics import quantiles_of
from dray.learners.xgboost_params import class_count
from dray.telemetry.metrics import parse_metric

_DIGITS = 12
"""Sums over threads differ in the last bits; early stopping must not."""


class Evaluation:
    """The evaluation set of a ring, seen from one member. `close` it in the end."""

    def __init__(self, loaded: Loaded | None, params: Mapping[str, Any], threads: int) -> None:
        self._matrix = None if loaded is None else loaded.matrix
        self._columns = max(1, class_count(params), len(quantiles_of(params)))
        everyone = _gather_rows(loaded)
        self._alone = ThreadPoolExecutor(max_workers=1) if ring.rank() == 0 else None
        if self._alone is not None:
            self._metric = self._alone.submit(_Metric, everyone, params, threads).result()

    def metrics(self, booster: xgboost.Booster) -> dict[str, float]:
        """Return the metrics of the booster, the same on every member."""
        margins = ring.gather(self._margins(booster))
        metrics = None if self._alone is None else self._alone.submit(self._metric, margins).result()
        return dict(ring.tell_all(metrics))

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
        self._told = list(params["eval_metric"])
        empty = np.full((len(rows["label"]), 1), np.nan, dtype=np.float32)
        with translated(), xgboost.config_context(nthread=threads):
            self._rows = xgboost.DMatrix(empty, nthread=threads)
            self._rows.set_info(**rows)
            own = {key: value for key, value in params.items() if key not in _ABOUT_TREES}
            self._models = [
                (metrics, xgboost.Booster(own | other | {"nthread": threads}, cache=[self._rows]))
                for metrics, other in _askings(str(params["objective"]), self._told)
            ]

    def __call__(self, margins: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, float]:
        self._rows.set_base_margin(margins)
        values: dict[str, tuple[str, float]] = {}
        for metrics, model in self._models:
            with translated(), xgboost.config_context(nthread=self._threads, verbosity=0):
                text = model.eval(self._rows, "eval")
            pairs = (item.rpartition(":") for item in text.split("\t")[1:])
            for metric, (name, _, value) in zip(metrics, pairs, strict=True):
                values[metric] = name, float(f"{float(value):.{_DIGITS}g}")
        return dict(values[metric] for metric in self._told)


def _askings(objective: str, metrics: Sequence[str]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield metrics, and what to tell a model without trees to have XGBoost compute them of the margins.

    binary:logitraw predicts margins, and XGBoost takes them for probabilities in the log loss and the error: both are
    computed as for binary:logistic, which has the same margins.
    """
    is_logit = objective == "binary:logitraw"
    of_probabilities = [name for name in metrics if is_logit and parse_metric(name).name in _OF_PROBABILITIES]
    others = [name for name in metrics if name not in of_probabilities]
    if others:
        yield others, {"eval_metric": others}
    if of_probabilities:
        yield of_probabilities, {"eval_metric": of_probabilities, "objective": "binary:logistic", "base_score": 0.5}


_OF_PROBABILITIES = ("logloss", "error")
_ABOUT_TREES = ("booster", "multi_strategy", "monotone_constraints", "interaction_constraints")
