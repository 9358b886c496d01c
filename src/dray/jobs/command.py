"""The contract of a command that runs where its `--cluster` says: in this process, or as a job that is followed.

A command is plain values. Its own `execute` does the work, in whatever process it is called; what differs between here
and elsewhere is that its values travel as JSON, and that its paths must mean the same files on both sides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self, TypeVar

from dray.clusters.resolve import Attached, Here
from dray.config.private import check_texts, texts_in
from dray.errors import ConfigError
from dray.events.telemetry import Sink
from dray.jobs.selecting import select
from dray.jobs.shared import Head, as_absolute, check_paths
from dray.jobs.task import Task
from dray.jobs.user_code import Code
from dray.runs.naming import Names
from dray.storage import StorageOptions

_CLASSES = {
    "train": "training.Train",
    "resume": "training.Resume",
    "predict": "predicting.Predict",
    "recommend": "recommending.Recommend",
    "map": "mapping.Map",
    "data ingest": "ingesting.Ingest",
}
"""Where each command's class is, below `dray.jobs.commands`."""


class Result(Protocol):
    """What a command came to."""

    def to_json(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)


class Command(Protocol[R_co]):
    """One command with all that was asked of it. A value: nothing happens before `execute`."""

    name: ClassVar[str]
    """As the user types it."""
    source: ClassVar[str]
    """What the user wrote the values in, for an error that quotes it."""

    @property
    def cluster(self) -> str:
        """The word that the user gave."""

    @property
    def storage(self) -> StorageOptions:
        """How the model and the output are reached."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Packages whose versions may change the result."""

    @property
    def code(self) -> Code | None:
        """The directory with the user's functions, which goes along; None if it needs none."""

    def named(self, names: Names) -> Self:
        """Return it with what its names of runs and outputs mean."""

    def settled(self, head: Head) -> Self:
        """Return it as it holds on the head of a cluster, with absolute paths; refuse what cannot be done there."""

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self: ...

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> R_co:
        """Do it, as a driver of this process. `job`: this process is a try of that job."""

    def result_of(self, told: Mapping[str, Any]) -> R_co:
        """Return the result that a job told; raises what reading a strange document raises."""


def read_command(order: Mapping[str, Any]) -> Command[Result]:
    """Return the command that `task_of` wrote down."""
    module, _, name = _CLASSES[order["command"]].partition(".")
    found: type[Command[Result]] = getattr(import_module(f"dray.jobs.commands.{module}"), name)
    return found.from_json(order["values"])


def task_of(command: Command[Result], head: Head, name: str | None = None) -> Task:
    """Return the task of a job that executes the command; refuse secrets, and paths that are others on the head."""
    settled = command.settled(head)
    values, code = settled.to_json(), settled.code
    try:
        json.dumps(values)
    except TypeError as error:
        raise ConfigError(
            f"dray {command.name} at {head.url} takes locations of data and plain values only: {error}.",
            fix="Write the data to storage that the cluster reaches, and name it; write options as in a run file.",
        ) from None
    check_texts(command.source, texts_in(values), os.environ)
    order = {"command": command.name, "values": values, "code": code is not None}
    if code is None:
        return Task(name or f"dray {command.name}", "run", order)
    selection = select(code.root, code.excludes)
    return Task(name or f"dray {command.name}", "run", order, code.root, selection.files, selection.left_out)


def shared_paths(head: Head, **named: Any) -> dict[str, list[str]]:
    """Return locations as a process on the head finds them, by name; refuse those that are something else there."""
    found = {name: as_absolute(list(_locations(name, given, head))) for name, given in named.items()}
    check_paths(((name, location) for name, locations in found.items() for location in locations), head)
    return found


def _locations(name: str, given: Any, head: Head) -> Iterator[str]:
    if given is None:
        return
    # A table is also something to go through: it would give its columns.
    locations = given if isinstance(given, list | tuple) else [given]
    for location in locations:
        if not isinstance(location, str):
            raise ConfigError(
                f"{name} is a {type(location).__name__} in this process, and the command runs at {head.url}.",
                fix="Write it to storage that the cluster reaches, and name it.",
            )
        yield location
