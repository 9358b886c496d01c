"""The recommender of a run: its model, and which columns of the data it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.learners.factorization.events import RowRule
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.model_files import ABOUT
from dray.learners.factorization.recommender import FactorRecommender
from dray.learners.registry import DEFAULT as DEFAULT_LEARNER
from dray.learners.stored import not_a_recommender
from dray.runs.directory import open_run
from dray.runs.files import RunFiles
from dray.storage import DEFAULT, StorageOptions, absolute, join

NAME = "factorization"
FOLDER = "model"
_DAY_S = 86_400.0


def is_model(location: str, storage: StorageOptions = DEFAULT) -> bool:
    """Whether a location is the directory of a model."""
    return RunFiles(location, storage).exists(ABOUT)


def open_recommender(location: str, storage: StorageOptions = DEFAULT) -> FactorRecommender:
    """Open the recommender of a finished run, or of a model's directory; its columns are then "user" and "item"."""
    location = absolute(location).rstrip("/")
    if is_model(location, storage):
        return FactorRecommender(FactorModel.load(location, storage), location=location, storage=storage)
    run = open_run(location, storage)
    config = _config_of(run.document)
    if config.get("model") != NAME:
        raise not_a_recommender(f"The run {location} is one of {config.get('model') or DEFAULT_LEARNER}", location)
    run.require_finished()
    directory = join(location, FOLDER)
    half_life_days = config.get("half_life_days")
    model = FactorModel.load(directory, storage)
    return FactorRecommender(
        model,
        _rule_of(config, str(model.settings.get("time_form") or "")),
        None if half_life_days is None else float(half_life_days) * _DAY_S,
        directory,
        storage,
    )


def _config_of(document: Any) -> Mapping[str, Any]:
    config = document.get("config") if isinstance(document, dict) else None
    return config if isinstance(config, Mapping) else {}


def _rule_of(config: Mapping[str, Any], time_form: str) -> RowRule:
    timed = config.get("rating") is not None or config.get("half_life_days") is not None  # else nothing is made of it
    return RowRule(
        user=str(config.get("user") or "user"),
        item=str(config.get("item") or "item"),
        rating=config.get("rating"),
        event=config.get("event"),
        time=config.get("time") if timed else None,
        weights={str(name): float(weight) for name, weight in (config.get("event_weights") or {}).items()},
        time_form=time_form,
    )
