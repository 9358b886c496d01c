"""Explicit ratings on workers: blocks of users stay, blocks of items travel (DSGD).

All turns of an epoch are asked for at once. Each waits for the blocks of items that it is given by reference, so that
blocks go from worker to worker and never through here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import fsum, isfinite, sqrt
from typing import Any

import numpy as np

from dray.learners.factorization.calls import TurnReport
from dray.learners.factorization.explicit import MOST_HALVINGS, Scale, hopeless
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.grid import strata
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do
from dray.training.factorization.copies import Copy
from dray.training.factorization.foreman import Foreman
from dray.training.factorization.measuring import TestPart
from dray.training.factorization.passing import Passed, Stands, by_unit, pace
from dray.training.factorization.routes import Units, routes


class Descent:
    def __init__(self, foreman: Foreman, plan: ExplicitPlan, scale: Scale, test: TestPart, share: Any) -> None:
        self._foreman = foreman
        self._plan = plan
        self._scale = scale
        self._test = test
        self._known_items = share(np.asarray(test.item_counts > 0))
        self._stands = Stands()
        self.halvings = 0

    @property
    def rate(self) -> float:
        return self._plan.settings.learning_rate / 2.0**self.halvings

    def halve(self) -> float:
        self.halvings += 1
        if self.halvings > MOST_HALVINGS:
            raise hopeless(self._plan.settings, self.rate)
        return self.rate

    def epoch(self, number: int, copy: Copy, holdings: Mapping[int, Units]) -> Passed:
        foreman, began = self._foreman, time.perf_counter()
        stands = self._stands.taken(copy, foreman.losses)  # nobody does until the epoch is complete
        others = [
            self._stand(worker, lacking, copy)
            for worker, units in holdings.items()
            if (lacking := tuple(unit for unit in units if unit not in stands.get(worker, ())))
        ]
        where = dict(enumerate(copy.items))
        steps = strata(self._plan.units, self._plan.settings.seed, number)
        for step in routes(steps, holdings, self._plan.units):
            for worker, turn in step.items():
                kept = foreman.post(
                    worker,
                    Do(FactorWorker.turn, len(turn.gives), lazy=True),
                    foreman.place(worker),
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
            ends[worker], kept = foreman.keeping(
                worker, Do(FactorWorker.finish, len(units)), foreman.place(worker), units
            )
            users.update(zip(units, kept, strict=True))
        count = range(self._plan.units)
        after = Copy(number, tuple(users[unit] for unit in count), tuple(where[item] for item in count))
        results = foreman.wait([*others, *ends.values()])
        seconds = time.perf_counter() - began
        reports: dict[int, TurnReport] = {worker: results[call] for worker, call in ends.items()}
        squares = fsum(square for report in reports.values() for square in report.squares)
        finite = isfinite(squares) and all(report.finite for report in reports.values())
        metrics = {"train-rmse": sqrt(squares / self._scale.count)} if finite else {}
        if finite:
            self._stands.leave(after, foreman.losses, holdings)
        paces = {worker: pace([report]) for worker, report in reports.items()}
        return Passed(after, metrics, paces, seconds, finite)

    def _stand(self, worker: int, units: Units, copy: Copy) -> int:
        given = (copy.users[unit] for unit in units)
        return self._foreman.call(
            worker, Do(FactorWorker.stand), self._foreman.place(worker), self._scale, units, *given
        )

    def meet(self, holdings: Mapping[int, Units]) -> None:
        """Tell the scale to those who came after the last epoch."""
        for worker in holdings:
            self._foreman.call(worker, Do(FactorWorker.stand), self._foreman.place(worker), self._scale, ())

    def errors(self, copy: Copy, holdings: Mapping[int, Units]) -> dict[str, float]:
        """Return the metrics of the test part."""
        self.meet(holdings)
        limits = (self._scale.low, self._scale.high)
        calls = [
            self._foreman.call(
                worker,
                Do(FactorWorker.errors),
                units,
                self._known_items,
                limits,
                *(copy.users[unit] for unit in units),
                *copy.items,
            )
            for worker, units in holdings.items()
        ]
        sums = by_unit(self._foreman.wait(calls).values()).values()
        squares, sizes = (fsum(column) / self._test.pairs for column in zip(*sums, strict=True))
        return {"eval-rmse": sqrt(squares), "eval-mae": sizes}
