"""XGBoost as a learner: one shard of the rows in a training, alone or as a member of a ring.

Knows nothing of Ray: the same code runs in the driver's process and in a worker. A ring may break at any moment; what a
shard holds afterwards (its matrices, the model of the last complete round) is enough to go on in another ring.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import xgboost

from dray.data.features import Column
from dray.data.shards import Units
from dray.data.split import PickedRows, Split
from dray.data.stream import Floats, Positions, Stream, give_memory_back
from dray.learners.checkpoint import START, Best, Checkpoint, Step
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.row_mask import RowMask
from dray.learners.xgboost import ring
from dray.learners.xgboost.errors import translated
from dray.learners.xgboost.evaluation import Evaluation
from dray.learners.xgboost.matrix import PASSES, BinnedPreparation, Loaded, check_group_weights, load, without_rows
from dray.learners.xgboost.model import Model
from dray.learners.xgboost.params import samples_columns_or_rows
from dray.retry import OnWait, no_report


@dataclass(frozen=True)
class Task:
    """What all members of a ring do, in the same words."""

    params: dict[str, Any]
    objective: str
    rounds: int
    early_stop: int | None
    evaluate: bool
    start_model: bytes | None = None
    before: int = 0
    """Rounds that the model to start from already has."""
    fit: int = 1
    """Which fit of the session this is."""
    mask: RowMask | None = None
    """The rows to train on; None: all of them."""
    any_label: float = 0.0
    """A label of a row that is trained on."""
    constant: tuple[float, ...] = ()
    """The margin that a model without trees gives every row, to compare with; none where that means nothing."""

    @property
    def weighs_trees(self) -> bool:
        """Later rounds change the weights of earlier trees: a model cannot be cut back to an earlier round."""
        return self.params.get("booster") == "dart"

    def is_over_at(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.is_complete and self.is_over(checkpoint.round, checkpoint.best)

    def is_over(self, done: int, best: Best) -> bool:
        return done >= self.rounds or (self.early_stop is not None and done - best.round >= self.early_stop)


@dataclass(frozen=True)
class Outcome:
    """What a training came to."""

    model: bytes
    digest: str
    rounds: int
    best_round: int
    metrics: dict[str, float]
    """Of the model: of the best round if stopped early, else of the last."""
    baseline: dict[str, float]
    """Of a model without trees."""


@dataclass
class ShardLearner:
    """Holds the matrices of one shard, and a model. One call at a time."""

    threads: int
    preparation: BinnedPreparation | None = None
    train_rows: Loaded | None = None
    eval_rows: Loaded | None = None
    eval_dropped: int = 0
    """Evaluation rows that were left out because they have no label, also where no other row is left."""
    unseen: dict[str, int] = field(default_factory=dict)
    unreadable: Counter[str] = field(default_factory=Counter)
    eval_unreadable: Counter[str] = field(default_factory=Counter)
    """Of evaluation data of its own, whose types may be others."""
    rounds: list[Step] = field(default_factory=list)
    start: Mapping[str, float] = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)
    booster: xgboost.Booster | None = None
    is_whole: bool = False
    """The booster can go on: its model and XGBoost's hidden cache of predictions belong together."""
    fit: int = 0
    """Which fit of the session the booster belongs to."""
    grown: int = 0
    """Rounds that a whole booster has grown in this training."""
    positions: Callable[[], Positions] | None = None
    """Returns the positions in the data of the rows of `train_rows`, in order."""
    unmasked: tuple[Floats, Floats] | None = None
    """Labels and weights as they are without a mask; None until a mask comes."""

    @staticmethod
    def rows_to_read(train: int, other_eval: int, *, split: bool) -> int:
        """How many rows the passes of `load` will read in all, for a progress bar."""
        return PASSES * (train * (2 if split else 1) + other_eval)

    def load(
        self,
        preparation: BinnedPreparation,
        train: Units,
        other_eval: Units,
        on_rows: Callable[[int], None],
        on_wait: OnWait = no_report,
    ) -> LabelSummary:
        """Bin the shard's rows; its evaluation rows are a subset of them or slices of their own.

        A small shard may have no row to train on: all have no label, or are evaluated on. It takes part all the same.
        """
        self.preparation = preparation
        split = preparation.split is not None
        with xgboost.config_context(nthread=self.threads):
            stream = Stream(train, preparation, "train" if split else "all", on_rows, on_wait)
            self.train_rows = load(stream, preparation) or without_rows(stream, preparation)
            self.positions = partial(positions_of, train, preparation.split, self.train_rows.dropped)
            self.unreadable = Counter(stream.encoder.unreadable)
            check_group_weights(self.train_rows.matrix, preparation)
            if split or other_eval:
                part: Literal["eval", "all"] = "eval" if split else "all"
                rows = train if split else other_eval
                stream = Stream(rows, preparation, part, on_rows, on_wait, any_type=not split)
                self.eval_rows = load(stream, preparation)
                self.eval_dropped = len(stream.dropped)
                self.unseen = dict(stream.encoder.unseen)
                if split:
                    self.unreadable += stream.encoder.unreadable
                else:
                    self.eval_unreadable = stream.encoder.unreadable
        give_memory_back()
        return self.train_rows.labels

    @property
    def label_sample(self) -> LabelSample:
        assert self.train_rows is not None
        return self.train_rows.sample

    @property
    def eval_labels(self) -> LabelSummary | None:
        return None if self.eval_rows is None else self.eval_rows.labels

    def done(self, task: Task) -> int:
        """Rounds that the model has grown in this training."""
        return 0 if self.booster is None else self.booster.num_boosted_rounds() - task.before

    def checkpoint(self, task: Task) -> Checkpoint:
        if self.booster is None:
            return START
        model = bytes(self.booster.save_raw("ubj"))
        rounds = tuple(self.rounds[: self.done(task)])
        return Checkpoint(self.done(task), model, rounds, self.start, self.baseline, task.fit)

    def is_at(self, task: Task, at: Checkpoint) -> bool:
        """Whether the booster can go on from this checkpoint as it is.

        The booster itself is not asked: XGBoost would then configure it alone, where the members of a ring must do so
        together.
        """
        if not self.is_whole or self.fit != task.fit:
            return False
        return (self.grown, len(self.rounds)) == (at.round, len(at.rounds))

    def restore(self, task: Task, at: Checkpoint) -> None:
        """Set the model to a checkpoint, and predict the shard's rows with it: nothing from before is kept."""
        assert self.train_rows is not None
        if self.fit != task.fit:
            self._mask(task)
        start = at.model or task.start_model
        with translated(), xgboost.config_context(nthread=self.threads, verbosity=0):
            self.booster = xgboost.Booster(
                task.params | {"nthread": self.threads},
                cache=[self.train_rows.matrix],
                model_file=None if start is None else bytearray(start),
            )
            if start is not None:
                for part in (self.train_rows, self.eval_rows):
                    if part is not None:
                        self.booster.predict(part.matrix, output_margin=True)
        self.rounds, self.start, self.baseline, self.fit = list(at.rounds), at.start, at.baseline, task.fit
        self.is_whole, self.grown = True, at.round

    def labels_of(self, mask: RowMask) -> tuple[LabelSummary, LabelSample]:
        """Return what the labels of the chosen rows look like."""
        assert self.train_rows is not None and self.positions is not None and self.preparation is not None
        positions, (labels, weights) = self.positions(), self._unmasked()
        chosen = mask.at(positions)
        sampled = chosen & self.preparation.label_sample.picks(positions)
        sample = LabelSample(positions[sampled], labels[sampled], weights[sampled] if len(weights) else None)
        return LabelSummary.of(labels[chosen]), sample

    def _unmasked(self) -> tuple[Floats, Floats]:
        """Return labels and weights as they are without a mask; no weights where there is no such column."""
        assert self.train_rows is not None
        matrix = self.train_rows.matrix
        return self.unmasked or (matrix.get_label(), matrix.get_weight())

    def _mask(self, task: Task) -> None:
        """Have only the chosen rows count: a weight of 0 adds nothing to any sum.

        XGBoost looks at the labels of all rows nevertheless, so those of the others become one that the task takes.
        """
        if task.mask is None and self.unmasked is None:
            return
        assert self.train_rows is not None and self.positions is not None
        labels, weights = self._unmasked()
        self.unmasked = None if task.mask is None else (labels, weights)
        if task.mask is not None:
            chosen = task.mask.at(self.positions())
            labels = np.where(chosen, labels, np.float32(task.any_label))
            weights = (weights if len(weights) else np.ones(len(labels), np.float32)) * chosen
        self.train_rows.matrix.set_info(label=labels, weight=weights)

    def train(
        self,
        task: Task,
        door: ring.RingDoor,
        member: int,
        *,
        on_round: Callable[[ShardLearner, Step], None],
        wants_pause: Callable[[], bool],
    ) -> Literal["finished", "paused"]:
        """Grow trees with the ring until the training is over, or until any member wants a pause at a round's end.

        When it raises, the model is that of the last complete round and `is_whole` says whether it can go on as it is.
        """
        assert self.train_rows is not None
        assert self.booster is not None
        assert self.is_whole
        with translated(), xgboost.config_context(nthread=self.threads, verbosity=0), door.join(member):
            self.booster.set_param({"nthread": self.threads})
            evaluation = Evaluation(self.eval_rows, task.params, self.threads) if task.evaluate else None
            try:
                return self._rounds(task, self.train_rows, self.booster, evaluation, on_round, wants_pause)
            finally:
                if evaluation:
                    evaluation.close()

    def _rounds(
        self,
        task: Task,
        part: Loaded,
        booster: xgboost.Booster,
        evaluation: Evaluation | None,
        on_round: Callable[[ShardLearner, Step], None],
        wants_pause: Callable[[], bool],
    ) -> Literal["finished", "paused"]:
        if evaluation and task.start_model is not None and ring.agree(not self.start):
            self.start = evaluation.metrics(xgboost.Booster(task.params, model_file=bytearray(task.start_model)))
        if evaluation and task.constant and ring.agree(not self.baseline):
            self.baseline = evaluation.of_constant(task.constant)
        best = Best.of(self.rounds, self.start)
        done = self.done(task)
        random = samples_columns_or_rows(task.params)
        renew = True
        while not (done == len(self.rounds) and task.is_over(done, best)):
            started = time.perf_counter()
            if done == len(self.rounds):  # else a ring broke between this round's tree and its metrics
                self.is_whole = False
                if renew:
                    _renew_builder(booster)
                renew = random
                booster.update(part.matrix, task.before + done)
                done += 1
                self.is_whole, self.grown = True, done
            metrics = evaluation.metrics(booster) if evaluation else {}
            finished = Step(done, time.perf_counter() - started, metrics)
            self.rounds.append(finished)
            best.see(finished)
            if task.weighs_trees and task.early_stop is not None and best.round == done:
                _keep_best(booster)
            on_round(self, finished)
            if ring.agree(wants_pause()) and not task.is_over(done, best):
                return "paused"
        return "finished"


