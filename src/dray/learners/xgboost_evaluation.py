"""Exact metrics: what one process would compute on the whole evaluation set.

XGBoost's own distributed AUC is an average over workers. Here the members of the ring gather their margins, and
the first one asks XGBoost's metric about all of them at once: a model without trees whose base margin is the
prediction. It does so in a thread of its own, because the ring belongs to the training thread and the metric
would otherwise wait for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import xgboost

from dray.learners import xgboost_ring as ring
from dray.learners.xgboost_errors import translated
from dray.learners.xgboost_matrix import Loaded

_DIGITS = 12
"""Sums over threads differ in the last bits; early stopping must not."""


class Evaluation:
    """The evaluation set of a ring, seen from one member. `close` it in the end."""

    def __init__(self, loaded: Loaded | None, params: Mapping[str, Any], threads: int) -> None:
        self._matrix = None if loaded is None else loaded.matrix
        self._columns = max(1, int(params.get("num_class", 1)))
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
    return {
        "label": label,
        "weight": weight if len(weight) else None,
        "group": groups if len(groups) else None,
    }


class _Metric:
    def __init__(self, rows: Mapping[str, Any], params: Mapping[str, Any], threads: int) -> None:
        self._threads = threads
        empty = np.full((len(rows["label"]), 1), np.nan, dtype=np.float32)
        with xgboost.config_context(nthread=threads):
            self._rows = xgboost.DMatrix(empty, nthread=threads)
            self._rows.set_info(**rows)
            own = {key: value for key, value in params.items() if "constraints" not in key and key != "booster"}
            self._model = xgboost.Booster(own | {"nthread": threads}, cache=[self._rows])

    def __call__(self, margins: np.ndarray[Any, np.dtype[np.float32]]) -> dict[str, float]:
        self._rows.set_base_margin(margins)
        with translated(), xgboost.config_context(nthread=self._threads, verbosity=0):
            text = self._model.eval(self._rows, "eval")
        pairs = (item.rpartition(":") for item in text.split("\t")[1:])
        return {name: float(f"{float(value):.{_DIGITS}g}") for name, _, value in pairs}
