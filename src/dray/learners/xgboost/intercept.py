"""The starting point of all predictions, the same for any number of workers.

XGBoost estimates it on every worker and averages the estimates. The result depends on the assignment of rows, even for
a mean in its last bit. dray has XGBoost estimate it once, from labels picked by position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xgboost

from dray.learners.labels import LabelSample
from dray.learners.xgboost.errors import translated


def intercept(params: Mapping[str, Any], sample: LabelSample) -> str:
    """Return `base_score` as XGBoost writes it: one value, or one a class."""
    if str(params["objective"]).startswith("rank:"):
        return "0"  # the gradients of a group add up to nothing
    rows = xgboost.DMatrix(np.full((len(sample.labels), 1), np.nan, np.float32), label=sample.labels)
    if sample.weights is not None:
        rows.set_weight(sample.weights)
    relevant = {name: value for name, value in params.items() if name not in ABOUT_FEATURES}
    with translated():
        booster = xgboost.Booster(relevant | {"max_depth": 1}, cache=[rows])
        booster.update(rows, 0)
    learner = json.loads(booster.save_raw("json"))["learner"]
    return str(learner["learner_model_param"]["base_score"])


ABOUT_FEATURES = ("monotone_constraints", "interaction_constraints")
