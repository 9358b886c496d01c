"""From blocks and pairs on the workers to the model's arrays, by index: the only place where all of them meet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dray.learners.attempt import Attempt, Finished
from dray.learners.factorization import explicit
from dray.learners.factorization.epoch import Turns, by_unit
from dray.learners.factorization.explicit import FactorBlock, Scale
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.factors import Factors, Longs, Seen
from dray.learners.factorization.grid import Layout
from dray.learners.factorization.implicit_share import PartFactors
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do, InputGone


class PairCollection:
    """A coordinator that fetches all pairs, a piece of a unit's users at a time."""

    def __init__(self, layout: Layout, *, last: bool) -> None:
        self._layout = layout
        self._last = last
        """No fit follows: in one process each unit is dropped when it is fetched."""
        self._seen: Seen | None = None
        self._left = {(unit, piece) for unit in range(layout.shape.blocks) for piece in range(layout.shape.cells)}

    def run(self, attempt: Attempt) -> Finished[Seen]:
        turns = Turns(attempt, 0)
        attempt.started()
        seen = self._seen = self._seen or self._counted(turns)
        held = {unit: worker for worker, units in turns.holdings.items() for unit in units}
        for unit, piece in sorted(self._left):
            call, kept = attempt.call(held[unit], Do(FactorWorker.seen, 1), unit, piece)
            attempt.wait([call])
            try:
                _place(seen, attempt.fetch(kept)[0])
            except InputGone as error:  # its machine went with it, or cannot be reached
                raise attempt.give_up(error) from None
            self._left.remove((unit, piece))
            if self._last and attempt.alone and piece == self._layout.shape.cells - 1:
                # There is no room for the pairs twice, and no other worker to take the unit over.
                rest = tuple({unit for unit, _ in self._left})
                attempt.wait([attempt.call(held[unit], Do(FactorWorker.keep), rest).number])
        return Finished(seen)

    def rescue(self, attempt: Attempt, error: BaseException) -> None:
        """A resumed run goes on from the last checkpoint that was written."""

    def _counted(self, turns: Turns) -> Seen:
        """Return room for all pairs."""
        calls = [
            turns.attempt.call(worker, Do(FactorWorker.pair_counts), units).number
            for worker, units in turns.holdings.items()
        ]
        starts = np.zeros(len(self._layout.users.position) + 1, np.int64)
        for users, counts in by_unit(turns.attempt.wait(calls).values()).values():
            starts[users.astype(np.int64) + 1] = counts
        np.cumsum(starts, out=starts)
        return Seen(starts, np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32))


def _place(seen: Seen, pairs: Triples) -> None:
    """Put the pairs of some users where they belong; they come by user and item. A piece at a time, to take no room."""
    assert seen.values is not None
    for begin in range(0, len(pairs), 1 << 17):
        piece = slice(begin, begin + (1 << 17))
        users = pairs.users[piece]
        within = np.arange(begin, begin + len(users)) - np.searchsorted(pairs.users, users)
        places = seen.starts[users] + within
        seen.items[places] = pairs.items[piece]
        seen.values[places] = pairs.values[piece]


def explicit_factors(
    plan: ExplicitPlan, users: Sequence[FactorBlock], items: Sequence[FactorBlock], scale: Scale
) -> Factors:
    return explicit.assemble(plan.layout, dict(enumerate(users)), dict(enumerate(items)), scale)


def implicit_factors(
    layout: Layout, factors: int, users: Sequence[PartFactors], items: Sequence[PartFactors]
) -> Factors:
    tables = []
    for side, parts in ((layout.users, users), (layout.items, items)):
        table = np.empty((len(side.position), factors), np.float32)
        order = side.order
        for unit, part in enumerate(parts):
            table[order[slice(*side.span(unit))]] = part.factors
        tables.append(table)
    return Factors.of(tables[0], tables[1])


def forget_untrained(factors: Factors, seen: Seen, item_counts: Longs) -> None:
    """Users and items without a training pair still have the random numbers that they began with."""
    for rows, table, bias in (
        (np.diff(seen.starts) == 0, factors.users, factors.user_bias),
        (item_counts == 0, factors.items, factors.item_bias),
    ):
        table[rows] = 0
        bias[rows] = 0
