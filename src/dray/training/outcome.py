"""The result of a run, of the class that its learner's layout has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dray.learners.registry import find
from dray.learners.xgboost.unknown import read_model
from dray.runs.directory import open_run
from dray.storage import StorageOptions
from dray.training.factorization.result import FactorResult
from dray.training.result import TrainResult, typed

Result: TypeAlias = TrainResult | FactorResult


def result_of(document: Mapping[str, Any], storage: StorageOptions) -> Result:
    """Return the result that a job told (`to_json`), with the model from its run directory."""
    if find(document["learner"]).layout == "keyed":
        return FactorResult(**typed(document), storage=storage)
    return TrainResult(**typed(document), content=read_model(open_run(document["directory"], storage)))
