"""`dray train`: from a configuration to a run directory with a model."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from dray.batch.still_needed import locations_of, require_not_read
from dray.config.run_file import RunConfig
from dray.events.kinds import PhaseStarted
from dray.events.telemetry import Sink, Telemetry
from dray.learners.registry import find
from dray.learners.result import RunResult
from dray.runs.contents import make_room
from dray.runs.directory import REPLACES, RunDirectory, new_run_id
from dray.storage import StorageOptions, absolute, is_s3
from dray.training.checks import check_learner, require_library
from dray.training.run import run
from dray.training.run_data import Opened


def train(
    config: RunConfig, sinks: Sequence[Sink] = (), *, job: str | None = None, cluster: str | None = None
) -> RunResult:
    """Train as the configuration says. A mistake of the user's leaves no run directory behind.

    For a run that is a job: `job` is its id, and `cluster` the word by which the user named the cluster. Both are kept
    in run.json, so that the run can be told from others and resumed where it was.
    """
    check_learner(config)
    require_library(config.model)
    number = new_run_id()
    storage = StorageOptions(**config.storage.model_dump())
    out = config.out or f"runs/{number}"
    opened = None
    try:
        if config.overwrite and is_s3(out):  # the earlier run goes before this one begins: a mistake must not cost it
            require_not_read(out, locations_of(config.continue_from, config.data, config.eval))
            opened = _opened(config, storage, sinks)
        place = make_room(out, storage) if config.overwrite else out
        directory = RunDirectory.create(
            place,
            storage,
            run=number,
            config=config.model_dump(mode="json") | ({"cluster": cluster} if cluster else {}),
            versions=versions(config.model),
            **({"job": job} if job else {}),
            **({REPLACES: absolute(out)} if place != out else {}),
        )
    except BaseException:
        Telemetry(sinks).close()
        raise
    return run(config, storage, directory, sinks, opened=opened)


def _opened(config: RunConfig, storage: StorageOptions, sinks: Sequence[Sink]) -> Opened:
    """Open the data for a run that has not begun; raise what its footers and columns would end the run with."""
    opened = Opened(config, storage, sinks)
    data = opened.data
    opened.telemetry.emit(PhaseStarted("prepare"))
    with closing(find(config.model).driver_side(config, storage, lambda _event: None)) as driver:
        train_data = data.open(config.data, partial(driver.check_schema, evaluation=False))
        check_eval = partial(driver.check_schema, evaluation=True)
        driver.open(train_data, data.open(config.eval, check_eval, train_data) if config.eval else None)
    return opened


def versions(model: str) -> dict[str, str]:
    """Return what a run of such a model is made with; what is not installed is left out."""
    packages = {}
    for name in ("dray", find(model).library, "ray", "pyarrow", "numpy"):
        with suppress(PackageNotFoundError):  # told in better words by what needs it
            packages[name] = version(name)
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
