"""From blocks and pairs on the workers to the model's arrays, by index: the only place where all of them meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dray.elastic.membership import Membership
from dray.learners.factorization import explicit
from dray.learners.factorization.explicit import FactorBlock, Scale
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.factors import Factors, Longs, Seen
from dray.learners.factorization.grid import Layout
from dray.learners.factorization.implicit_share import ImplicitPlan, PartFactors
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do, InputGone
from dray.training.factorization.foreman import Foreman
from dray.training.factorization.passing import by_unit
from dray.training.factorization.routes import Units


def collect_seen(foreman: Foreman, membership: Membership, layout: Layout) -> Seen:
    """Fetch all pairs, a piece of a unit's users at a time: the last thing that is asked of the workers."""

    def count(holdings: Mapping[int, Units]) -> dict[int, Any]:
        calls = [foreman.call(worker, Do(FactorWorker.pair_counts), units) for worker, units in holdings.items()]
        return by_unit(foreman.wait(calls).values())

    starts = np.zeros(len(layout.users.position) + 1, np.int64)
    for users, counts in foreman.do(count).values():
        starts[users.astype(np.int64) + 1] = counts
    np.cumsum(starts, out=starts)
    seen = Seen(starts, np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32))
    assert seen.values is not None
    left = {(unit, piece) for unit in range(layout.shape.blocks) for piece in range(layout.shape.cells)}

    def bring(holdings: Mapping[int, Units]) -> None:
        held = {unit: worker for worker, units in holdings.items() for unit in units}
        for unit, piece in sorted(left):
            call, kept = foreman.keeping(held[unit], Do(FactorWorker.seen, 1), unit, piece)
            foreman.wait([call])
            try:
                _place(seen, membership.group.fetch(kept)[0])
            except InputGone as error:  # its machine went with it, or cannot be reached
                raise foreman.give_up(error) from None
            left.remove((unit, piece))
            if membership.alone and piece == layout.shape.cells - 1:
                # There is no room for the pairs twice, and nobody to take the unit over.
                foreman.wait([foreman.call(held[unit], Do(FactorWorker.keep), tuple({unit for unit, _ in left}))])

    foreman.do(bring)
    return seen


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


def implicit_factors(plan: ImplicitPlan, users: Sequence[PartFactors], items: Sequence[PartFactors]) -> Factors:
    tables = []
    for side, parts in ((plan.layout.users, users), (plan.layout.items, items)):
        table = np.empty((len(side.position), plan.settings.factors), np.float32)
        order = side.order
        for unit, part in enumerate(parts):
            table[order[slice(*side.span(unit))]] = part.factors
        tables.append(table)
    return Factors.of(tables[0], tables[1])


def forget_untrained(factors: Factors, seen: Seen, item_counts: Longs) -> None:
    """Who has no pair in the training part still has the random numbers that it began with."""
    for rows, table, bias in (
        (np.diff(seen.starts) == 0, factors.users, factors.user_bias),
        (item_counts == 0, factors.items, factors.item_bias),
    ):
        table[rows] = 0
        bias[rows] = 0
