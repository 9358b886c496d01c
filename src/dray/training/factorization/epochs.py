"""The epochs of a training: one after another, until there are enough or it gets no better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.elastic.membership import Membership
from dray.events.metrics import is_better
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import Step
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do, InputGone
from dray.learners.status import Proof
from dray.training.factorization.alternation import Alternation
from dray.training.factorization.copier import Copier, Stand
from dray.training.factorization.copies import Copy, from_bytes, tokens
from dray.training.factorization.descent import Descent
from dray.training.factorization.foreman import CopyGone, Foreman
from dray.training.factorization.measuring import (
    Judge,
    TestPart,
    counts_of,
    deciding,
    popularity_metrics,
    ranking_metrics,
)
from dray.training.factorization.passing import Passed
from dray.training.factorization.routes import Units
from dray.training.keeper import Keeper


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


class Course:
    """Made for one `run`."""

    def __init__(
        self,
        config: FactorizationConfig,
        membership: Membership,
        foreman: Foreman,
        method: Descent | Alternation,
        test: TestPart,
        keeper: Keeper,
        telemetry: Telemetry,
        first: Copy,
    ) -> None:
        self._config = config
        self._membership = membership
        self._foreman = foreman
        self._method = method
        self._test = test
        self._keeper = keeper
        self._telemetry = telemetry
        self._first = first
        self._judge = Judge(foreman, method, test, membership.group.share)
        self._copier = Copier(keeper, membership.group.fetch)
        self._metric = deciding(config.kind, test.ks)
        self._stand = Stand(first, None, 0, ())
        membership.watch.rounds = config.rounds

    def run(self) -> Trained:
        self._membership.phase = "train"
        self._go_back()
        try:
            while not self._is_over():
                self._one()
            return self._end()
        except BaseException:
            self._copier.flush()
            raise

    def end(self) -> dict[int, tuple[str, Proof]]:
        """Let go of all copies; return whether every worker's threads were used, by worker, with its host."""
        self._copier.close()
        self._keeper.let_go()

        def ask(holdings: Mapping[int, Units]) -> dict[int, tuple[str, Proof]]:
            calls = {worker: self._foreman.call(worker, Do(FactorWorker.end_training)) for worker in holdings}
            results = self._foreman.wait(calls.values())
            return {worker: (self._membership.ready[worker].host, results[call]) for worker, call in calls.items()}

        found = self._foreman.do(ask)
        for worker, (host, proof) in sorted(found.items()):
            self._membership.watch.prove(worker, host, proof)
        return found

    def _one(self) -> None:
        """Train one epoch, or make the steps smaller, or go back to an older one."""
        number, copy = self._stand.copy.epoch + 1, self._stand.copy
        try:
            passed = self._foreman.do(lambda holdings: self._method.epoch(number, copy, holdings))
            if not passed.finite:
                self._smaller_steps(number)
                return
            metrics = dict(passed.metrics)
            if self._test.pairs:
                metrics |= self._foreman.do(lambda holdings: self._method.errors(passed.copy, holdings))
            if self._test.each_epoch:
                metrics |= ranking_metrics(self._judge.quality(passed.copy))
        except CopyGone:
            self._go_back()
            return
        rounds = (*self._stand.rounds, Step(number, passed.seconds, metrics))
        best = self._stand.best
        if self._config.early_stop is not None and (best is None or self._improves(rounds, best.epoch)):
            best = passed.copy
        self._stand = Stand(passed.copy, best, self._method.halvings, rounds)
        self._foreman.epoch = number
        self._tell(rounds[-1], passed)
        self._copier.offer(self._stand, last=self._is_over())

    def _improves(self, rounds: Sequence[Step], best: int) -> bool:
        values = {done.round: done.metrics[self._metric] for done in rounds}
        return is_better(self._metric, values[rounds[-1].round], values[best])

    def _is_over(self) -> bool:
        stand, patience = self._stand, self._config.early_stop
        if stand.copy.epoch >= self._config.rounds:
            return True
        return patience is not None and stand.best is not None and stand.copy.epoch - stand.best.epoch >= patience

    def _smaller_steps(self, number: int) -> None:
        rate = self._method.halve()
        self._stand = Stand(self._stand.copy, self._stand.best, self._method.halvings, self._stand.rounds)
        why = "numbers that are none came out of it"
        self._telemetry.emit("diverged", round=number, learning_rate=rate, why=why)

    def _go_back(self) -> None:
        """Stand where the newest copy at hand does: that of a run to resume, or before a machine went."""
        share, standing = self._membership.group.share, self._keeper.latest
        if standing.model is None:
            self._stand = Stand(self._first, None, 0, ())
        else:
            written = from_bytes(standing.model)
            copy = Copy(written.epoch, tokens(written.users, share), tokens(written.items, share))
            best = copy if written.best_epoch == written.epoch else None
            if written.best_users:
                users, items = tokens(written.best_users, share), tokens(written.best_items, share)
                best = Copy(written.best_epoch, users, items)
            self._stand = Stand(copy, best, written.halvings, standing.rounds)
        self._method.halvings = self._stand.halvings
        self._foreman.epoch = self._stand.copy.epoch
        self._membership.watch.rounds_told = self._stand.copy.epoch

    def _tell(self, done: Step, passed: Passed) -> None:
        self._membership.watch.rounds_told = done.round
        workers = [
            {
                "worker": worker,
                "host": self._membership.ready[worker].host if worker in self._membership.ready else "",
                "rows_per_second": round(pace.rows / pace.seconds, 1) if pace.seconds else None,
            }
            for worker, pace in sorted(passed.paces.items())
        ]
        self._telemetry.emit(
            "round",
            round=done.round,
            rounds=self._config.rounds,
            seconds=round(done.seconds, 4),
            metrics=done.metrics,
            workers=workers,
            learning_rate=self._method.rate,
            halvings=self._method.halvings,
        )

    def _end(self) -> Trained:
        """Fetch the model, and measure it once more in all ways."""
        while True:
            try:
                return self._measured(self._stand.best or self._stand.copy)
            except CopyGone:
                pass
            except InputGone as error:
                self._foreman.give_up(error)
            self._go_back()
            while not self._is_over():
                self._one()

    def _measured(self, final: Copy) -> Trained:
        metrics = dict(next((done.metrics for done in self._stand.rounds if done.round == final.epoch), {}))
        evaluation: dict[str, int] = {}
        if self._test.pairs:
            self._telemetry.emit("phase", name="evaluate")
            quality = self._judge.quality(final)
            metrics |= ranking_metrics(quality) | popularity_metrics(self._judge.popularity())
            evaluation = counts_of(quality)
        fetch = self._membership.group.fetch
        users, items = fetch(final.users), fetch(final.items)
        return Trained(
            final.epoch, users, items, self._stand.rounds, metrics, evaluation, self._method.rate, self._method.halvings
        )
