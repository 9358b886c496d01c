"""The Python API: the commands as functions. Progress is off unless asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dray.config.run_file import Level, make_config, read_run_file
from dray.learners.xgboost_model import Model, Output
from dray.predicting import PredictResult, load_model
from dray.predicting import predict as _predict
from dray.storage import StorageOptions
from dray.telemetry.events import Sink
from dray.training.result import TrainResult
from dray.training.resume import resume as _resume
from dray.training.train import train as _train


def train(
    data: str | Sequence[str], label: str | None = None, *, progress: bool = False, **settings: Any
) -> TrainResult:
    """Train on Parquet, or as a run file says; `settings` are the keys of a run file (`dray.config.run_file`).

    >>> result = dray.train("data/", label="y", rounds=200, eval_fraction=0.2, params={"max_depth": 8})
    >>> result.booster
    """
    if isinstance(data, str) and data.endswith((".yaml", ".yml")):
        values, origin = read_run_file(data), data
    else:
        values, origin = {"data": [data] if isinstance(data, str) else list(data)}, "the arguments"
    if label is not None:
        values["label"] = label
    return _train(make_config(values | settings, origin=origin), sinks=_sinks(progress))


def resume(
    run: str,
    *,
    workers: int | str | Mapping[str, int] | None = None,
    threads: int | None = None,
    cluster: str | None = None,
    on_failure: Level | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    progress: bool = False,
) -> TrainResult:
    """Go on with a run that ended before its last round, from its last checkpoint, as `dray resume` does.

    What is given replaces what the run was asked for; `workers` is a number, "auto", "2-8" or {"min": 2, "max": 8}.
    """
    given = {"workers": workers, "threads": threads, "cluster": cluster, "on_failure": on_failure}
    overrides = {name: value for name, value in given.items() if value is not None}
    return _resume(run, StorageOptions(endpoint, region, profile), overrides, sinks=_sinks(progress))


def predict(
    model: str,
    data: str | Sequence[str],
    out: str,
    *,
    keep: Sequence[str] = (),
    output: Output = "probability",
    contributions: bool = False,
    workers: int | Literal["auto"] = "auto",
    threads: int | None = None,
    cluster: str = "local",
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    progress: bool = False,
) -> PredictResult:
    """Write the predictions of a run or a model file for `data` to `out`, as `dray predict` does."""
    return _predict(
        model,
        data,
        out,
        keep=keep,
        output=output,
        contributions=contributions,
        workers=workers,
        threads=threads,
        cluster=cluster,
        storage=StorageOptions(endpoint, region, profile),
        sinks=_sinks(progress),
    )


def load(run: str, *, endpoint: str | None = None, region: str | None = None, profile: str | None = None) -> Model:
    """Return the model of a run directory or a model file; `.booster` is the native one."""
    return load_model(run, StorageOptions(endpoint, region, profile))


def _sinks(progress: bool) -> list[Sink]:
    if not progress:
        return []
    from dray.telemetry.sinks.terminal import terminal

    return [terminal(sys.stderr, live=sys.stderr.isatty())]