def conclude(task: Task, last: Checkpoint, features: tuple[Column, ...], label: Column) -> Outcome:
    """Make the model of a training that is over: the best round's if it was stopped early."""
    best = last.best
    booster = xgboost.Booster(task.params, model_file=bytearray(last.model or b""))
    metrics = last.rounds[-1].metrics if last.rounds else {}
    if task.early_stop is not None and best.metrics and best.round < last.round:
        booster, metrics = _cut_back(booster, task, best.round), best.metrics
    booster.set_attr(**{_BEST: None})
    model = Model(booster, features, label, task.objective)
    best_round = best.round if best.metrics else last.round
    return Outcome(model.to_bytes(), model.digest(), last.round, best_round, metrics, dict(last.baseline))


def positions_of(units: Units, split: Split | PickedRows | None, dropped: Positions) -> Positions:
    """Return the positions in the data of the rows that are trained on, in the order in which they are loaded."""
    spans = [np.arange(piece.position, piece.position + piece.rows) for unit in units for piece in unit]
    positions = np.concatenate(spans)
    if split is not None:
        positions = positions[~split.picks(positions)]
    return positions[~np.isin(positions, dropped)] if len(dropped) else positions


def _cut_back(booster: xgboost.Booster, task: Task, to_round: int) -> xgboost.Booster:
    """Return the model as it was after a round; after round 0, the one that the training started from."""
    if not task.weighs_trees:
        return booster[: task.before + to_round]
    kept = base64.b64decode(booster.attr(_BEST)) if to_round else task.start_model or b""
    return xgboost.Booster(task.params, model_file=bytearray(kept))


_BEST = "dray_best"


def _keep_best(booster: xgboost.Booster) -> None:
    """Keep a copy of the model within it, so that it goes wherever the model goes."""
    booster.set_attr(**{_BEST: None})
    booster.set_attr(**{_BEST: base64.b64encode(booster.save_raw("ubj")).decode()})


def _renew_builder(booster: xgboost.Booster) -> None:
    """Have the next tree grown by a new builder; XGBoost makes one when the name of the builder changes.

    XGBoost draws the columns of all rounds from one generator that lives in its tree builder. A new one, seeded by
    `seed_per_iteration`, lets a round's random choices depend on the seed and the round alone. It is told to all
    members in the builder's first round, by a message of its own: with old and new ones in a ring, some wait for ever.
    """
    booster.set_param({"updater": "prune"})
    booster.num_features()  # has the parameter take effect
    booster.set_param({"updater": "grow_quantile_histmaker"})
