"""One attempt of a training: what the controller offers a learner's coordinator, and how an attempt ends.

An attempt has a fixed set of workers that together hold all rows. A coordinator runs it in the controller's thread; the
controller implements `Attempt` and, while the coordinator waits, watches the workers and has others load beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from dray.events.kinds import Event, WorkerPace
    from dray.learners.checkpoint import Checkpoint, Step
    from dray.learners.learner import Op
    from dray.learners.shard import Holdings
    from dray.learners.status import Proof

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Call(NamedTuple):
    """A call that was made: the number that its result will come under, and what stays on the worker."""

    number: int
    kept: list[Any]
    """`elastic.group.Kept`, one for each result that the op keeps."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A call has returned."""

    worker: int
    call: int
    value: Any


@dataclass(frozen=True, slots=True)
class Finished(Generic[E_co]):
    """The coordinator has done what it is there for."""

    end: E_co


@dataclass(frozen=True, slots=True)
class Paused:
    """The attempt ended at the end of a step because `Attempt.pause_wanted` asked for it."""


class AttemptBroken(Exception):  # noqa: N818  (not a failure: another attempt follows)
    """A worker of the attempt was lost, or what it made: the controller starts another attempt."""


class CheckpointGone(AttemptBroken):
    """What the attempt was to go on from was lost with a machine: the next one goes on from an older checkpoint."""


class Attempt(Protocol):
    """One attempt, as its coordinator sees it. One thread."""

    number: int
    """From 1, never used again in a session."""
    holdings: Holdings
    """Which worker holds which shards: together all rows."""
    alone: bool
    """The one worker is the driver's process."""
    ring_host: str
    """Where a rendezvous listens so that every worker reaches it."""
    lost: set[int]
    """Workers of the attempt that were lost since it began."""

    @property
    def latest(self) -> Checkpoint:
        """The newest checkpoint of this fit."""

    def host(self, worker: int) -> str:
        """Return the name of a worker's machine, "" if the worker is gone."""

    def call(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> Call:
        """Have a worker do something; `wait` or `step` returns what comes of it.

        What is kept may be an input of another call at once. Raises `CheckpointGone` if an input is known to be lost.
        """

    def post(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> list[Any]:
        """As `call`, for an op without a value: nothing reports it, a later call does. Returns what is kept."""

    def tell(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> None:
        """Have a worker do something at once, whatever it is doing, and do not wait for it."""

    def share(self, value: Any) -> Any:
        """Return what to pass to several workers instead of a large value. It is valid in later attempts too."""

    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        """Return what was kept, or shared, or raise `InputGone`. Any thread may call it."""

    def wait(self, calls: Iterable[int]) -> dict[int, Any]:
        """Return the results by the number of the call. Raises `AttemptBroken` as soon as a worker is lost."""

    def step(self) -> list[Returned]:
        """Return the results that have come, after half a second at most. Losses are in `lost` and raise nothing."""

    def pause_wanted(self) -> bool:
        """Whether other workers have loaded and the attempt is to pause at the end of the step."""

    def interrupt(self) -> None:
        """Have all workers of the attempt break off what they do in it (`WorkerSide.interrupt`)."""

    def evict(self, worker: int, error: Exception, *, cause: str | None = None, replace: bool = True) -> None:
        """End a worker as if it had been lost; without `replace` no other worker is started for it."""

    def give_up(self, error: Exception) -> AttemptBroken:
        """Count an input that no loss explains; return what to raise. Stops the run if that lasts too long."""

    def started(self, *, members: int | None = None) -> None:
        """Report that training goes on: after a loss this is when the run has recovered."""

    def report(
        self,
        steps: Iterable[Step],
        *,
        paces: Sequence[WorkerPace] | None = None,
        learning_rate: float | None = None,
        halvings: int | None = None,
    ) -> None:
        """Report steps that were not reported yet; the training has reached the last of them."""

    def reached(self, step: int) -> None:
        """Say which step is complete, reported or not: a step that is interrupted again and again ends the run."""

    def restart_at(self, step: int) -> None:
        """Say that the training goes on after that step, an older one perhaps: later ones are reported again."""

    def offer(self, checkpoint: Checkpoint) -> None:
        """Take in a checkpoint if it is newer than `latest`. It is written by another thread. Any thread may call."""

    def forget_model(self) -> None:
        """Drop the bytes of the newest checkpoint: the training is over, and they only take up room."""

    def prove(self, worker: int, proof: Proof) -> None:
        """Report how many cores a worker has used."""

    def emit(self, event: Event) -> None: ...


class Coordinator(Protocol[E_co]):
    """Runs the attempts of one fit. It keeps what an attempt leaves for the next one."""

    def run(self, attempt: Attempt) -> Finished[E_co] | Paused:
        """Go on until the training is over or a pause is wanted. Raises `AttemptBroken` when a worker is lost."""

    def rescue(self, attempt: Attempt, error: BaseException) -> None:
        """Something ends the training before its time: offer the newest checkpoint at hand, within seconds."""


class Runner(Protocol):
    """Runs coordinators: the controller."""

    def run(self, coordinator: Coordinator[E]) -> E:
        """Return what the coordinator finished with, whatever was lost on the way."""


class Surveyors(Protocol):
    """The workers before anything is loaded."""

    @property
    def count(self) -> int:
        """How many are ready."""

    def run(self, op: Op[..., R], tasks: Sequence[Sequence[Any]]) -> list[R]:
        """Have every task, the inputs of one call, done by some worker; return the results in their order."""


@dataclass(frozen=True)
class Loads:
    """What came of loading all rows."""

    reports: Sequence[Any]
    """What each shard or unit reported, in their order."""
    rows_by_host: Mapping[str, int]
    """Rows read on each machine; empty where it is not counted."""
