"""The epochs of a training: one after another, until there are enough or it gets no better.

An attempt runs as many epochs as it can. One that breaks costs its unfinished epoch; the next goes on from the blocks
that the last complete epoch left with the workers, or from a checkpoint if a machine was lost with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dray.events.kinds import PhaseStarted, StepRepeated, WorkerPace
from dray.events.metrics import is_better
from dray.learners.attempt import Attempt, CheckpointGone, Finished, Paused
from dray.learners.checkpoint import Step
from dray.learners.factorization.blocks import Blocks, FactorPart, from_bytes
from dray.learners.factorization.checkpointing import Checkpointing, State
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.factorization.epoch import Method, Passed, Turns
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.implicit_share import ImplicitPlan
from dray.learners.factorization.measuring import (
    Rankings,
    TestPairs,
    counts_of,
    deciding,
    popularity_metrics,
    ranking_metrics,
)
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do, InputGone


@dataclass
class Trained:
    """What a training came to."""

    epoch: int
    """That the model is of."""
    users: Sequence[Any]
    items: Sequence[Any]
    rounds: tuple[Step, ...]
    metrics: dict[str, float]
    evaluation: dict[str, int]
    rate: float | None
    """Of the last steps."""
    halvings: int


class EpochCoordinator:
    """One fit. `first` are the blocks of an earlier run to go on from; without them training begins at random."""

    def __init__(
        self,
        config: FactorizationConfig,
        plan: ExplicitPlan | ImplicitPlan,
        method: Method,
        test: TestPairs,
        first: tuple[Sequence[FactorPart], Sequence[FactorPart]] | None,
        *,
        fit: int,
        last: bool,
    ) -> None:
        self._config = config
        self._plan = plan
        self._method = method
        self._test = test
        self._first = first
        self._fit = fit
        self._last = last
        """No other fit follows."""
        self._rankings = Rankings(method, test)
        self._checkpointing = Checkpointing(fit)
        self._metric = deciding(config.kind, test.ks)
        self._state: State | None = None
        self._passed: Passed | None = None
        """An epoch that is trained and not yet measured."""
        self._trained: Trained | None = None
        self._series = itertools.count()

    def run(self, attempt: Attempt) -> Finished[Trained] | Paused:
        turns = self._turns(attempt)
        for worker in turns.holdings:
            attempt.call(worker, Do(FactorWorker.train_with), self._fit, self._plan.settings)
        attempt.started()
        try:
            if self._state is None:
                self._go_back(attempt)
            while not self._is_over():
                if attempt.pause_wanted():
                    return Paused()
                self._one(attempt)
            if self._trained is None:
                self._trained = self._measured(attempt)
            self._end(attempt)
        except CheckpointGone:
            self._state, self._passed = None, None
            raise
        return Finished(self._trained)

    def rescue(self, attempt: Attempt, error: BaseException) -> None:  # noqa: ARG002  (whatever it is)
        self._checkpointing.flush(attempt)

    @property
    def _now(self) -> State:
        assert self._state is not None
        return self._state

    def _turns(self, attempt: Attempt) -> Turns:
        return Turns(attempt, next(self._series))

    def _one(self, attempt: Attempt) -> None:
        """Train and measure one epoch, or make the steps smaller."""
        state, number = self._now, self._now.blocks.epoch + 1
        if self._passed is None:
            passed = self._method.epoch(number, state.blocks, self._turns(attempt))
            if not passed.finite:
                self._smaller_steps(number, attempt)
                return
            self._passed = passed
        passed = self._passed
        metrics = dict(passed.metrics)
        if self._test.pairs:
            metrics |= self._method.errors(passed.blocks, self._turns(attempt))
        if self._test.each_epoch:
            metrics |= ranking_metrics(self._rankings.quality(passed.blocks, self._turns(attempt)))
        rounds = (*state.rounds, Step(number, passed.seconds, metrics))
        best = state.best
        if self._config.early_stop is not None and (best is None or self._improves(rounds, best.epoch)):
            best = passed.blocks
        self._state, self._passed = State(passed.blocks, best, self._method.halvings, rounds), None
        self._report(rounds[-1], passed, attempt)
        self._checkpointing.offer(self._state, attempt, last=self._is_over())

    def _improves(self, rounds: Sequence[Step], best: int) -> bool:
        values = {done.round: done.metrics[self._metric] for done in rounds}
        return is_better(self._metric, values[rounds[-1].round], values[best])

    def _is_over(self) -> bool:
        state, patience = self._now, self._config.early_stop
        if state.blocks.epoch >= self._config.rounds:
            return True
        return patience is not None and state.best is not None and state.blocks.epoch - state.best.epoch >= patience

    def _smaller_steps(self, number: int, attempt: Attempt) -> None:
        rate = self._method.halve()
        self._state = replace(self._now, halvings=self._method.halvings)
        why = f"NaN or infinity in epoch {number}"
        attempt.emit(StepRepeated(number, 0.0 if rate is None else rate, why))

    def _go_back(self, attempt: Attempt) -> None:
        """Go on from the newest checkpoint at hand: that of a run to resume, or of before a machine was lost."""
        latest = attempt.latest

        def shared(blocks: Sequence[FactorPart]) -> tuple[Any, ...]:
            return tuple(attempt.share(block) for block in blocks)

        if latest.model is None:
            blocks = Blocks.beginning(self._plan.units)
            if self._first is not None:
                blocks = Blocks(0, shared(self._first[0]), shared(self._first[1]))
            self._state = State(blocks, None, 0, ())
        else:
            written = from_bytes(latest.model)
            blocks = Blocks(written.epoch, shared(written.users), shared(written.items))
            best = blocks if written.best_epoch == written.epoch else None
            if written.best_users:
                best = Blocks(written.best_epoch, shared(written.best_users), shared(written.best_items))
            self._state = State(blocks, best, written.halvings, latest.rounds)
        self._method.halvings = self._state.halvings
        attempt.restart_at(self._state.blocks.epoch)

    def _report(self, done: Step, passed: Passed, attempt: Attempt) -> None:
        paces = [
            WorkerPace(worker, attempt.host(worker), round(pace.rows / pace.seconds, 1) if pace.seconds else None)
            for worker, pace in sorted(passed.paces.items())
        ]
        attempt.report([done], paces=paces, learning_rate=self._method.rate, halvings=self._method.halvings)

    def _measured(self, attempt: Attempt) -> Trained:
        """Fetch the model, and measure it once more in all ways."""
        state = self._now
        final = state.best or state.blocks
        metrics = dict(next((done.metrics for done in state.rounds if done.round == final.epoch), {}))
        evaluation: dict[str, int] = {}
        if self._test.pairs:
            attempt.emit(PhaseStarted("evaluate"))
            quality = self._rankings.quality(final, self._turns(attempt))
            popularity = self._rankings.popularity(self._turns(attempt))
            metrics |= ranking_metrics(quality) | popularity_metrics(popularity)
            evaluation = counts_of(quality)
        try:
            users, items = attempt.fetch(final.users), attempt.fetch(final.items)
        except InputGone as error:
            attempt.give_up(error)
            raise CheckpointGone from None
        return Trained(
            final.epoch, users, items, state.rounds, metrics, evaluation, self._method.rate, self._method.halvings
        )

    def _end(self, attempt: Attempt) -> None:
        """Have the workers drop what was trained; report whether their threads were used."""
        self._checkpointing.close()
        attempt.forget_model()
        calls = {
            attempt.call(worker, Do(FactorWorker.end_fit), self._last).number: worker for worker in attempt.holdings
        }
        for call, proof in attempt.wait(calls).items():
            attempt.prove(calls[call], proof)
