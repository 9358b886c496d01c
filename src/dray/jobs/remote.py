"""`dray train` on a cluster elsewhere: the run is a job there, and is followed as if it were here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dray.config.run_file import RunConfig
from dray.jobs.attend import Outcome, log_command, new_job_id, see_through
from dray.jobs.client import Jobs
from dray.jobs.endpoint import Endpoint
from dray.jobs.marks import Part
from dray.jobs.relay import Relay
from dray.jobs.shared import find_head
from dray.jobs.task import Options, Task, resuming, training, versions
from dray.storage import StorageOptions
from dray.telemetry.events import Sink
from dray.training.checks import check_learner
from dray.training.outcome import Result, result_of


def train_at(place: Endpoint, config: RunConfig, sinks: Sequence[Sink] = ()) -> Result:
    """Train at an endpoint (`endpoint.open_endpoint`) and return the result, with the model.

    An interruption stops the job; a process that is killed does not, and `dray job logs ID --follow` shows the rest.
    What the job prints beside its events goes to standard error.
    """
    task = training_task(config, place)
    outcome = follow_run(Jobs(place), task, Options(), new_job_id(), sinks)
    return result_of(outcome.result or {}, StorageOptions(**config.storage.model_dump()))


def resume_at(
    place: Endpoint, run: str, storage: StorageOptions, overrides: Mapping[str, Any], sinks: Sequence[Sink] = ()
) -> Result:
    """Go on with a run, as `training.resume.resume` does, at an endpoint; the run's directory is seen by both."""
    task = resuming(run, storage, overrides, find_head(place.name, place.session))
    outcome = follow_run(Jobs(place), task, Options(), new_job_id(), sinks)
    return result_of(outcome.result or {}, storage)


def training_task(config: RunConfig, endpoint: Endpoint, name: str = "dray train") -> Task:
    """Return the task, after all that can be wrong with it was looked at here."""
    check_learner(config)
    return training(config, find_head(endpoint.name, endpoint.session), name)


def follow_run(jobs: Jobs, task: Task, options: Options, job: str, sinks: Sequence[Sink]) -> Outcome:
    """Have the task done; return its good end, or raise."""
    relay = Relay(sinks)
    listener = Listener(relay)
    try:
        for warning in jobs.endpoint.warnings:
            relay.warn(warning)
        outcome = see_through(jobs, task, options, job, listener, to_stderr)
    finally:
        relay.close()
    if problem := outcome.failure(log_command(jobs, outcome.job)):
        raise problem
    return outcome


class Listener:
    """Sorts what a job says: events to the sinks, all else to standard error."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def __call__(self, part: Part) -> None:
        if isinstance(part, str):
            to_stderr(part)
            return
        self._relay.hear(part)
        if "versions" in part and (difference := differing(versions(), part["versions"])):
            self._relay.warn(difference, "The same versions on both sides give the same model for sure.")


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Say which versions differ, or nothing."""
    found = [
        f"{name} {there[name]} (here {here[name]})" for name in here if name in there and here[name] != there[name]
    ]
    return f"The cluster has {', '.join(found)}." if found else ""


def to_stderr(line: str) -> None:
    # Looked up at every line: the live view puts its own stream there, which prints above the view.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
