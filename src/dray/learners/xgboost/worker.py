"""One worker: holds parts of the rows, loads them, takes part in the rounds, and tells how it is doing.

Knows nothing of Ray: `actor.py` puts it into an actor, `alone.py` runs it in this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from dray.data.prepare import Preparation
from dray.data.scan import Found, scan
from dray.data.shards import Slice, Units, rows_of
from dray.errors import StorageError
from dray.events.sampler import UsageReader
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.shard import Shard
from dray.learners.status import Proof, Status, Stopped
from dray.learners.xgboost.boosting import PartLearner, Task
from dray.learners.xgboost.ring import RingDoor, is_ring_failure
from dray.rings.rendezvous import RingAddress
from dray.storage import StorageOptions
from dray.threads.apply import apply
from dray.threads.decide import share_threads
from dray.threads.verify import CoresUsed, judge

PROOF_ROUNDS = 10
PROOF_SECONDS = 1.0
CHECKPOINT_S = 5.0
CHECKPOINT_SHARE = 0.01
"""Never spend more of the time than this on copies of the model."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    rows: int
    eval_rows: int
    labels: LabelSummary
    label_sample: LabelSample
    eval_labels: LabelSummary | None
    unseen: dict[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a ring ended for this worker."""

    how: Literal["finished", "paused", "broken"]
    round: int
    """Complete rounds of the model that this worker holds."""
    whole: tuple[Shard, ...]
    """Parts that can go on as they are."""
    proof: Proof
    why: str = ""
    unreachable: frozenset[tuple[int, int]] = frozenset()
    """Which members of this worker could not reach which others; -1 is the driver."""


class Worker:
    """`status`, `latest`, `pause`, `free` and `stop` may be called from any thread; the rest from one at a time,
    but `load`, which may run beside them."""

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        """In its group."""
        self._threads = threads
        self._parts: dict[Shard, PartLearner] = {}
        self._usage = UsageReader()
        self._usage_lock = threading.Lock()
        self._read = 0
        self._to_read = 0
        self._rows = 0
        self._trouble = ""
        self._ring: tuple[int, RingDoor] | None = None
        # Rings by number: what is asked of one may arrive before this worker is in it, or after it has left.
        self._pause_till = 0
        self._free_till = 0
        self._lead: PartLearner | None = None
        self._copy: Checkpoint | None = None
        self._copied_at = 0.0
        self._copy_s = 0.0
        self._cores: CoresUsed | None = None
        self._proof: Proof | None = None
        self._trained_s = 0.0
        self._stop = threading.Event()

    # From any thread

    def status(self, after_round: int) -> Status:
        with self._usage_lock:
            usage = self._usage.read()
        share = min(1.0, self._read / self._to_read) if self._to_read else 0.0
        lead = self._lead
        rounds = () if lead is None else tuple(lead.rounds[after_round:])
        copied = 0 if self._copy is None else self._copy.round
        return Status(usage, int(self._rows * share), self._rows, rounds, self._proof, self._trouble, copied)

    def latest(self) -> Checkpoint | None:
        """Return the newest copy of the model: a few seconds old, and there at once."""
        return self._copy

    def pause(self, ring: int) -> None:
        """Ask a ring, and those before it, to stop at the end of the round."""
        self._pause_till = max(self._pause_till, ring)

    def free(self, ring: int) -> None:
        """Break out of a ring, and those before it, in which somebody does not answer."""
        self._free_till = max(self._free_till, ring)
        if self._ring is not None and self._ring[0] <= ring:
            self._ring[1].free()

    def stop(self) -> None:
        self._stop.set()

    # One at a time

    def scan(
        self, slices: Sequence[Slice], categories: Sequence[str], group: str | None, storage: StorageOptions
    ) -> Found:
        return scan(slices, categories, group, storage, self._on_wait)

    def load(self, preparation: Preparation, part: Shard, train: Units, other_eval: Units) -> LoadReport:
        started = time.perf_counter()
        self._rows += rows_of(train)
        self._to_read += PartLearner.rows_to_read(
            rows_of(train), rows_of(other_eval), split=preparation.split is not None
        )
        learner = PartLearner(self._threads)
        with apply(self._threads):
            labels = learner.load(preparation, train, other_eval, self._on_rows, self._on_wait)
        self._parts[part] = learner
        eval_labels = learner.eval_labels
        assert learner.train_part is not None
        return LoadReport(
            rows=learner.train_part.rows,
            eval_rows=0 if eval_labels is None else eval_labels.rows,
            labels=labels,
            label_sample=learner.label_sample,
            eval_labels=eval_labels,
            unseen=learner.unseen,
            seconds=time.perf_counter() - started,
        )

    def forget(self, parts: Collection[Shard]) -> None:
        """Drop parts that others hold now."""
        for part in parts:
            if (learner := self._parts.pop(part, None)) is not None and learner.train_part is not None:
                self._rows -= learner.train_part.rows

    def stand(self, task: Task, at: Checkpoint, parts: Sequence[Shard]) -> None:
        """Have these parts take over where the training stands."""
        with apply(self._threads):
            for part in parts:
                self._parts[part].threads = self._threads  # one after another, each may use all
                self._parts[part].stand(task, at)
        self._copy = at if at.round else self._copy

    def train(self, task: Task, seats: Sequence[tuple[int, Shard]], address: RingAddress | None, ring: int) -> Ended:
        """Take these seats in the ring, each in a thread of its own, till the training is over or the ring is."""
        door = RingDoor(address)
        self._ring = ring, door
        if ring <= self._free_till:
            door.free()
        learners = [self._parts[part] for _, part in seats]
        shares = share_threads(self._threads, [_rows(learner) for learner in learners])
        for learner, threads in zip(learners, shares, strict=True):
            learner.threads = threads
        self._lead = learners[0]
        if self._cores is None:
            self._cores = CoresUsed().start()

        def wants_pause() -> bool:
            return ring <= self._pause_till or self._stop.is_set()

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
        whole = tuple(part for _, part in seats if self._parts[part].stands and self._parts[part].done(task) == done)
        return Ended(how, done, whole if how != "broken" else (), self._prove(), why, door.unreachable)

    def standing(self, task: Task) -> Checkpoint:
        """Return the model of the last complete round that this worker has."""
        learners = [learner for learner in list(self._parts.values()) if learner.booster is not None]
        return max(learners, key=lambda learner: (learner.done(task), len(learner.rounds))).standing(task)

    def _on_rows(self, rows: int) -> None:
        self._read += rows
        if self._stop.is_set():
            raise Stopped

    def _on_wait(self, error: StorageError, _wait_s: float) -> None:
        self._trouble = error.what
        self._on_rows(0)

    def _on_round(self, task: Task, member: int) -> Callable[[PartLearner, Step], None]:
        def tell(learner: PartLearner, done: Step) -> None:
            if learner is not self._lead:
                return
            self._trained_s += done.seconds
            if done.round >= PROOF_ROUNDS and self._trained_s >= PROOF_SECONDS:
                self._prove()
            # The first member's copy is for all. A copy costs little, and never more than its share.
            if member == 0 and time.monotonic() - self._copied_at > max(CHECKPOINT_S, self._copy_s / CHECKPOINT_SHARE):
                self._take_copy(task, learner)

        self._copied_at = time.monotonic()
        return tell

    def _take_copy(self, task: Task, learner: PartLearner) -> None:
        started = time.monotonic()
        with suppress(MemoryError):  # a copy that cannot be had is tried again
            self._copy = learner.standing(task)
        self._copied_at = time.monotonic()
        self._copy_s = self._copied_at - started

    def _prove(self) -> Proof:
        """Judge the cores used so far, once: over the first rounds, or over all when they were few."""
        if self._proof is None:
            assert self._cores is not None
            measured = self._cores.stop()
            self._proof = Proof(self._threads, measured.cores, judge(self._threads, measured))
        return self._proof


def _rows(learner: PartLearner) -> int:
    assert learner.train_part is not None
    return learner.train_part.rows


def _last_words(error: Exception) -> str:
    """Return the innermost reason of an XGBoostError: the last line above its native stack trace."""
    words = str(error).partition("Stack trace:")[0].split("\n")
    return next((line.strip() for line in reversed(words) if line.strip()), type(error).__name__)
