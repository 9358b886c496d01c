"""Blocks of users on several workers, driven by hand: the bits of the serial replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dray.learners.factorization import explicit
from dray.learners.factorization.evaluate import merged
from dray.learners.factorization.events import UnitRows
from dray.learners.factorization.explicit import ExplicitSettings, FactorBlock, Scale, scale_of
from dray.learners.factorization.explicit_share import ExplicitPlan, ExplicitShare
from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.grid import Shape, strata
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Ratings, Triples
from dray.learners.factorization.routes import Units, routes
from dray.learners.factorization.unit_pairs import PairNotes, SplitRule, UnitPairs, unit_pairs
from rating_data import made_ratings, ratings_of
from serial_factorization import fit_explicit, layout_of
from whole_evaluation import ranking_quality, rating_errors

SETTINGS = ExplicitSettings(factors=6, epochs=3)
DEALINGS: list[dict[int, Units]] = [
    {0: (0, 1, 2, 3)},
    {0: (0, 1), 1: (2, 3)},
    {0: (0, 3), 1: (1,), 2: (2,)},
    {3: (3,), 2: (2,), 1: (0,), 0: (1,)},
]


def unique(ratings: Ratings) -> Ratings:
    keys = ratings.users.astype(np.int64) * ratings.n_items + ratings.items
    rows = np.unique(keys, return_index=True)[1]
    return ratings_of(ratings.users[rows], ratings.items[rows], ratings.values[rows], ratings.n_users, ratings.n_items)


RATINGS = unique(made_ratings())
PLAN = ExplicitPlan(layout_of(RATINGS, SETTINGS.seed), SETTINGS)


def part_of(unit: int, test_every: int = 0) -> UnitPairs:
    mine = PLAN.user_blocks()[RATINGS.users] == unit
    test = np.arange(len(RATINGS)) % test_every == 0 if test_every else np.zeros(len(RATINGS), bool)
    sides = [Triples(RATINGS.users[m], RATINGS.items[m], RATINGS.values[m]) for m in (mine & ~test, mine & test)]
    return UnitPairs(sides[0], sides[1], PairNotes())


def loaded(holdings: dict[int, Units], test_every: int = 0) -> tuple[dict[int, ExplicitShare], Scale]:
    shares = {worker: ExplicitShare(PLAN) for worker in holdings}
    reports = [
        shares[worker].build(unit, [part_of(unit, test_every)]) for worker, units in holdings.items() for unit in units
    ]
    assert sum(report.pairs + report.test_pairs for report in reports) == len(RATINGS)
    return shares, scale_of(moment for report in reports for moment in report.moments)


def trained(shares: dict[int, ExplicitShare], scale: Scale, holdings: dict[int, Units]) -> tuple[Any, Any]:
    """Drive an epoch after another, with blocks of items passed by hand."""
    items: dict[int, FactorBlock | None] = dict.fromkeys(range(PLAN.units))
    for worker, share in shares.items():
        share.restore(scale, dict.fromkeys(holdings[worker]))
    with Threads(1) as pool:
        for number in range(1, SETTINGS.epochs + 1):
            for step in routes(strata(PLAN.units, SETTINGS.seed, number), holdings, PLAN.units):
                given: dict[int, FactorBlock] = {}
                for worker, turn in step.items():
                    taken = {item: items[item] for item in turn.takes}
                    shares[worker].turn(turn.step, SETTINGS.learning_rate, pool)
                    shares[worker].turn(turn.step, SETTINGS.learning_rate, pool, taken)
                    given |= zip(turn.gives, shares[worker].give(turn.gives), strict=True)
                items |= given
    users = {unit: share.users[unit] for worker, share in shares.items() for unit in holdings[worker]}
    return users, items


@pytest.mark.parametrize("holdings", DEALINGS)
def test_any_dealing_gives_the_bits_of_the_serial_replay(holdings: dict[int, Units]) -> None:
    shares, scale = loaded(holdings)
    users, items = trained(shares, scale, holdings)
    together = explicit.assemble(PLAN.layout, users, items, scale)
    serial = fit_explicit(RATINGS, SETTINGS)
    assert scale == serial.scale
    for name in ("users", "items", "user_bias", "item_bias"):
        assert getattr(together, name).tobytes() == getattr(serial.factors, name).tobytes()


def test_a_turn_leaves_what_it_was_given_as_it_was() -> None:
    shares, scale = loaded(DEALINGS[0])
    _, items = trained(shares, scale, DEALINGS[0])
    before = {number: block.copy() for number, block in items.items()}
    with Threads(1) as pool:
        shares[0].turn(0, 0.01, pool, dict(items))
    assert all(np.array_equal(items[number].factors, block.factors) for number, block in before.items())


def test_standing_somewhere_forgets_what_was_trained_since() -> None:
    shares, scale = loaded(DEALINGS[0])
    trained(shares, scale, DEALINGS[0])
    _, copies = shares[0].copies((0, 1))
    shares[0].users[0].factors[:] = 7
    shares[0].restore(scale, {0: copies[0]})
    assert np.array_equal(shares[0].users[0].factors, copies[0].factors)
    shares[0].users[0].factors[:] = 8  # and what was copied is not what is trained on
    assert not np.any(copies[0].factors == 8)


def test_copies_tell_whether_they_are_numbers() -> None:
    shares, scale = loaded(DEALINGS[0])
    shares[0].restore(scale, dict.fromkeys(range(PLAN.units)))
    assert shares[0].copies((0, 1))[0]
    shares[0].users[1].bias[0] = np.nan
    assert not shares[0].copies((0, 1))[0]


@pytest.mark.parametrize("holdings", DEALINGS)
def test_errors_and_rankings_of_shares_are_those_of_the_whole(holdings: dict[int, Units]) -> None:
    shares, scale = loaded(holdings, test_every=5)
    users, items = trained(shares, scale, holdings)
    factors: Factors = explicit.assemble(PLAN.layout, users, items, scale)
    test = np.arange(len(RATINGS)) % 5 == 0
    seen = Seen.of(RATINGS.users[~test], RATINGS.items[~test], RATINGS.n_users)
    counts = seen.counts(RATINGS.n_items)
    all_items = [items[number] for number in range(PLAN.units)]
    sums, rankings = {}, {}
    for worker, share in shares.items():
        mine = {unit: users[unit] for unit in holdings[worker]}
        sums |= share.errors(mine, all_items, counts > 0, (scale.low, scale.high))
        rankings |= share.rankings(mine, all_items, counts, (5, 10), 1)
    whole = rating_errors(
        factors, RATINGS.users[test], RATINGS.items[test], RATINGS.values[test], (scale.low, scale.high)
    )
    squares, sizes = np.array(list(sums.values())).sum(axis=0) / test.sum()
    assert np.sqrt(squares) == pytest.approx(whole.rmse, rel=1e-12)
    assert sizes == pytest.approx(whole.mae, rel=1e-12)
    quality = merged([rankings[unit] for unit in sorted(rankings)], (5, 10), RATINGS.n_users)
    direct = ranking_quality(factors, seen, RATINGS.users[test], RATINGS.items[test], (5, 10))
    assert [at.k for at in quality.at] == [5, 10]
    for one, other in zip(quality.at, direct.at, strict=True):
        assert (one.recall, one.ndcg, one.map) == pytest.approx((other.recall, other.ndcg, other.map), rel=1e-12)
        assert one.coverage == other.coverage
    assert (quality.users, quality.pairs) == (direct.users, direct.pairs)


def test_who_has_not_trained_can_rank_once_it_knows_the_scale() -> None:
    shares, scale = loaded(DEALINGS[1], test_every=5)
    users, items = trained(shares, scale, DEALINGS[1])
    new_workers, _ = loaded(DEALINGS[1], test_every=5)  # a replacement after the last epoch
    counts = np.bincount(RATINGS.items, minlength=RATINGS.n_items).astype(np.int64)
    for worker, units in DEALINGS[1].items():
        new_workers[worker].restore(scale, {})
        mine, all_items = {unit: users[unit] for unit in units}, [items[number] for number in range(PLAN.units)]
        before = shares[worker].rankings(mine, all_items, counts, (10,), 1)
        after = new_workers[worker].rankings(mine, all_items, counts, (10,), 1)
        assert {u: s.sums.tobytes() for u, s in before.items()} == {u: s.sums.tobytes() for u, s in after.items()}


def test_what_was_taken_is_given_back_pair_by_pair() -> None:
    shares, _ = loaded(DEALINGS[0])
    found = [
        _joined([shares[0].seen(unit, piece) for piece in range(PLAN.layout.shape.cells)]) for unit in range(PLAN.units)
    ]
    for unit, (users, items, _) in enumerate(found):
        assert np.all(PLAN.user_blocks()[users] == unit)
        keys = users.astype(np.int64) * RATINGS.n_items + items
        assert np.all(np.diff(keys) > 0)
        listed, counts = shares[0].pair_counts(unit)
        assert dict(zip(listed.tolist(), counts.tolist(), strict=True)) == {
            user: int(np.count_nonzero(users == user)) for user in listed.tolist()
        }
    joined = np.concatenate([np.stack([u, i]) for u, i, _ in found], axis=1)
    order = np.lexsort((joined[1], joined[0]))
    assert np.array_equal(joined[:, order], np.stack([RATINGS.users, RATINGS.items]))
    assert np.array_equal(np.concatenate([values for _, _, values in found])[order], RATINGS.values)


def _joined(pieces: list[Triples]) -> tuple[Any, Any, Any]:
    """Return what comes some users at a time as one, by user and item."""
    all_of = Triples.joined(pieces)
    order = np.lexsort((all_of.items, all_of.users))
    return all_of.users[order], all_of.items[order], all_of.values[order]


def test_a_unit_of_nobody_is_a_unit() -> None:
    nothing = Triples(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    share = ExplicitShare(PLAN)
    report = share.build(2, [UnitPairs(nothing, nothing, PairNotes())])
    assert (report.pairs, report.item_counts.sum()) == (0, 0)
    assert len(share.units[2]) == 0


def test_a_unit_made_of_pieces_of_its_users_is_the_one_made_at_once() -> None:
    plan = ExplicitPlan(layout_of(RATINGS, SETTINGS.seed, Shape(2, 3)), SETTINGS)
    mine = plan.user_blocks()[RATINGS.users] == 1
    rows = UnitRows(RATINGS.users[mine], RATINGS.items[mine], RATINGS.values[mine])
    read = [rows.only(np.arange(len(rows)) % 2 == part) for part in (0, 1)]  # as two readers return them
    at_once, in_pieces = ExplicitShare(plan), ExplicitShare(plan)
    rule = SplitRule(how="random", share=0.2)
    pieces = list(in_pieces.pieces(read))
    assert [len({*plan.layout.users.piece[one.users], *plan.layout.users.piece[two.users]}) for one, two in pieces] == [
        1, 1, 1
    ]  # fmt: skip
    whole = at_once.build(1, [unit_pairs(read, "explicit", rule)])
    joined = in_pieces.build(1, (unit_pairs(piece, "explicit", rule) for piece in pieces))
    assert (joined.pairs, joined.test_pairs) == (whole.pairs, whole.test_pairs)
    assert joined.moments == whole.moments
    np.testing.assert_array_equal(joined.item_counts, whole.item_counts)
    for one, other in zip(at_once.units[1].row, in_pieces.units[1].row, strict=True):
        for name in ("users", "items", "values", "offsets", "user_edges", "item_edges"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(at_once.units[1].trained, in_pieces.units[1].trained)
    assert sorted(zip(*triple(at_once), strict=True)) == sorted(zip(*triple(in_pieces), strict=True))


def triple(share: ExplicitShare) -> tuple[Any, ...]:
    test = share.units[1].test
    return test.users.tolist(), test.items.tolist(), test.values.tolist()
