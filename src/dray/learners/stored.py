"""Models by their location: which learner made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyarrow import fs as pafs

from dray.learners import registry
from dray.learners.learner import Learner
from dray.learners.predictor import Predictor
from dray.runs.files import MANIFEST, RunFiles
from dray.storage import StorageOptions, open_storage, translate_errors


def open_model(location: str, storage: StorageOptions) -> Predictor:
    """Open the model of a run directory, or of what a learner keeps as its model."""
    return learner_of(location, storage).open(location, storage)


def learner_of(location: str, storage: StorageOptions) -> Learner:
    """Return the learner that a run names, or that recognises the location; the default one refuses the rest."""
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        is_file = filesystem.get_file_info(path).type == pafs.FileType.File
    files = RunFiles(location, storage)
    if not is_file and files.exists(MANIFEST):
        return registry.find(_model_named_by(files.read_json(MANIFEST)))
    learners = (registry.find(name) for name in registry.names())
    found = (learner for learner in learners if learner.recognises(location, storage))
    return next(found, registry.find(registry.DEFAULT))


def _model_named_by(document: Any) -> str:
    """Return the name in a run's manifest; runs of before there were several models have none."""
    config = document.get("config") if isinstance(document, dict) else None
    return str((config.get("model") if isinstance(config, Mapping) else None) or registry.DEFAULT)
