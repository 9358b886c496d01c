"""A command on a cluster elsewhere: it is a job there, and is followed as if it ran here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from dray.events.telemetry import Sink
from dray.events.visible import visible_log
from dray.jobs.attend import Outcome, log_command, new_job_id, see_through
from dray.jobs.client import Jobs
from dray.jobs.command import Command, R, task_of
from dray.jobs.ending import JobFailed
from dray.jobs.endpoint import Endpoint
from dray.jobs.marks import Part
from dray.jobs.relay import Relay
from dray.jobs.selecting import describe
from dray.jobs.shared import find_head
from dray.jobs.task import Options, Task, versions

_TOLD = ("secret", "ignored", "link", "unreadable")
"""Reasons why a file may be missed that the user expects to go along."""


def run_at(place: Endpoint, command: Command[R], sinks: Sequence[Sink] = ()) -> R:
    """Execute a command at an endpoint (`endpoint.open_endpoint`), as a job, and return its result.

    An interruption stops the job; a process that is killed does not, and `dray job logs ID --follow` shows the rest.
    What the job prints beside its events goes to standard error.
    """
    task = task_of(command, find_head(place.name, place.session))
    outcome = follow_run(Jobs(place), task, Options(), new_job_id(), sinks, command.libraries)
    return read_result(command, outcome)


def read_result(command: Command[R], outcome: Outcome) -> R:
    try:
        return command.result_of(outcome.result or {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JobFailed(
            f"The job {outcome.job} reported a result that dray cannot read: {type(error).__name__} {error}.",
            fix="Look at its output; the cluster may have another version of dray.",
        ) from error


def follow_run(
    jobs: Jobs, task: Task, options: Options, job: str, sinks: Sequence[Sink], libraries: Sequence[str] = ()
) -> Outcome:
    """Have the task done; return its good end, or raise. Other versions of `libraries` there are a warning."""
    relay = Relay(sinks)
    listener = Listener(relay, libraries)
    try:
        for warning in (*jobs.endpoint.warnings, *describe([out for out in task.left_out if out.why in _TOLD])):
            relay.warn(warning)
        outcome = see_through(jobs, task, options, job, listener, to_stderr)
    finally:
        relay.close()
    if problem := outcome.failure(log_command(jobs, outcome.job)):
        raise problem
    return outcome


class Listener:
    """Sorts what a job says: events to the sinks, all else to standard error."""

    def __init__(self, relay: Relay, libraries: Sequence[str] = ()) -> None:
        self._relay = relay
        self._libraries = libraries

    def __call__(self, part: Part) -> None:
        if isinstance(part, str):
            to_stderr(part)
            return
        self._relay.hear(part)
        there = part.get("versions")
        if isinstance(there, dict) and (difference := differing(versions(self._libraries), there)):
            self._relay.warn(difference, "The same versions on both sides give the same result for sure.")


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Say which versions differ, or nothing."""
    found = [
        f"{name} {there[name]} (here {here[name]})" for name in here if name in there and here[name] != there[name]
    ]
    return f"The cluster has {', '.join(found)}." if found else ""


def to_stderr(line: str) -> None:
    # Looked up at every line: the live view puts its own stream there, which prints above the view.
    sys.stderr.write(f"{visible_log(line)}\n")
    sys.stderr.flush()
