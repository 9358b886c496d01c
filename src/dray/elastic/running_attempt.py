"""What the controller offers a learner's coordinator during one attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dray.elastic.checkpoint_writer import CheckpointWriter
from dray.elastic.group import Raised
from dray.elastic.keyed_units import GRACE_S
from dray.events.kinds import Event, WorkerPace
from dray.events.telemetry import Telemetry
from dray.learners.attempt import AttemptBroken, Call, CheckpointGone, Returned
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.layouts import Interrupt
from dray.learners.learner import InputGone, Op, PeerCut
from dray.learners.shard import Holdings
from dray.learners.status import Proof

if TYPE_CHECKING:
    from dray.elastic.controller import Controller

P = ParamSpec("P")
R = TypeVar("R")


class RunningAttempt:
    """Implements `learners.attempt.Attempt`."""

    def __init__(
        self, controller: Controller, telemetry: Telemetry, number: int, holdings: Holdings, before: Holdings
    ) -> None:
        membership = controller.membership
        self._controller = controller
        self._membership = membership
        self._group = membership.group
        self._telemetry = telemetry
        self.number = number
        self.holdings = holdings
        self.before = before
        """The holdings of the attempt before this one."""
        self.alone = membership.alone
        self.ring_host = membership.group.ring_host
        self.lost: set[int] = set()
        self._calls: set[int] = set()
        self.broken = False
        self.pausing = False
        self.over = False

    @property
    def _checkpoints(self) -> CheckpointWriter:
        assert self._controller.checkpoints is not None
        return self._controller.checkpoints

    @property
    def latest(self) -> Checkpoint:
        return self._checkpoints.latest

    def host(self, worker: int) -> str:
        member = self._membership.ready.get(worker)
        return "" if member is None else member.host

    def call(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> Call:
        call = self._made(worker, lambda: self._group.call(worker, op, *inputs, **named))
        self._calls.add(call.number)
        return call

    def post(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> list[Any]:
        return self._made(worker, lambda: self._group.post(worker, op, *inputs, **named))

    def tell(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> None:
        if worker in self._membership.ready:
            self._group.tell(worker, op, *inputs, **named)

    def share(self, value: Any) -> Any:
        return self._group.share(value)

    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        return self._group.fetch(kept)

    def wait(self, calls: Iterable[int]) -> dict[int, Any]:
        open_calls, results = set(calls), dict[int, Any]()
        gone: InputGone | None = None
        gone_at = 0.0
        while open_calls:
            for event in self._events():
                if event.call not in open_calls:
                    continue
                if isinstance(event, Returned):
                    open_calls.remove(event.call)
                    results[event.call] = event.value
                    continue
                gone_at = gone_at or time.monotonic()
                if gone is None or isinstance(event.error, PeerCut):
                    assert isinstance(event.error, InputGone)
                    gone = event.error
            if self.lost:
                raise AttemptBroken
            if gone is not None and time.monotonic() - gone_at > GRACE_S:
                broken = self.give_up(gone)
                raise broken if isinstance(gone, PeerCut) else CheckpointGone
        return results

    def step(self) -> list[Returned]:
        returned: list[Returned] = []
        for event in self._events():
            if isinstance(event, Returned):
                returned.append(event)
            elif event.call in self._calls:  # else one that was given up with what it needed
                self.evict(event.worker, event.error)
        return returned

    def pause_wanted(self) -> bool:
        return self.pausing

    def interrupt(self) -> None:
        self.broken = True
        self._controller.disturb()
        for worker in self.holdings:
            self.tell(worker, Interrupt(), self.number)

    def evict(self, worker: int, error: Exception, *, cause: str | None = None, replace: bool = True) -> None:
        self._membership.fail(worker, error, replace=replace, cause=cause)
        self._controller.lose(worker)

    def give_up(self, error: Exception) -> AttemptBroken:
        return self._controller.give_up(error)

    def started(self, *, members: int | None = None) -> None:
        self._controller.started(self, members)

    def report(
        self,
        steps: Iterable[Step],
        *,
        paces: Sequence[WorkerPace] | None = None,
        learning_rate: float | None = None,
        halvings: int | None = None,
    ) -> None:
        for done in steps:
            self._membership.watch.tell(done, paces=paces, learning_rate=learning_rate, halvings=halvings)
            self._controller.reach(done.round)

    def reached(self, step: int) -> None:
        self._controller.reach(step)

    def restart_at(self, step: int) -> None:
        self._controller.reach(step)
        self._membership.watch.rounds_told = step

    def offer(self, checkpoint: Checkpoint) -> None:
        self._checkpoints.offer(checkpoint)

    def forget_model(self) -> None:
        self._checkpoints.forget_model()

    def prove(self, worker: int, proof: Proof) -> None:
        self._controller.proofs[worker] = self.host(worker), proof
        self._membership.watch.prove(worker, self.host(worker), proof)

    def emit(self, event: Event) -> None:
        self._telemetry.emit(event)

    def _events(self) -> list[Returned | Raised]:
        found = self._controller.events()
        self._controller.prepare_change(self)
        return found

    def _made(self, worker: int, make: Callable[[], R]) -> R:
        if worker not in self._membership.ready:
            raise AttemptBroken
        try:
            return make()
        except InputGone:
            raise CheckpointGone from None
