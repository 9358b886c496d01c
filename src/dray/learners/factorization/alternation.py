"""Implicit feedback on workers: users from all items, items from all users, part by part (block ALS).

Parts go from worker to worker by reference, each with what it adds to the Gram matrix; nothing passes through here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dray.errors import DataError
from dray.learners.factorization.blocks import Blocks
from dray.learners.factorization.calls import TurnReport
from dray.learners.factorization.epoch import Passed, Restored, Turns, pace
from dray.learners.factorization.explicit import SideName
from dray.learners.factorization.implicit_share import ImplicitPlan
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do


class Alternation:
    def __init__(self, plan: ImplicitPlan) -> None:
        self._plan = plan
        self._restored = Restored()
        self.halvings = 0
        self.rate: float | None = None
        """There are no steps to be made smaller."""

    def halve(self) -> None:
        raise DataError(
            "Training diverged: the factors hold NaN or infinity.",
            fix="Raise the regularization, lower alpha, or look for weights that are far from all others.",
        )

    def epoch(self, number: int, blocks: Blocks, turns: Turns) -> Passed:
        attempt, holdings, began = turns.attempt, turns.holdings, time.perf_counter()
        restored = self._restored.taken(blocks, attempt.number)
        calls: list[int] = []
        items = list(blocks.items)
        for worker, units in holdings.items():
            lacking = tuple(unit for unit in units if unit not in restored.get(worker, ()))
            sides: tuple[tuple[SideName, Sequence[Any]], ...] = (("users", blocks.users), ("items", blocks.items))
            for side, parts in sides if lacking else ():
                given = (parts[unit] for unit in lacking)
                place = turns.place(worker)
                calls.append(attempt.call(worker, Do(FactorWorker.restore_side), place, side, lacking, *given).number)
            if blocks.items[0] is None:
                call, kept = attempt.call(worker, Do(FactorWorker.first_parts, len(units)), "items", units)
                calls.append(call)
                for unit, part in zip(units, kept, strict=True):
                    items[unit] = part
        solves: dict[int, list[int]] = {worker: [] for worker in holdings}
        users = self._solve("users", items, turns, solves)
        items = self._solve("items", users, turns, solves)
        after = Blocks(number, tuple(users), tuple(items))
        results = attempt.wait([*calls, *(call for listed in solves.values() for call in listed)])
        seconds = time.perf_counter() - began
        reports: dict[int, list[TurnReport]] = {w: [results[call] for call in listed] for w, listed in solves.items()}
        finite = all(report.finite for listed in reports.values() for report in listed)
        if finite:
            self._restored.leave(after, turns)
        return Passed(after, {}, {worker: pace(listed) for worker, listed in reports.items()}, seconds, finite)

    def meet(self, turns: Turns) -> None:
        """There is nothing to tell."""

    def errors(self, blocks: Blocks, turns: Turns) -> dict[str, float]:  # noqa: ARG002
        """There are none: events are ranked."""
        return {}

    def _solve(self, side: SideName, others: list[Any], turns: Turns, solves: dict[int, list[int]]) -> list[Any]:
        """Ask all workers for one side; return where its parts will be."""
        solved: list[Any] = [None] * self._plan.units
        for worker, units in turns.holdings.items():
            place = turns.place(worker)
            call, kept = turns.attempt.call(worker, Do(FactorWorker.solve, len(units)), place, side, *others)
            solves[worker].append(call)
            for unit, part in zip(units, kept, strict=True):
                solved[unit] = part
        return solved
