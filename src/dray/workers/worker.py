"""One worker: holds a shard, loads it, takes part in the rounds, and tells how it is doing.

Knows nothing of Ray: `group.py` puts it into an actor, `alone.py` runs it in this process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dray.data.prepare import Preparation
from dray.data.scan import Found, scan
from dray.data.shards import Shard, Slice, Unit, rows_of
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.xgboost import Outcome, Round, ShardLearner, Task
from dray.learners.xgboost_ring import RingAddress
from dray.storage import StorageOptions
from dray.telemetry.sampler import Usage, UsageReader
from dray.threads.apply import apply
from dray.threads.verify import CoresUsed, Verdict, judge
from dray.workers.predict_files import PredictJob, PredictReport, predict_files

PROOF_ROUNDS = 10
PROOF_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Status:
    """How a worker is doing, at one moment."""

    usage: Usage
    rows: int
    total_rows: int
    loaded_s: float | None
    rounds: tuple[Round, ...]
    """The rounds since the one that was asked about."""
    proof: Proof | None


@dataclass(frozen=True, slots=True)
class Proof:
    """Threads: decided against measured."""

    decided: int
    used: float
    verdict: Verdict


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
class TrainReport:
    outcome: Outcome | None
    """The model, from the first member of the ring."""
    proof: Proof


class Stopped(Exception):  # noqa: N818  (not a failure)
    """The run was told to end."""


class Worker:
    """`status` and `stop` may be called from any thread, the rest from one at a time."""

    def __init__(self, number: int, threads: int) -> None:
        self._number = number
        self._threads = threads
        self._learner = ShardLearner(threads)
        self._usage = UsageReader()
        self._usage_lock = threading.Lock()
        self._read = 0
        self._to_read = 0
        self._rows = 0
        self._loaded_s: float | None = None
        self._rounds: list[Round] = []
        self._cores: CoresUsed | None = None
        self._proof: Proof | None = None
        self._trained_s = 0.0
        self._stop = threading.Event()

    def status(self, after_round: int) -> Status:
        with self._usage_lock:
            usage = self._usage.read()
        share = min(1.0, self._read / self._to_read) if self._to_read else 0.0
        rounds = tuple(self._rounds[after_round:])
        return Status(usage, int(self._rows * share), self._rows, self._loaded_s, rounds, self._proof)

    def stop(self) -> None:
        self._stop.set()

    def scan(
        self, slices: Sequence[Slice], categories: Sequence[str], group: str | None, storage: StorageOptions
    ) -> Found:
        return scan(slices, categories, group, storage)

    def load(self, preparation: Preparation, train: Shard, other_eval: Shard) -> LoadReport:
        started = time.perf_counter()
        self._rows = rows_of(train)
        self._to_read = ShardLearner.rows_to_read(self._rows, rows_of(other_eval), split=preparation.split is not None)
        with apply(self._threads):
            labels = self._learner.load(preparation, train, other_eval, self._on_rows)
        self._loaded_s = time.perf_counter() - started
        eval_labels = self._learner.eval_labels
        assert self._learner.train_part is not None
        return LoadReport(
            rows=self._learner.train_part.rows,
            eval_rows=0 if eval_labels is None else eval_labels.rows,
            labels=labels,
            label_sample=self._learner.label_sample,
            eval_labels=eval_labels,
            unseen=self._learner.unseen,
            seconds=self._loaded_s,
        )

    def train(self, task: Task, address: RingAddress | None) -> TrainReport:
        with apply(self._threads):
            self._cores = CoresUsed().start()
            outcome = self._learner.train(task, address, self._number, self._on_round)
            return TrainReport(outcome, self._prove())

    def predict(self, job: PredictJob, files: Sequence[tuple[Unit, str]]) -> PredictReport:
        self._rows = self._to_read = sum(piece.rows for unit, _ in files for piece in unit)
        with apply(self._threads):
            return predict_files(job, files, self._threads, self._on_rows)

    def _on_rows(self, rows: int) -> None:
        self._read += rows
        self._end_if_told()

    def _on_round(self, done: Round) -> None:
        self._rounds.append(done)
        self._trained_s += done.seconds
        if done.round >= PROOF_ROUNDS and self._trained_s >= PROOF_SECONDS:
            self._prove()
        self._end_if_told()

    def _prove(self) -> Proof:
        """Judge the cores used so far, once: over the first rounds, or over all when they were few."""
        if self._proof is None:
            assert self._cores is not None
            measured = self._cores.stop()
            self._proof = Proof(self._threads, measured.cores, judge(self._threads, measured))
        return self._proof

    def _end_if_told(self) -> None:
        if self._stop.is_set():
            raise Stopped
