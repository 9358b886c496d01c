"""The result of a run of either model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from dray.storage import StorageOptions
from dray.telemetry.run_files import RunFiles
from dray.training.factorization.result import FactorResult
from dray.training.result import TrainResult, typed

Result: TypeAlias = TrainResult | FactorResult


def result_of(document: Mapping[str, Any], storage: StorageOptions) -> Result:
    """Return the result that a job told (`to_json`), with the model from its run directory."""
    if document["learner"] == "factorization":
        return FactorResult(**typed(document), storage=storage)
    name = str(document["model"]).rpartition("/")[2]
    return TrainResult(**typed(document), content=RunFiles(document["directory"], storage).read_bytes(name))
