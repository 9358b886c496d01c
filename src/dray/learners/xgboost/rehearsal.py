"""One round on a handful of made rows: what XGBoost refuses, it refuses before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xgboost

from dray.data.features import Column
from dray.errors import ConfigError
from dray.learners.xgboost.constraints import by_position
from dray.learners.xgboost.errors import reason
from dray.learners.xgboost.params import check_objective, class_count, complete, of_any_objective

_ROWS = 8


def rehearse(params: Mapping[str, Any], objective: str | None, features: Sequence[Column], *, ranking: bool) -> None:
    """Raise for parameters that XGBoost does not take. Without an objective, which the labels decide, any is used."""
    if objective is not None:
        check_objective(params, objective)
    else:
        objective = "rank:ndcg" if ranking else "reg:squarederror"
        params = of_any_objective(params)
    params = {name: value for name, value in params.items() if name not in ("objective", "max_bin")}
    if str(params.get("device")).startswith(("cuda", "gpu")):
        params["device"] = "cpu"  # the workers may have what this machine has not
    classes = _classes(params) if objective.startswith("multi:") else 0
    rows = max(_ROWS, classes)
    labels = np.arange(rows) % max(2, classes) + (objective == "reg:gamma")
    values = np.tile(np.arange(rows, dtype=np.float32)[:, None] % 2, (1, len(features)))
    full = complete(by_position(params, features), objective=objective, classes=classes, seed=0)
    try:
        with xgboost.config_context(nthread=1, verbosity=0):
            data = xgboost.QuantileDMatrix(
                values,
                label=labels,
                group=[rows] if objective.startswith("rank:") else None,
                feature_types=["c" if feature.kind == "category" else "q" for feature in features],
                enable_categorical=True,
            )
            booster = xgboost.Booster(full | {"nthread": 1}, cache=[data])
            booster.update(data, 0)
            booster.eval(data)
            xgboost.Booster(full, model_file=booster.save_raw("ubj"))
    except (xgboost.core.XGBoostError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"XGBoost refuses a parameter: {reason(str(error))}", fix="Change it under params or with --param."
        ) from error


def _classes(params: Mapping[str, Any]) -> int:
    """Return as many classes as the parameters tell of: the labels, which decide, are not known yet."""
    scores = params.get("base_score")
    return max(2, class_count(params), len(scores) if isinstance(scores, list | tuple) else 0)
