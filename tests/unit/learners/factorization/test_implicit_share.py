"""Parts of users and items on several workers, driven by hand: the same bits for any assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dray.learners.factorization import implicit
from dray.learners.factorization.evaluate import merged
from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.grid import Layout, lay_out
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.implicit_share import (
    ImplicitPlan,
    ImplicitShare,
    PartFactors,
    give_items,
    shape_of,
)
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.routes import Units
from dray.learners.factorization.unit_pairs import PairNotes, UnitPairs
from rating_data import made_events
from serial_factorization import transposed
from whole_evaluation import ranking_quality

EVENTS = made_events()
COUNTS = [
    np.bincount(side, minlength=n) for side, n in ((EVENTS.users, EVENTS.n_users), (EVENTS.items, EVENTS.n_items))
]
LAYOUT: Layout = lay_out(COUNTS[0], COUNTS[1], shape_of(len(EVENTS), EVENTS.n_users, EVENTS.n_items), 0)
DEALINGS: list[dict[int, Units]] = [{0: (0, 1, 2, 3)}, {0: (0, 1), 1: (2, 3)}, {0: (1,), 1: (0, 3), 2: (2,)}]
ITERATIONS = 3


def plan_of(solver: str) -> ImplicitPlan:
    return ImplicitPlan(LAYOUT, ImplicitSettings(factors=5, solver=solver))


def loaded(plan: ImplicitPlan, holdings: dict[int, Units], test_every: int = 0) -> dict[int, ImplicitShare]:
    shares = {worker: ImplicitShare(plan) for worker in holdings}
    test = np.arange(len(EVENTS)) % test_every == 0 if test_every else np.zeros(len(EVENTS), bool)
    for worker, units in holdings.items():
        for unit in units:
            mine = plan.user_blocks()[EVENTS.users] == unit
            sides = [Triples(EVENTS.users[m], EVENTS.items[m], EVENTS.values[m]) for m in (mine & ~test, mine & test)]
            shares[worker].build(unit, [UnitPairs(sides[0], sides[1], PairNotes())])
    everywhere = tuple(range(plan.units))
    given = [give_items(share.plan, share.units, everywhere) for share in shares.values()]
    for worker, units in holdings.items():
        for unit in units:
            shares[worker].take_items(unit, [parts[unit] for parts in given])
    return shares


def solved(plan: ImplicitPlan, holdings: dict[int, Units], test_every: int = 0) -> tuple[Any, list[Any], list[Any]]:
    shares = loaded(plan, holdings, test_every)
    for worker, share in shares.items():
        for side in ("users", "items"):
            share.restore(side, dict.fromkeys(holdings[worker]))  # type: ignore[arg-type]
    users: list[PartFactors] = []
    items = [PartFactors.of(plan.first("items", unit)) for unit in range(plan.units)]
    with Threads(1) as pool:
        for _ in range(ITERATIONS):
            parts = {u: part for share in shares.values() for u, part in share.solve("users", items, pool).items()}
            users = [parts[unit] for unit in range(plan.units)]
            parts = {u: part for share in shares.values() for u, part in share.solve("items", users, pool).items()}
            items = [parts[unit] for unit in range(plan.units)]
    return shares, users, items


@pytest.mark.parametrize("solver", ["gradient", "cholesky"])
def test_any_dealing_gives_the_same_bits(solver: str) -> None:
    plan = plan_of(solver)
    _, users, items = solved(plan, DEALINGS[0])
    for holdings in DEALINGS[1:]:
        _, other_users, other_items = solved(plan, holdings)
        for one, other in zip([*users, *items], [*other_users, *other_items], strict=True):
            assert one.factors.tobytes() == other.factors.tobytes()


@pytest.mark.parametrize("solver", ["gradient", "cholesky"])
def test_parts_give_what_solving_everything_at_once_gives(solver: str) -> None:
    plan = plan_of(solver)
    _, users, items = solved(plan, DEALINGS[2])
    layout, settings = plan.layout, plan.settings
    placed = Triples(layout.users.position[EVENTS.users], layout.items.position[EVENTS.items], EVENTS.values)
    by_user = implicit.rows_by_user([placed], 0, EVENTS.n_users)
    by_item = transposed(by_user, EVENTS.n_items)
    p, q = (np.concatenate([plan.first(side, unit) for unit in range(plan.units)]) for side in ("users", "items"))  # type: ignore[arg-type]
    with Threads(1) as pool:
        for _ in range(ITERATIONS):
            for rows, own, other, side in ((by_user, p, q, "items"), (by_item, q, p, "users")):
                grams = [
                    implicit.gram_of_part(other[slice(*plan.span(side, unit))])  # type: ignore[arg-type]
                    for unit in range(plan.units)
                ]
                implicit.solve_rows(rows, other, implicit.gram_of_parts(grams), settings, own, pool)
    assert np.concatenate([part.factors for part in users]).tobytes() == p.tobytes()
    assert np.concatenate([part.factors for part in items]).tobytes() == q.tobytes()


def test_rankings_of_shares_are_those_of_the_whole() -> None:
    plan = plan_of("cholesky")
    shares, users, items = solved(plan, DEALINGS[2], test_every=4)
    test = np.arange(len(EVENTS)) % 4 == 0
    seen = Seen.of(EVENTS.users[~test], EVENTS.items[~test], EVENTS.n_users)
    tables = []
    for side, parts in ((LAYOUT.users, users), (LAYOUT.items, items)):
        tables.append(np.concatenate([part.factors for part in parts])[side.position])
    factors = Factors.of(tables[0], tables[1])
    counts, rankings = seen.counts(EVENTS.n_items), {}
    for worker, share in shares.items():
        mine = {unit: users[unit] for unit in DEALINGS[2][worker]}
        rankings |= share.rankings(mine, items, counts, (5,), 1)
    quality = merged([rankings[unit] for unit in sorted(rankings)], (5,), EVENTS.n_users)
    direct = ranking_quality(factors, seen, EVENTS.users[test], EVENTS.items[test], (5,))
    assert quality.at[0].ndcg == pytest.approx(direct.at[0].ndcg, rel=1e-12)
    assert quality.at[0].coverage == direct.at[0].coverage
    assert (quality.users, quality.pairs) == (direct.users, direct.pairs)


def test_the_items_of_a_unit_have_the_events_of_all_users() -> None:
    plan = plan_of("cholesky")
    shares = loaded(plan, DEALINGS[2])
    total = 0
    for worker, units in DEALINGS[2].items():
        for unit in units:
            rows, first = shares[worker].by_item[unit], plan.span("items", unit)[0]
            names = LAYOUT.items.order[np.arange(first, first + len(rows))]
            counts = np.diff(rows.starts)
            assert counts.tolist() == COUNTS[1][names].tolist()
            total += int(counts.sum())
    assert total == len(EVENTS)


def test_what_was_taken_is_given_back_pair_by_pair() -> None:
    shares = loaded(plan_of("cholesky"), DEALINGS[0])
    found = [shares[0].seen(unit, 0) for unit in range(4)]
    joined = np.concatenate([np.stack([piece.users, piece.items]) for piece in found], axis=1)
    values = np.concatenate([piece.values for piece in found])
    order, direct = np.lexsort((joined[1], joined[0])), np.lexsort((EVENTS.items, EVENTS.users))
    assert np.array_equal(joined[:, order], np.stack([EVENTS.users[direct], EVENTS.items[direct]]))
    assert np.array_equal(values[order], EVENTS.values[direct])


@pytest.mark.parametrize(
    ("entries", "users", "items", "units"), [(10, 3, 9, 3), (1000, 90, 80, 4), (10**9, 10**6, 10**6, 64)]
)
def test_units_are_few_for_little_data_and_none_is_empty(entries: int, users: int, items: int, units: int) -> None:
    assert (shape_of(entries, users, items).blocks, shape_of(entries, users, items).cells) == (units, 1)
