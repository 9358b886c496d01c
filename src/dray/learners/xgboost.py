"""XGBoost as a learner: one shard's part in a training, alone or in a ring.

Knows nothing of Ray: the same code runs in the driver's process and in a worker.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xgboost

from dray.data.prepare import Preparation
from dray.data.shards import Shard
from dray.data.stream import Stream
from dray.errors import DataError
from dray.learners import xgboost_ring as ring
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.xgboost_errors import translated
from dray.learners.xgboost_evaluation import Evaluation
from dray.learners.xgboost_matrix import PASSES, Loaded, load
from dray.learners.xgboost_model import Model
from dray.learners.xgboost_params import is_better


@dataclass(frozen=True, slots=True)
class Round:
    """One finished round; metrics are known to the first member of a ring."""

    round: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Task:
    """What all members of a ring do, in the same words."""

    params: dict[str, Any]
    objective: str
    rounds: int
    early_stop: int | None
    evaluate: bool
    start_model: bytes | None = None


@dataclass(frozen=True)
class Outcome:
    """What a training came to."""

    model: bytes
    digest: str
    rounds: int
    best_round: int
    metrics: dict[str, float]
    """Of the model: of the best round if stopped early, else of the last."""


@dataclass
class ShardLearner:
    """Holds one shard's matrices. Not thread-safe: load and train are called one after the other."""

    threads: int
    preparation: Preparation | None = None
    train_part: Loaded | None = None
    eval_part: Loaded | None = None
    unseen: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def rows_to_read(train: int, other_eval: int, *, split: bool) -> int:
        """How many rows the passes of `load` will read in all, for a progress bar."""
        return PASSES * (train * (2 if split else 1) + other_eval)

    def load(
        self, preparation: Preparation, train: Shard, other_eval: Shard, on_rows: Callable[[int], None]
    ) -> LabelSummary:
        """Bin this worker's rows; its evaluation rows are a part of its shard or a shard of their own."""
        self.preparation = preparation
        split = preparation.split is not None
        with xgboost.config_context(nthread=self.threads):
            self.train_part = load(Stream(train, preparation, "train" if split else "all", on_rows), preparation)
            if self.train_part is None:
                raise DataError(
                    "A worker is left without training rows: all of its few rows went to the evaluation set.",
                    fix="Use fewer workers or a smaller --eval-fraction.",
                )
            if split or other_eval:
                stream = Stream(train if split else other_eval, preparation, "eval" if split else "all", on_rows)
                self.eval_part = load(stream, preparation)
                self.unseen = dict(stream.encoder.unseen)
        return self.train_part.labels

    @property
    def label_sample(self) -> LabelSample:
        assert self.train_part is not None
        return self.train_part.sample

    @property
    def eval_labels(self) -> LabelSummary | None:
        return None if self.eval_part is None else self.eval_part.labels

    def train(
        self, task: Task, address: ring.RingAddress | None, worker: int, on_round: Callable[[Round], None]
    ) -> Outcome | None:
        """Grow the trees with the ring; the first member returns the outcome."""
        assert self.train_part is not None
        with translated(), xgboost.config_context(nthread=self.threads, verbosity=0), ring.joined(address, worker):
            return self._train(task, self.train_part, on_round)

    def _train(self, task: Task, part: Loaded, on_round: Callable[[Round], None]) -> Outcome | None:
        params = task.params | {"nthread": self.threads}
        start = None if task.start_model is None else bytearray(task.start_model)
        booster = xgboost.Booster(params, cache=[part.matrix], model_file=start)
        before = booster.num_boosted_rounds()
        evaluation = Evaluation(self.eval_part, params, self.threads) if task.evaluate else None
        best = Best()
        done = 0
        metrics: dict[str, float] = {}
        try:
            for done in range(1, task.rounds + 1):
                started = time.perf_counter()
                booster.update(part.matrix, before + done - 1)
                metrics = evaluation.metrics(booster) if evaluation else {}
                best.see(done, metrics)
                on_round(Round(done, time.perf_counter() - started, metrics))
                if task.early_stop is not None and ring.tell_all(done - best.round >= task.early_stop):
                    break
        finally:
            if evaluation:
                evaluation.close()
        if ring.rank() != 0:
            return None
        if task.early_stop is not None and best.round < done:
            booster, metrics = booster[: before + best.round], best.metrics
        assert self.preparation is not None
        model = Model(booster, self.preparation.features, self.preparation.label, task.objective)
        return Outcome(model.to_bytes(), model.digest(), done, best.round or done, metrics)


@dataclass
class Best:
    """The best round so far, by the last metric."""

    round: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    def see(self, round_: int, metrics: dict[str, float]) -> None:
        if not metrics:
            return
        name = list(metrics)[-1]
        if not self.metrics or math.isnan(self.metrics[name]) or is_better(name, metrics[name], self.metrics[name]):
            self.round, self.metrics = round_, metrics
