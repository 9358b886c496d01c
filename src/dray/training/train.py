"""`dray train`: from a configuration to a run directory with a model."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version

from dray.config.run_file import RunConfig
from dray.learners.xgboost_params import asked_objective, bins_of, check_params
from dray.storage import StorageOptions
from dray.telemetry.events import Sink
from dray.telemetry.run_directory import RunDirectory, new_run_id
from dray.training.conduct import conduct
from dray.training.result import TrainResult


def train(config: RunConfig, sinks: Sequence[Sink] = ()) -> TrainResult:
    """Train as the configuration says. A mistake of the user's leaves no run directory behind."""
    check_params(config.params)
    asked_objective(config.objective, config.params)
    bins_of(config.params)
    run = new_run_id()
    storage = StorageOptions(**config.storage.model_dump())
    directory = RunDirectory.create(
        config.out or f"runs/{run}", storage, run=run, config=config.model_dump(mode="json"), versions=versions()
    )
    return conduct(config, storage, directory, sinks)


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("dray", "xgboost", "ray", "pyarrow", "numpy")}
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
