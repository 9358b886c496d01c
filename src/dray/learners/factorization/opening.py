"""The recommender of a run: its model, and which columns of the data it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import fs as pafs

from dray.errors import ModelError
from dray.learners.factorization.events import RowRule
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.model_files import ABOUT
from dray.runs.directory import open_run
from dray.runs.files import RunFiles
from dray.storage import DEFAULT, StorageOptions, absolute, is_s3, join, open_storage, translate_errors

FOLDER = "model"
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Recommender:
    """A model, where it is, and what the run called its columns."""

    model: FactorModel
    rule: RowRule
    half_life_s: float | None = None
    location: str | None = None
    """The directory of the model's files; None for one that is in memory only."""


def is_model(location: str, storage: StorageOptions = DEFAULT) -> bool:
    """Whether a location is the directory of a model."""
    return RunFiles(location, storage).exists(ABOUT)


def open_recommender(location: str, storage: StorageOptions = DEFAULT) -> Recommender:
    """Open the recommender of a finished run, or of a model's directory; its columns are then "user" and "item"."""
    location = absolute(location).rstrip("/")
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.NotFound and not is_s3(location):
        raise ModelError(f"There is no run or model at {location}.", fix="dray runs lists the runs.")
    if kind == pafs.FileType.File:
        raise _no_recommender(f"{location} is a file", location)
    if is_model(location, storage):
        return Recommender(FactorModel.load(location, storage), RowRule(user="user", item="item"), None, location)
    run = open_run(location, storage)
    config = _config_of(run.document)
    if config.get("model") != "factorization":
        raise _no_recommender(f"The run {location} is one of {config.get('model') or 'xgboost'}", location)
    if run.document["status"] != "finished":
        raise ModelError(
            f"The run {location} is {run.document['status']}: it has no model.", fix="Name a finished run."
        )
    directory = join(location, FOLDER)
    half_life_days = config.get("half_life_days")
    return Recommender(
        FactorModel.load(directory, storage),
        _rule_of(config),
        None if half_life_days is None else float(half_life_days) * _DAY_S,
        directory,
    )


def opened(model: str | FactorModel, storage: StorageOptions = DEFAULT) -> Recommender:
    """Return the recommender at a location, or of a model that is in memory already."""
    if isinstance(model, FactorModel):
        return Recommender(model, RowRule(user="user", item="item"))
    return open_recommender(model, storage)


def _config_of(document: Any) -> Mapping[str, Any]:
    config = document.get("config") if isinstance(document, dict) else None
    return config if isinstance(config, Mapping) else {}


def _rule_of(config: Mapping[str, Any]) -> RowRule:
    return RowRule(
        user=str(config.get("user") or "user"),
        item=str(config.get("item") or "item"),
        rating=config.get("rating"),
        event=config.get("event"),
        time=config.get("time"),
        weights={str(name): float(weight) for name, weight in (config.get("event_weights") or {}).items()},
    )


def _no_recommender(what: str, location: str) -> ModelError:
    return ModelError(
        f"{what} and not a recommender: it predicts rows.",
        fix=f"dray predict {location} DATA OUT; or name a run of model factorization.",
    )
