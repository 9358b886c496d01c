"""Explicit ratings on workers: blocks of users stay, blocks of items travel (DSGD).

All turns of an epoch are asked for at once. Each waits for the blocks of items that it is given by reference, so that
blocks go from worker to worker and never through here.
"""

from __future__ import annotations

import time
from math import fsum, isfinite, sqrt
from typing import Any

import numpy as np

from dray.learners.factorization.blocks import Blocks
from dray.learners.factorization.calls import TurnReport
from dray.learners.factorization.epoch import Passed, Restored, Turns, by_unit, pace
from dray.learners.factorization.explicit import MOST_HALVINGS, Scale, hopeless
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.grid import strata
from dray.learners.factorization.measuring import TestPairs
from dray.learners.factorization.routes import Units, routes
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do


class Descent:
    def __init__(self, plan: ExplicitPlan, scale: Scale, test: TestPairs) -> None:
        self._plan = plan
        self._scale = scale
        self._test = test
        self._known_items: Any = None
        self._restored = Restored()
        self.halvings = 0

    @property
    def rate(self) -> float:
        return self._plan.settings.learning_rate / 2.0**self.halvings

    def halve(self) -> float:
        self.halvings += 1
        if self.halvings > MOST_HALVINGS:
            raise hopeless(self._plan.settings, self.rate)
        return self.rate

    def epoch(self, number: int, blocks: Blocks, turns: Turns) -> Passed:
        attempt, holdings, began = turns.attempt, turns.holdings, time.perf_counter()
        restored = self._restored.taken(blocks, attempt.number)  # none is until the epoch is complete
        others = [
            self._restore(worker, lacking, blocks, turns)
            for worker, units in holdings.items()
            if (lacking := tuple(unit for unit in units if unit not in restored.get(worker, ())))
        ]
        where = dict(enumerate(blocks.items))
        steps = strata(self._plan.units, self._plan.settings.seed, number)
        for step in routes(steps, holdings, self._plan.units):
            for worker, turn in step.items():
                kept = attempt.post(
                    worker,
                    Do(FactorWorker.turn, len(turn.gives), lazy=True),
                    turns.place(worker),
                    turn.step,
                    self.rate,
                    turn.takes,
                    turn.gives,
                    *(where[item] for item in turn.takes),
                )
                where.update(zip(turn.gives, kept, strict=True))
        users: dict[int, Any] = {}
        ends: dict[int, int] = {}
        for worker, units in holdings.items():
            ends[worker], kept = attempt.call(worker, Do(FactorWorker.finish, len(units)), turns.place(worker), units)
            users.update(zip(units, kept, strict=True))
        count = range(self._plan.units)
        after = Blocks(number, tuple(users[unit] for unit in count), tuple(where[item] for item in count))
        results = attempt.wait([*others, *ends.values()])
        seconds = time.perf_counter() - began
        reports: dict[int, TurnReport] = {worker: results[call] for worker, call in ends.items()}
        squares = fsum(square for report in reports.values() for square in report.squares)
        finite = isfinite(squares) and all(report.finite for report in reports.values())
        metrics = {"train-rmse": sqrt(squares / self._scale.count)} if finite else {}
        if finite:
            self._restored.leave(after, turns)
        paces = {worker: pace([report]) for worker, report in reports.items()}
        return Passed(after, metrics, paces, seconds, finite)

    def _restore(self, worker: int, units: Units, blocks: Blocks, turns: Turns) -> int:
        given = (blocks.users[unit] for unit in units)
        op = Do(FactorWorker.restore)
        return turns.attempt.call(worker, op, turns.place(worker), self._scale, units, *given).number

    def meet(self, turns: Turns) -> None:
        """Tell the scale to workers that came after the last epoch."""
        for worker in turns.holdings:
            turns.attempt.call(worker, Do(FactorWorker.restore), turns.place(worker), self._scale, ())

    def errors(self, blocks: Blocks, turns: Turns) -> dict[str, float]:
        """Return the metrics of the test pairs."""
        self.meet(turns)
        if self._known_items is None:
            self._known_items = turns.attempt.share(np.asarray(self._test.item_counts > 0))
        limits = (self._scale.low, self._scale.high)
        calls = [
            turns.attempt.call(
                worker,
                Do(FactorWorker.errors),
                units,
                self._known_items,
                limits,
                *(blocks.users[unit] for unit in units),
                *blocks.items,
            ).number
            for worker, units in turns.holdings.items()
        ]
        sums = by_unit(turns.attempt.wait(calls).values()).values()
        squares, sizes = (fsum(column) / self._test.pairs for column in zip(*sums, strict=True))
        return {"eval-rmse": sqrt(squares), "eval-mae": sizes}
