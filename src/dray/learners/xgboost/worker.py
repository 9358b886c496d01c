"""One worker: loads and holds shards of the rows, takes part in the rounds, and reports how it is doing.

Knows nothing of Ray: `elastic/actor.py` puts it into an actor, `elastic/alone.py` runs it in the driver's process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from dray.data.shards import Units, rows_of
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.layouts import ShardReport
from dray.learners.reporting_worker import ReportingWorker
from dray.learners.row_mask import RowMask
from dray.learners.shard import Shard
from dray.learners.status import Proof
from dray.learners.xgboost.boosting import ShardLearner, Task
from dray.learners.xgboost.matrix import BinnedPreparation
from dray.learners.xgboost.ring import RingDoor, is_ring_failure
from dray.rings.rendezvous import RingAddress
from dray.threads.apply import apply
from dray.threads.decide import share_threads
from dray.threads.verify import CoresUsed

PROOF_ROUNDS = 10
PROOF_SECONDS = 1.0
CHECKPOINT_S = 5.0
CHECKPOINT_SHARE = 0.01
"""Never spend more of the time than this on copies of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport(ShardReport):
    labels: LabelSummary
    label_sample: LabelSample
    eval_labels: LabelSummary | None
    unseen: dict[str, int]
    unreadable: dict[str, int] = field(default_factory=dict)
    eval_unreadable: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a ring ended for this worker."""

    how: Literal["finished", "paused", "broken"]
    round: int
    """Complete rounds of the model that this worker holds."""
    proof: Proof
    why: str = ""
    unreachable: frozenset[tuple[int, int]] = frozenset()
    """Which members of this worker could not reach which others; -1 is the driver."""


class Worker(ReportingWorker):
    """`status`, `latest`, `pause`, `interrupt` and `stop` may be called from any thread; the rest from one at a time,
    but `load`, which may run beside them. The number of an attempt is that of its ring."""

    def __init__(self, number: int, threads: int) -> None:
        super().__init__(number, threads)
        self._shards: dict[Shard, ShardLearner] = {}
        self._ring: tuple[int, RingDoor] | None = None
        # Rings by number: what is asked of one may arrive before this worker is in it, or after it has left.
        self._pause_till = 0
        self._free_till = 0
        self._lead: ShardLearner | None = None
        self._copy: Checkpoint | None = None
        self._copied_at = 0.0
        self._copy_s = 0.0
        self._trained_s = 0.0

    # From any thread

    def steps(self, after_round: int) -> tuple[Step, ...]:
        lead = self._lead
        return () if lead is None else tuple(lead.rounds[after_round:])

    def latest(self) -> Checkpoint | None:
        """Return the newest copy of the model: a few seconds old, and there at once."""
        return self._copy

    def pause(self, ring: int) -> None:
        """Ask a ring, and those before it, to stop at the end of the round."""
        self._pause_till = max(self._pause_till, ring)

    def interrupt(self, attempt: int) -> None:
        """Break out of a ring, and those before it, in which a member does not answer."""
        self._free_till = max(self._free_till, attempt)
        if self._ring is not None and self._ring[0] <= attempt:
            self._ring[1].free()

    # One at a time

    def load(self, preparation: BinnedPreparation, shard: Shard, train: Units, evaluation: Units) -> LoadReport:
        started = time.perf_counter()
        self.rows += rows_of(train)
        self.to_read += ShardLearner.rows_to_read(
            rows_of(train), rows_of(evaluation), split=preparation.split is not None
        )
        learner = ShardLearner(self.threads)
        with apply(self.threads):
            labels = learner.load(preparation, train, evaluation, self.on_rows, self.on_wait)
        self._shards[shard] = learner
        eval_labels = learner.eval_labels
        assert learner.train_rows is not None
        return LoadReport(
            rows=learner.train_rows.rows,
            eval_rows=0 if eval_labels is None else eval_labels.rows,
            labels=labels,
            label_sample=learner.label_sample,
            eval_labels=eval_labels,
            unseen=learner.unseen,
            rows_dropped=len(learner.train_rows.dropped),
            eval_rows_dropped=learner.eval_dropped,
            unreadable=dict(learner.unreadable),
            eval_unreadable=dict(learner.eval_unreadable),
            seconds=time.perf_counter() - started,
        )

    def drop(self, shards: Sequence[Shard]) -> None:
        """Drop shards that other workers hold."""
        for shard in shards:
            if (learner := self._shards.pop(shard, None)) is not None and learner.train_rows is not None:
                self.rows -= learner.train_rows.rows

    def labels(self, mask: RowMask, shards: Sequence[Shard]) -> list[tuple[LabelSummary, LabelSample]]:
        """Return what the labels of the chosen rows look like, shard by shard."""
        return [self._shards[shard].labels_of(mask) for shard in shards]

    def restore(self, task: Task, at: Checkpoint, shards: Sequence[Shard]) -> None:
        """Set these shards to a checkpoint, but for those that are there already."""
        if task.fit != self.fit:
            self._lead, self._copy, self._trained_s = None, None, 0.0  # before its number: see `status`
            self.begin_fit(task.fit)
        with apply(self.threads):
            for learner in (self._shards[shard] for shard in shards):
                if not learner.is_at(task, at):
                    learner.threads = self.threads  # one after another, each may use all
                    learner.restore(task, at)
        self._copy = at if at.round else self._copy

    def train(self, task: Task, seats: Sequence[tuple[int, Shard]], address: RingAddress | None, ring: int) -> Ended:
        """Take these seats in the ring, each in a thread of its own, until the training is over or the ring is."""
        door = RingDoor(address)
        self._ring = ring, door
        if ring <= self._free_till:
            door.free()
        learners = [self._shards[shard] for _, shard in seats]
        shares = share_threads(self.threads, [_rows(learner) for learner in learners])
        for learner, threads in zip(learners, shares, strict=True):
            learner.threads = threads
        self._lead = learners[0]
        if self.cores is None:
            self.cores = CoresUsed().start()

        def wants_pause() -> bool:
            return ring <= self._pause_till or self.stopping

        def sit(seat: int) -> str:
            learner, (member, _) = learners[seat], seats[seat]
            try:
                with apply(learner.threads):
                    return learner.train(
                        task, door, member, on_round=self._on_round(task, member), wants_pause=wants_pause
                    )
            except Exception:
                door.free()  # the other seats of this process cannot go on without this one
                raise

        with ThreadPoolExecutor(max_workers=max(1, len(seats) - 1), thread_name_prefix="dray-seat") as others:
            rest = [others.submit(sit, seat) for seat in range(1, len(seats))]
            ends: list[str] = []
            failures: list[Exception] = []
            for seat in range(len(seats)):
                try:
                    ends.append(sit(0) if seat == 0 else rest[seat - 1].result())
                except Exception as error:
                    failures.append(error)
        for failure in failures:
            if not is_ring_failure(failure):
                raise failure
        how: Literal["finished", "paused", "broken"] = "broken"
        if not failures:
            how = "paused" if "paused" in ends else "finished"
        why = _last_words(failures[0]) if failures else ""
        done = max(learner.done(task) for learner in learners)
        self._lead = max(learners, key=lambda learner: len(learner.rounds))
        if how == "broken":  # some may be a round ahead of others: all are restored
            for learner in learners:
                learner.is_whole = False
        return Ended(how, done, self.prove(), why, door.unreachable)

    def checkpoint(self, task: Task) -> Checkpoint:
        """Return the model of the last complete round that this worker has."""
        learners = [learner for learner in list(self._shards.values()) if learner.fit == task.fit]
        return max(learners, key=lambda learner: (learner.done(task), len(learner.rounds))).checkpoint(task)

    def _on_round(self, task: Task, member: int) -> Callable[[ShardLearner, Step], None]:
        def tell(learner: ShardLearner, done: Step) -> None:
            if learner is not self._lead:
                return
            self._trained_s += done.seconds
            if done.round >= PROOF_ROUNDS and self._trained_s >= PROOF_SECONDS:
                self.prove()
            # The first member's copy is for all. A copy costs little, and never more than its share.
            if member == 0 and time.monotonic() - self._copied_at > max(CHECKPOINT_S, self._copy_s / CHECKPOINT_SHARE):
                self._take_copy(task, learner)

        self._copied_at = time.monotonic()
        return tell

    def _take_copy(self, task: Task, learner: ShardLearner) -> None:
        started = time.monotonic()
        with suppress(MemoryError):  # a copy that cannot be had is tried again
            self._copy = learner.checkpoint(task)
        self._copied_at = time.monotonic()
        self._copy_s = self._copied_at - started


def _rows(learner: ShardLearner) -> int:
    assert learner.train_rows is not None
    return learner.train_rows.rows


def _last_words(error: Exception) -> str:
    """Return the innermost reason of an XGBoostError: the last line above its native stack trace."""
    words = str(error).partition("Stack trace:")[0].split("\n")
    return next((line.strip() for line in reversed(words) if line.strip()), type(error).__name__)
