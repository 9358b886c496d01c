"""What a run reports: one class an event.

`kind` and the names of the fields are those of events.jsonl (docs/guides/events.md): a change here changes the form on
disk. A field whose default is None is left out there while it is None.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal

LOG_VERSION = 1
"""Of the form on disk. A new kind or a new field is no new version; another meaning of one that exists is."""


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a run. `time` is that of its making, in seconds since 1970."""

    time: float = field(default_factory=time.time, kw_only=True)

    @property
    def kind(self) -> str:
        """The name of the event on disk."""
        raise NotImplementedError

    @property
    def data(self) -> dict[str, Any]:
        """The fields by their names on disk, without the time."""
        return {
            entry.name.rstrip("_"): _nested(value)
            for entry in fields(self)
            if entry.name not in ("time", "kind")
            and ((value := getattr(self, entry.name)) is not None or entry.default is MISSING)
        }


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The first event of a run, and of every resumption of it."""

    run: str
    directory: str
    config: dict[str, Any]
    step: str = "round"
    """What a step of the training is called: "round" or "epoch"."""
    log_version: int = LOG_VERSION
    kind: ClassVar[str] = "run_started"


@dataclass(frozen=True, slots=True)
class PastStep:
    """A step of an earlier process of the run."""

    round: int
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """The run goes on from a checkpoint."""

    round: int
    """The last step that the checkpoint contains."""
    rounds: Sequence[PastStep]
    from_: str
    """The run directory of the checkpoint."""
    kind: ClassVar[str] = "resumed"


@dataclass(frozen=True, slots=True)
class PhaseStarted(Event):
    """A stage of the work begins: prepare, start, load, train, save and others."""

    name: str
    alone: bool | None = None
    """Of "start": no worker is started, this process trains."""
    kind: ClassVar[str] = "phase"


@dataclass(frozen=True, slots=True)
class DataFound(Event):
    """The footers of the data have been read."""

    rows: int
    files: int
    row_groups: int
    bytes: int
    features: int | None = None
    kind: ClassVar[str] = "data"


@dataclass(frozen=True, slots=True)
class PairsFound(Event):
    """The rows of a recommender have been combined to pairs of a user and an item."""

    rows: int
    pairs: int
    users: int
    items: int
    by_host: Mapping[str, int]
    """Rows."""
    types: Mapping[str, int]
    """Rows by the value of the event column."""
    noun: str = "pairs"
    """What the pairs are: "ratings" or "pairs"."""
    kind: ClassVar[str] = "events"


@dataclass(frozen=True, slots=True)
class NameResolved(Event):
    """A name in the command means another: `latest`, or the pattern of a date."""

    name: str
    location: str
    kind: ClassVar[str] = "name"


@dataclass(frozen=True, slots=True)
class SourceConverted(Event):
    """Data that is not Parquet has a Parquet copy."""

    source: str
    format: str
    copy: str
    made: bool
    """False: a copy of an earlier run is used."""
    made_at: str | None
    rows: int
    kind: ClassVar[str] = "copied"


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """What the run does where it had a choice, and why."""

    workers: int
    """0: the driver trains by itself."""
    threads: int
    """Of each worker."""
    objective: str
    reasons: Sequence[str]
    kind: ClassVar[str] = "decided"


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A worker is ready to load."""

    worker: int
    host: str
    pid: int
    threads: int
    replacement: bool
    kind: ClassVar[str] = "worker_started"


@dataclass(frozen=True, slots=True)
class WorkerProgress(Event):
    """A worker has read rows. Not stored on disk."""

    worker: int
    rows: int
    total_rows: int | None
    kind: ClassVar[str] = "worker_progress"


@dataclass(frozen=True, slots=True)
class WorkerBusy(Event):
    """A worker does something beside that takes long, such as compiling."""

    worker: int
    host: str
    doing: str
    kind: ClassVar[str] = "worker_busy"


@dataclass(frozen=True, slots=True)
class WorkerLost(Event):
    """A worker died, or no longer answers."""

    worker: int
    host: str | None
    pid: int | None
    cause: str
    noticed_after_s: float
    round: int
    phase: str
    detail: str | None = None
    """The traceback, where there is one."""
    kind: ClassVar[str] = "worker_lost"


