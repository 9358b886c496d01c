"""Commands wherever their `cluster` says: in this process and on clusters that it is part of, or as jobs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dray.clusters.resolve import Attached, Remote, resolve
from dray.errors import ClusterError, ConfigError
from dray.events.telemetry import Sink
from dray.jobs.command import Command, R

if TYPE_CHECKING:
    from dray.config.run_file import RunConfig
    from dray.learners.result import RunResult
    from dray.runs.naming import Names
    from dray.storage import StorageOptions


def run(command: Command[R], sinks: Sequence[Sink] = ()) -> R:
    """Execute a command where its word says, with what its names of runs and outputs mean."""
    command = command.named(names_of(command.storage, sinks))
    where = resolve(command.cluster)
    if not isinstance(where, Remote):
        return command.execute(where, sinks)
    from dray.clusters.providers import provider_of
    from dray.jobs.endpoint import open_endpoint
    from dray.jobs.remote import run_at

    with open_endpoint(where.word, provider_of) as place:
        return run_at(place, command, sinks)


def names_of(storage: StorageOptions, sinks: Sequence[Sink]) -> Names:
    """Return what tells the names of one command, and tells the sinks."""
    from dray.events.kinds import NameResolved
    from dray.runs.naming import Names

    def tell(name: str, location: str) -> None:
        for sink in sinks:
            sink.event(NameResolved(name, location))

    return Names(storage, tell)


def train(config: RunConfig, sinks: Sequence[Sink] = (), job: str | None = None) -> RunResult:
    """Train as the configuration says; `job`: this process is a try of that job, on the cluster itself."""
    from dray.jobs.commands.training import Train

    if job is not None:
        return Train(config).execute(Attached(config.cluster), sinks, job)
    return run(Train(config), sinks)


def resume(run: str, storage: StorageOptions, overrides: Mapping[str, Any], sinks: Sequence[Sink] = ()) -> RunResult:
    """Go on with a run where it was; `overrides` may name another cluster than it had."""
    from dray.jobs.commands.training import Resume

    run = names_of(storage, sinks).unfinished(run)
    command = Resume.of(run, storage, overrides)
    where = resolve(command.cluster)
    if not isinstance(where, Remote):
        return command.execute(where, sinks)
    from dray.clusters.providers import provider_of
    from dray.jobs.endpoint import open_endpoint
    from dray.jobs.remote import run_at

    with ExitStack() as stack:
        try:
            place = stack.enter_context(open_endpoint(where.word, provider_of))
        except (ClusterError, ConfigError) as error:
            raise ClusterError(
                f"The run {run} cannot go on at {where.word}: {error.what}",
                fix=f"{error.fix} To go on at this machine: dray resume {run} --cluster local.",
            ) from error
        return run_at(place, command, sinks)
