"""What can be wrong with a learner and its settings, before a run has a directory or a job is submitted."""

from __future__ import annotations

from importlib.util import find_spec

from dray.config.run_file import RunConfig
from dray.errors import ConfigError
from dray.learners.registry import find


def check_learner(config: RunConfig) -> None:
    """Raise for parameters that the model does not have, or not with such values."""
    find(config.model).check(config)


def require_library(model: str) -> None:
    """Refuse to begin what would fail where the learner begins to compute."""
    learner = find(model)
    if find_spec(learner.library) is None:
        package = f"'dray[{learner.extra}]'" if learner.extra else learner.library
        raise ConfigError(
            f"The model {model} needs {learner.library}, which is not installed.",
            fix=f"pip install {package}, on every machine that trains or uses the model.",
        )