@dataclass(frozen=True, slots=True)
class WorkerJoined(Event):
    """A new worker takes part from step `round` on."""

    worker: int
    host: str
    rows: int
    round: int
    kind: ClassVar[str] = "joined"


@dataclass(frozen=True, slots=True)
class WorkerLeaving(Event):
    """A worker's node is about to go; its rows are handed over."""

    worker: int
    host: str
    why: str
    kind: ClassVar[str] = "leaving"


@dataclass(frozen=True, slots=True)
class WorkerLeft(Event):
    """A worker has ended without a loss."""

    worker: int
    host: str
    why: str
    kind: ClassVar[str] = "left"


@dataclass(frozen=True, slots=True)
class ShardLoading(Event):
    """A worker loads rows after training has begun: those of a lost worker, or its own as a new one."""

    worker: int
    rows: int
    why: str
    kind: ClassVar[str] = "reload"


@dataclass(frozen=True, slots=True)
class ShardLoaded(Event):
    """Rows are ready to train on."""

    worker: int
    rows: int
    seconds: float
    kind: ClassVar[str] = "worker_loaded"


@dataclass(frozen=True, slots=True)
class AttemptStarted(Event):
    """Workers that hold all rows train on after step `round`."""

    members: int
    """Of the ring."""
    workers: int
    round: int
    kind: ClassVar[str] = "ring"


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """Training goes on after a loss."""

    round: int
    seconds: float
    """Since the loss was noticed."""
    rows_reloaded: int
    workers: int
    kind: ClassVar[str] = "recovered"


@dataclass(frozen=True, slots=True)
class Waiting(Event):
    """The run can do nothing for now."""

    why: str
    limit_s: float
    kind: ClassVar[str] = "waiting"


@dataclass(frozen=True, slots=True)
class WorkerPace:
    """How fast a worker was in a step."""

    worker: int
    host: str
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class StepFinished(Event):
    """A round of trees or an epoch of a recommender is done."""

    round: int
    rounds: int | None
    """How many there are to be."""
    seconds: float | None
    metrics: Mapping[str, float | None]
    workers: Sequence[WorkerPace] | None = None
    learning_rate: float | None = None
    halvings: int | None = None
    """How many times the learning rate was halved."""
    kind: ClassVar[str] = "round"


@dataclass(frozen=True, slots=True)
class StepRepeated(Event):
    """Training diverged: the step is done again with a smaller learning rate."""

    round: int
    learning_rate: float
    why: str
    kind: ClassVar[str] = "diverged"


@dataclass(frozen=True, slots=True)
class CheckpointWritten(Event):
    """The run can be resumed after step `round`."""

    round: int
    seconds: float
    kind: ClassVar[str] = "checkpoint"


@dataclass(frozen=True, slots=True)
class ThreadsMeasured(Event):
    """How many cores a worker has used over its first steps."""

    worker: int
    host: str
    decided: int
    used: float
    ok: bool
    kind: ClassVar[str] = "threads"


@dataclass(frozen=True, slots=True)
class Progress(Event):
    """So much of the phase is done. Not stored on disk."""

    done: float
    total: float | None
    """None: not known."""
    unit: str
    kind: ClassVar[str] = "progress"


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something the user should know; the run goes on."""

    message: str
    fix: str = ""
    kind: ClassVar[str] = "warning"


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """The last event of a run that came to its end."""

    result: dict[str, Any]
    kind: ClassVar[str] = "run_finished"


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """The last event of a run that did not."""

    error: str
    fix: str = ""
    status: Literal["stopped"] | None = None
    """Stopped by the user or by a limit, not by a failure."""
    traceback: str | None = None
    kind: ClassVar[str] = "run_failed"


def _nested(value: Any) -> Any:
    """Return a list of parts, such as the paces of workers, as a list of dictionaries."""
    if isinstance(value, list | tuple):
        return [asdict(part) if is_dataclass(part) else part for part in value]  # type: ignore[arg-type]
    return value


@dataclass(frozen=True, slots=True)
class UnknownEvent(Event):
    """An event that another version of dray has written, and that this one does not know."""

    kind: str = field()  # without it, the property above is its default
    fields: Mapping[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        return dict(self.fields)


KINDS: dict[str, type[Event]] = {
    event.kind: event
    for event in list(globals().values())
    if isinstance(event, type) and issubclass(event, Event) and isinstance(event.kind, str)
}
