"""`dray train`: from a configuration to a run directory with a model."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from dray.config.run_file import ModelName, RunConfig
from dray.learners.factorization.settings import require_numba
from dray.storage import StorageOptions
from dray.telemetry.events import Sink
from dray.telemetry.run_directory import RunDirectory, new_run_id
from dray.training.checks import check_learner
from dray.training.conduct import conduct
from dray.training.outcome import Result

LEARNERS: dict[ModelName, str] = {"xgboost": "xgboost", "factorization": "numba"}
"""The library whose version may change a model."""


def train(config: RunConfig, sinks: Sequence[Sink] = ()) -> Result:
    """Train as the configuration says. A mistake of the user's leaves no run directory behind."""
    check_learner(config)
    if config.model == "factorization":
        require_numba()
    run = new_run_id()
    storage = StorageOptions(**config.storage.model_dump())
    directory = RunDirectory.create(
        config.out or f"runs/{run}",
        storage,
        run=run,
        config=config.model_dump(mode="json"),
        versions=versions(config.model),
    )
    return conduct(config, storage, directory, sinks)


def versions(model: ModelName = "xgboost") -> dict[str, str]:
    """Return what a run of such a model is made with; what is not installed is left out."""
    packages = {}
    for name in ("dray", LEARNERS[model], "ray", "pyarrow", "numpy"):
        with suppress(PackageNotFoundError):  # told in better words by what needs it
            packages[name] = version(name)
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
