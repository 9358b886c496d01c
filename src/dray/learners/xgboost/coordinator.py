"""The attempts of trees: a ring each, which runs many rounds without the driver.

A ring that breaks costs its unfinished round: its members break out of it, keep their rows, and the next ring goes on
from the model of the furthest of them.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from dray.errors import ClusterError, WorkerError
from dray.events.kinds import Warned
from dray.learners.attempt import Attempt, AttemptBroken, Finished, Paused
from dray.learners.checkpoint import Checkpoint
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.learner import Do
from dray.learners.row_mask import RowMask
from dray.learners.shard import Shard
from dray.learners.xgboost.boosting import Task
from dray.learners.xgboost.worker import Ended, Worker
from dray.rings.links import FIX, Link, Links, broken_links, without
from dray.rings.mesh import DRIVER
from dray.rings.ports import ports_for
from dray.rings.rendezvous import Rendezvous

LONGEST_RESCUE_S = 30.0
"""How long Ctrl-C waits for the end of a round at most."""
RETURN_S = 30.0
"""How long a worker may take to return from a ring that was interrupted; two rounds, if they take longer."""


@dataclass
class Ring:
    """One attempt, as a ring."""

    seats: dict[int, list[tuple[int, Shard]]]
    """The members of each worker, with their shards."""
    rendezvous: Rendezvous | None
    calls: dict[int, int] = field(default_factory=dict)
    """Workers by the number of their call."""
    ended: dict[int, Ended] = field(default_factory=dict)
    broken: bool = False
    pausing: bool = False

    @property
    def members(self) -> int:
        return sum(map(len, self.seats.values()))

    def lose(self, workers: set[int]) -> None:
        """Workers are gone: one that comes in the place of another knows nothing of what that ended with."""
        for worker in workers:
            self.ended.pop(worker, None)
        if not workers.isdisjoint(self.calls.values()):
            self.calls = {call: worker for call, worker in self.calls.items() if worker not in workers}
            self.broken = True


class RingCoordinator:
    """Trains one task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._task_ref: Any = None
        self._shared: tuple[Checkpoint, Any] | None = None
        self._links = Links()

    def run(self, attempt: Attempt) -> Finished[Checkpoint] | Paused:
        if self._task_ref is None:
            self._task_ref = attempt.share(self._task)
        if not self._task.is_over_at(attempt.latest):
            self._restore(attempt)
            ring = self._form(attempt)
            attempt.started(members=ring.members)
            self._follow(attempt, ring)
            self._conclude(attempt, ring)
        return Finished(attempt.latest) if self._task.is_over_at(attempt.latest) else Paused()

    def rescue(self, attempt: Attempt, error: BaseException) -> None:
        """Get the model of the last complete round from the first worker that answers, before all are ended."""
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            return
        workers = [worker for worker in attempt.holdings if attempt.host(worker)]
        for worker in workers:
            attempt.tell(worker, Do(Worker.stop))
        last = attempt.latest.rounds[-1].seconds if attempt.latest.rounds else 1.0
        deadline = time.monotonic() + min(LONGEST_RESCUE_S, max(5.0, 3 * last))
        lost = len(attempt.lost)
        asked = {attempt.call(worker, Do(Worker.checkpoint), self._task_ref).number for worker in workers}
        while asked and len(attempt.lost) < len(attempt.holdings) and time.monotonic() < deadline:
            for done in attempt.step():
                if done.call in asked:
                    attempt.offer(done.value)
                    return
            if len(attempt.lost) > lost:  # another one may still answer, if it is let out of the ring
                lost = len(attempt.lost)
                attempt.interrupt()

    def _restore(self, attempt: Attempt) -> None:
        """Set all shards to the newest checkpoint; the worker passes over those that are there.

        A worker that cannot get the checkpoint from the driver is replaced: another one may (`Attempt.step`).
        """
        if self._shared is None or self._shared[0] is not attempt.latest:
            self._shared = attempt.latest, attempt.share(attempt.latest)
        calls = {
            attempt.call(worker, Do(Worker.restore), self._task_ref, self._shared[1], shards).number
            for worker, shards in attempt.holdings.items()
        }
        while calls:
            calls -= {done.call for done in attempt.step()}
            if attempt.lost:
                raise AttemptBroken

    def _form(self, attempt: Attempt) -> Ring:
        seats: dict[int, list[tuple[int, Shard]]] = {worker: [] for worker in sorted(attempt.holdings)}
        for member, (worker, shard) in enumerate((w, shard) for w in seats for shard in attempt.holdings[w]):
            seats[worker].append((member, shard))
        ring = Ring(seats, None)
        if not attempt.alone:
            ring.rendezvous = Rendezvous(ring.members, attempt.ring_host, ports_for(attempt.ring_host, os.environ))
        address = None if ring.rendezvous is None else ring.rendezvous.address
        for worker, own in seats.items():
            call = attempt.call(worker, Do(Worker.train), self._task_ref, own, address, attempt.number)
            ring.calls[call.number] = worker
        return ring

    def _follow(self, attempt: Attempt, ring: Ring) -> None:
        """Follow a ring to its end."""
        limit_at: float | None = None
        with ring.rendezvous or nullcontext():
            while ring.calls:
                for done in attempt.step():
                    if done.call in ring.calls:
                        ended: Ended = done.value
                        ring.ended[ring.calls.pop(done.call)] = ended
                        attempt.prove(done.worker, ended.proof)
                        ring.broken |= ended.how == "broken"
                ring.lose(attempt.lost)
                if not ring.broken:
                    self._pause(attempt, ring)
                elif limit_at is None:
                    limit_at = time.monotonic() + self._longest_return_s(attempt)
                    if ring.rendezvous is not None:
                        ring.rendezvous.abandon()
                    attempt.interrupt()
                elif time.monotonic() >= limit_at:
                    self._end_stuck(attempt, ring)

    def _pause(self, attempt: Attempt, ring: Ring) -> None:
        if attempt.pause_wanted() and not ring.pausing:
            ring.pausing = True
            for worker in ring.calls.values():
                attempt.tell(worker, Do(Worker.pause), attempt.number)

    def _longest_return_s(self, attempt: Attempt) -> float:
        """An interrupted worker returns when it next needs its peers: it may have to compute until then."""
        rounds = attempt.latest.rounds
        return max(RETURN_S, 2 * rounds[-1].seconds) if rounds else RETURN_S

    def _end_stuck(self, attempt: Attempt, ring: Ring) -> None:
        """End the workers that have not returned from an interrupted ring."""
        why = f"it did not return within {self._longest_return_s(attempt):.0f} s after its ring was given up"
        error = WorkerError(
            f"A worker was ended: {why}.", fix="Look at its log: something in its process does not end."
        )
        for worker in sorted(set(ring.calls.values())):
            attempt.evict(worker, error, cause=why)
        ring.lose(attempt.lost)

    def _conclude(self, attempt: Attempt, ring: Ring) -> None:
        """Get the model of the last complete round; raise if the ring broke."""
        for worker, ended in sorted(ring.ended.items(), key=lambda item: -item[1].round):
            known = attempt.latest
            # The same round is news when a ring broke between its tree and its metrics, and this one made up for it.
            news = ended.round > known.round or (ended.round == known.round and not known.is_complete)
            if news and (checkpoint := self._ask_checkpoint(attempt, worker)) is not None:
                attempt.offer(checkpoint)
        attempt.report(attempt.latest.rounds)
        attempt.reached(attempt.latest.round)
        self._judge_links(attempt, ring)
        if ring.broken:
            raise AttemptBroken

    def _ask_checkpoint(self, attempt: Attempt, worker: int) -> Checkpoint | None:
        if worker in attempt.lost:
            return None
        asked = attempt.call(worker, Do(Worker.checkpoint), self._task_ref).number
        while worker not in attempt.lost:
            for done in attempt.step():
                if done.call == asked:
                    checkpoint: Checkpoint = done.value
                    return checkpoint
        return None

    def _judge_links(self, attempt: Attempt, ring: Ring) -> None:
        """Report workers that do not reach each other; go on without some when that does not mend itself."""
        worker_of = {member: worker for worker, seats in ring.seats.items() for member, _ in seats}
        pairs = [pair for ended in ring.ended.values() for pair in ended.unreachable]
        new, lasting = self._links.judge(broken_links(pairs, worker_of))
        for link in new:
            attempt.emit(Warned(_described(link, attempt), FIX))
        evicted = [worker for worker in without(lasting) if attempt.host(worker)]
        if evicted and len(evicted) == sum(1 for worker in attempt.holdings if attempt.host(worker)):
            raise ClusterError(" ".join(_described(link, attempt) for link in lasting), fix=FIX)
        reasons = {w: " ".join(_described(link, attempt) for link in lasting if w in link) for w in evicted}
        for worker, why in reasons.items():
            attempt.evict(worker, WorkerError(why, fix=FIX), replace=False)


class LabelSurvey:
    """Asks the workers what the labels of some rows look like."""

    def __init__(self, mask: RowMask) -> None:
        self._mask = mask

    def run(self, attempt: Attempt) -> Finished[list[tuple[LabelSummary, LabelSample]]]:
        mask = attempt.share(self._mask)
        calls = [
            attempt.call(worker, Do(Worker.labels), mask, shards).number for worker, shards in attempt.holdings.items()
        ]
        return Finished([found for listed in attempt.wait(calls).values() for found in listed])

    def rescue(self, attempt: Attempt, error: BaseException) -> None:
        """There is nothing to save."""


def _described(link: Link, attempt: Attempt) -> str:
    one, other = (_named(worker, attempt) for worker in link)
    return f"No connection between {one} and {other}."


def _named(worker: int, attempt: Attempt) -> str:
    if worker == DRIVER:
        return "the driver"
    host = attempt.host(worker)
    return f"worker {worker}" + (f" on {host}" if host else "")
