"""What can be wrong with the learner's settings, before a run has a directory or a job is submitted."""

from __future__ import annotations

from dray.config.run_file import RunConfig
from dray.learners.factorization.settings import explicit_settings, implicit_settings
from dray.learners.xgboost_params import asked_objective, bins_of, check_objective, check_params


def check_learner(config: RunConfig) -> None:
    """Raise for parameters that the model does not have, or not with such values."""
    if config.model == "factorization":
        settings = explicit_settings if config.kind == "explicit" else implicit_settings
        settings(config.params, config.rounds, config.seed)
        return
    check_params(config.params)
    objective = asked_objective(config.objective, config.params)
    if objective is not None and config.continue_from is None:  # else the earlier run has the rest of the parameters
        check_objective(config.params, objective)
    bins_of(config.params)
