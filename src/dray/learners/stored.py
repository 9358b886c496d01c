"""Models by their location: which learner made them, and what they can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyarrow import fs as pafs

from dray.errors import ModelError
from dray.learners import registry
from dray.learners.learner import Learner
from dray.learners.predictor import Predictor
from dray.learners.recommender import Recommender, RecommenderLearner, RecommendingModel, recommends
from dray.runs.directory import open_run
from dray.runs.files import MANIFEST, RunFiles
from dray.storage import StorageOptions, absolute, is_s3, open_storage, translate_errors


def open_model(location: str, storage: StorageOptions) -> Predictor:
    """Open the model of a run directory, or of what a learner keeps as its model."""
    return learner_of(location, storage).open(location, storage)


def open_recommender(model: str | RecommendingModel, storage: StorageOptions) -> Recommender:
    """Return the recommender at a location, or of a model that is in memory already."""
    if not isinstance(model, str):
        return model.recommender()
    location = absolute(model).rstrip("/")
    if _kind_of(location, storage) == pafs.FileType.File:
        raise not_a_recommender(f"{location} is a file", location)
    learner = learner_of(location, storage)
    if isinstance(learner, RecommenderLearner):
        return learner.open_recommender(location, storage)
    open_run(location, storage)  # a directory that is not a run is refused as such
    raise not_a_recommender(f"The run {location} is one of {learner.name}", location)


def not_a_recommender(what: str, location: str) -> ModelError:
    names = " or ".join(learner.name for learner in registry.available() if recommends(learner))
    return ModelError(
        f"{what} and not a recommender: it predicts rows.",
        fix=f"Predict with it: dray predict {location} DATA OUT. Or name a run of model {names}.",
    )


def learner_of(location: str, storage: StorageOptions) -> Learner:
    """Return the learner that a run names, or that recognises the location; the default one refuses the rest."""
    files = RunFiles(location, storage)
    if _kind_of(location, storage) != pafs.FileType.File and files.exists(MANIFEST):
        return registry.find(_model_named_by(files.read_json(MANIFEST)))
    learners = (registry.find(name) for name in registry.names())
    found = (learner for learner in learners if learner.recognises(location, storage))
    return next(found, registry.find(registry.DEFAULT))


def _kind_of(location: str, storage: StorageOptions) -> pafs.FileType:
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.NotFound and not is_s3(location):
        raise ModelError(f"There is no run or model at {location}.", fix="dray runs lists the runs.")
    return kind


def _model_named_by(document: Any) -> str:
    """Return the name in a run's manifest; runs of before there were several models have none."""
    config = document.get("config") if isinstance(document, dict) else None
    return str((config.get("model") if isinstance(config, Mapping) else None) or registry.DEFAULT)
