"""Implicit feedback on workers: users from all items, items from all users, part by part (block ALS).

Parts go from worker to worker by reference, each with what it adds to the Gram matrix; nothing passes through here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dray.errors import DataError
from dray.learners.factorization.calls import TurnReport
from dray.learners.factorization.explicit import SideName
from dray.learners.factorization.implicit_share import ImplicitPlan
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do
from dray.training.factorization.copies import Copy
from dray.training.factorization.foreman import Foreman
from dray.training.factorization.passing import Passed, Stands, pace
from dray.training.factorization.routes import Units


class Alternation:
    def __init__(self, foreman: Foreman, plan: ImplicitPlan) -> None:
        self._foreman = foreman
        self._plan = plan
        self._stands = Stands()
        self.halvings = 0
        self.rate: float | None = None
        """There are no steps to be made smaller."""

    def halve(self) -> None:
        raise DataError(
            "Training diverges: factors are no numbers any more.",
            fix="Raise the regularization, lower alpha, or look for weights that are far from all others.",
        )

    def epoch(self, number: int, copy: Copy, holdings: Mapping[int, Units]) -> Passed:
        began = time.perf_counter()
        stands = self._stands.taken(copy, self._foreman.losses)
        calls: list[int] = []
        items = list(copy.items)
        for worker, units in holdings.items():
            lacking = tuple(unit for unit in units if unit not in stands.get(worker, ()))
            sides: tuple[tuple[SideName, Sequence[Any]], ...] = (("users", copy.users), ("items", copy.items))
            for side, parts in sides if lacking else ():
                given = (parts[unit] for unit in lacking)
                place = self._foreman.place(worker)
                calls.append(self._foreman.call(worker, Do(FactorWorker.stand_part), place, side, lacking, *given))
            if copy.items[0] is None:
                call, kept = self._foreman.keeping(worker, Do(FactorWorker.first_parts, len(units)), "items", units)
                calls.append(call)
                for unit, part in zip(units, kept, strict=True):
                    items[unit] = part
        solves: dict[int, list[int]] = {worker: [] for worker in holdings}
        users = self._solve("users", items, holdings, solves)
        items = self._solve("items", users, holdings, solves)
        after = Copy(number, tuple(users), tuple(items))
        results = self._foreman.wait([*calls, *(call for listed in solves.values() for call in listed)])
        seconds = time.perf_counter() - began
        reports: dict[int, list[TurnReport]] = {w: [results[call] for call in listed] for w, listed in solves.items()}
        finite = all(report.finite for listed in reports.values() for report in listed)
        if finite:
            self._stands.leave(after, self._foreman.losses, holdings)
        return Passed(after, {}, {worker: pace(listed) for worker, listed in reports.items()}, seconds, finite)

    def meet(self, holdings: Mapping[int, Units]) -> None:
        """There is nothing to be told."""

    def errors(self, copy: Copy, holdings: Mapping[int, Units]) -> dict[str, float]:  # noqa: ARG002
        """There are none: events are ranked."""
        return {}

    def _solve(
        self, side: SideName, others: list[Any], holdings: Mapping[int, Units], solves: dict[int, list[int]]
    ) -> list[Any]:
        """Ask everybody for one side; return where its parts will be."""
        solved: list[Any] = [None] * self._plan.units
        for worker, units in holdings.items():
            place = self._foreman.place(worker)
            call, kept = self._foreman.keeping(worker, Do(FactorWorker.solve, len(units)), place, side, *others)
            solves[worker].append(call)
            for unit, part in zip(units, kept, strict=True):
                solved[unit] = part
        return solved
