"""One value for each pair, made of its rows, for training and for testing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.errors import ConfigError, DataError
from dray.learners.factorization import split as splitting
from dray.learners.factorization import unit_pairs as making
from dray.learners.factorization.events import UnitRows
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.unit_pairs import Ageing, PairNotes, SplitRule, UnitPairs, unit_pairs

Row = tuple[int, int, float] | tuple[int, int, float, float]
DAY = 86_400.0
NO_SPLIT = SplitRule()


def rows(*given_rows: Row, **more: Any) -> UnitRows:
    columns = list(zip(*given_rows, strict=True)) or [(), (), ()]
    times = np.array(columns[3], np.float64) if len(columns) == 4 else None
    users, items = np.array(columns[0], np.int32), np.array(columns[1], np.int32)
    return UnitRows(users, items, np.array(columns[2], np.float32), times, **more)


def pairs(triples: Triples) -> list[tuple[int, int, float]]:
    return list(zip(triples.users.tolist(), triples.items.tolist(), triples.values.tolist(), strict=True))


def many(count: int = 3000, seed: int = 0) -> UnitRows:
    random = np.random.default_rng(seed)
    users, items = random.integers(0, 60, count).astype(np.int32), random.integers(0, 30, count).astype(np.int32)
    values = random.choice([1, 3, 5, -2], count).astype(np.float32)
    return UnitRows(users, items, values, random.integers(0, 500, count) * DAY / 10)


def cut(whole: UnitRows, places: list[int]) -> list[UnitRows]:
    edges = [0, *sorted(places), len(whole)]
    times = whole.times if whole.times is not None else np.zeros(len(whole))
    return [UnitRows(whole.users[a:b], whole.items[a:b], whole.values[a:b], times[a:b]) for a, b in pairwise(edges)]


def same(one: UnitPairs, other: UnitPairs) -> bool:
    return one.notes == other.notes and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in ((one.train, other.train), (one.test, other.test))
        for name in ("users", "items", "values")
    )


def test_of_several_ratings_of_a_pair_the_last_row_counts() -> None:
    part = unit_pairs([rows((1, 2, 3), (0, 9, 1), (1, 2, 5)), rows((1, 2, 4))], "explicit", NO_SPLIT)
    assert pairs(part.train) == [(0, 9, 1), (1, 2, 4)]
    assert part.notes == PairNotes(train_rows=4, duplicates=2)


def test_with_times_the_latest_rating_counts_and_of_equal_ones_the_later_row() -> None:
    given_rows = rows((1, 2, 3, 50), (1, 2, 5, 90), (1, 2, 2, 90), (1, 2, 4, 10), (1, 3, 1, 0))
    assert pairs(unit_pairs([given_rows], "explicit", NO_SPLIT).train) == [(1, 2, 2), (1, 3, 1)]


def test_events_of_a_pair_add_up_and_what_cancels_out_is_no_pair() -> None:
    given_rows = rows((0, 0, 1), (0, 1, -2), (0, 0, 3), (1, 1, 2), (1, 1, -2))
    part = unit_pairs([given_rows], "implicit", NO_SPLIT)
    assert pairs(part.train) == [(0, 0, 4), (0, 1, -2)]
    assert part.notes == PairNotes(train_rows=5, duplicates=2, cancelled=1)


def test_an_event_weighs_half_after_a_half_life() -> None:
    given_rows = rows((0, 0, 8, 0), (0, 0, 8, 10 * DAY), (0, 1, 4, 20 * DAY), (0, 2, 4, 25 * DAY))
    part = unit_pairs([given_rows], "implicit", NO_SPLIT, Ageing(half_life_s=10 * DAY, as_of=20 * DAY))
    assert pairs(part.train) == [(0, 0, 2 + 4), (0, 1, 4), (0, 2, 4)]


def test_what_is_too_old_to_be_told_from_nothing_is_no_pair() -> None:
    given_rows = rows((0, 0, 1, 0.0), (0, 1, 1, 1e6))
    part = unit_pairs([given_rows], "implicit", NO_SPLIT, Ageing(half_life_s=1.0, as_of=1e6))
    assert pairs(part.train) == [(0, 1, 1)] and part.notes.cancelled == 1


@pytest.mark.parametrize("half_life_s", [0.0, -1.0, float("nan")])
def test_a_half_life_that_is_none_is_refused(half_life_s: float) -> None:
    with pytest.raises(ConfigError, match="half-life"):
        Ageing(half_life_s=half_life_s, as_of=0.0)


def test_rows_since_the_moment_test_the_model() -> None:
    given_rows = rows((0, 0, 1, 5), (0, 1, 2, 6), (1, 0, 3, 7), (0, 0, 4, 8))
    part = unit_pairs([given_rows], "explicit", SplitRule(how="time", moment=6.0))
    assert pairs(part.train) == [(0, 0, 1)]
    assert pairs(part.test) == [(0, 0, 4), (0, 1, 2), (1, 0, 3)]
    assert (part.notes.train_rows, part.notes.test_rows) == (1, 3)


def test_the_last_rows_of_each_user_test_the_model() -> None:
    given_rows = rows((0, 0, 1, 5), (0, 1, 2, 6), (1, 0, 3, 7), (0, 2, 4, 6))
    part = unit_pairs([given_rows], "explicit", SplitRule(how="last", last=1))
    assert pairs(part.train) == [(0, 0, 1), (0, 1, 2), (1, 0, 3)] and pairs(part.test) == [(0, 2, 4)]


def test_a_random_split_takes_whole_pairs() -> None:
    given_rows = many()
    part = unit_pairs([given_rows], "explicit", SplitRule(how="random", share=0.3, seed=4))
    trained = {pair[:2] for pair in pairs(part.train)}
    tested = {pair[:2] for pair in pairs(part.test)}
    mask = splitting.at_random(given_rows.users, given_rows.items, 0.3, 4)
    assert not trained & tested
    assert tested == set(zip(given_rows.users[mask].tolist(), given_rows.items[mask].tolist(), strict=True))


def test_only_what_somebody_liked_tests_implicit_feedback() -> None:
    given_rows = [rows((0, 0, 1), (1, 1, 1)), rows((0, 1, -2), (0, 2, 5), (1, 1, 2), (1, 1, -2), test=True)]
    part = unit_pairs(given_rows, "implicit", NO_SPLIT)
    assert pairs(part.test) == [(0, 2, 5)]
    assert part.notes == PairNotes(train_rows=2, test_rows=4, test_duplicates=1, not_positive=2)


def test_data_of_its_own_for_testing_is_not_split() -> None:
    given_rows = [rows((0, 0, 1, 1), (0, 1, 1, 2), test=True), rows((0, 0, 1, 1), (0, 1, 1, 2), (0, 2, 1, 3))]
    part = unit_pairs(given_rows, "explicit", SplitRule(how="last", last=1))
    assert len(part.train) == 2 and len(part.test) == 3


def test_a_pair_may_be_on_both_sides() -> None:
    part = unit_pairs([rows((0, 0, 1)), rows((0, 0, 5), test=True)], "explicit", NO_SPLIT)
    assert pairs(part.train) == [(0, 0, 1)] and pairs(part.test) == [(0, 0, 5)]


def test_any_new_rating_replaces_that_of_the_earlier_model() -> None:
    new, old = rows((0, 0, 2, -5.0), (0, 1, 3, 1.0)), rows((0, 0, 5), (0, 2, 4), old=True, as_of=100.0)
    part = unit_pairs([new, old], "explicit", NO_SPLIT)
    assert pairs(part.train) == [(0, 0, 2), (0, 1, 3), (0, 2, 4)]
    assert part.notes == PairNotes(train_rows=2, old_pairs=2, duplicates=1)


def test_the_sums_of_the_earlier_model_age_from_its_own_moment() -> None:
    old, new = rows((0, 0, 8), (0, 1, 4), old=True, as_of=10 * DAY), rows((0, 0, 1, 20 * DAY))
    ageing = Ageing(half_life_s=10 * DAY, as_of=20 * DAY)
    assert pairs(unit_pairs([old, new], "implicit", NO_SPLIT, ageing).train) == [(0, 0, 4 + 1), (0, 1, 2)]
    assert pairs(unit_pairs([old, new], "implicit", NO_SPLIT).train) == [(0, 0, 8 + 1), (0, 1, 4)]


def test_going_on_gives_the_sums_of_all_events_at_once() -> None:
    first, second = cut(many(), [1500])
    early = unit_pairs([first], "implicit", NO_SPLIT, Ageing(half_life_s=5 * DAY, as_of=50 * DAY)).train
    old = UnitRows(early.users, early.items, early.values, old=True, as_of=50 * DAY)
    now = Ageing(half_life_s=5 * DAY, as_of=60 * DAY)
    on = {pair[:2]: pair[2] for pair in pairs(unit_pairs([old, second], "implicit", NO_SPLIT, now).train)}
    whole = {pair[:2]: pair[2] for pair in pairs(unit_pairs([first, second], "implicit", NO_SPLIT, now).train)}
    for pair in on.keys() | whole.keys():
        assert on.get(pair, 0) == pytest.approx(whole.get(pair, 0), abs=1e-5)


@pytest.mark.parametrize("how", ["random", "time", "last"])
def test_pairs_of_the_earlier_model_never_test(how: Any) -> None:
    old = rows(*((user, item, 1) for user in range(20) for item in range(20)), old=True)
    part = unit_pairs([old, many(50)], "implicit", SplitRule(how=how, share=0.9, moment=1.0, last=3))
    assert {(u, i) for u in range(20) for i in range(20)} <= {pair[:2] for pair in pairs(part.train)} | {
        pair[:2] for pair in pairs(unit_pairs([many(50)], "implicit", NO_SPLIT).train)
    }
    assert part.notes.test_rows <= 50 and part.notes.old_pairs == 400


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
@pytest.mark.parametrize("how", [None, "random", "time", "last"])
@settings(max_examples=10, deadline=None)
@given(places=st.lists(st.integers(0, 3000), max_size=6))
def test_the_answer_does_not_depend_on_how_the_rows_were_read(kind: Any, how: Any, places: list[int]) -> None:
    split, ageing = SplitRule(how=how, share=0.2, moment=40 * DAY, last=2), Ageing(half_life_s=DAY, as_of=50 * DAY)
    whole = unit_pairs([many()], kind, split, ageing)
    assert same(unit_pairs(cut(many(), places), kind, split, ageing), whole)


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_each_pair_is_there_once_and_in_order(kind: Any) -> None:
    part = unit_pairs([many()], kind, SplitRule(how="random", share=0.2))
    for triples in (part.train, part.test):
        keys = [pair[:2] for pair in pairs(triples)]
        assert keys == sorted(set(keys))
        assert (triples.users.dtype, triples.items.dtype, triples.values.dtype) == (np.int32, np.int32, np.float32)


def test_ids_too_many_for_one_number_are_sorted_the_same() -> None:
    given_rows = many()
    one, other = (
        making._by_pair(given_rows.users, given_rows.items),
        making._by_pair(given_rows.users, given_rows.items, key_bits=8),
    )
    assert np.array_equal(one, other)
    assert making._by_pair(np.array([2**31 - 1, 0], np.int32), np.array([2**31 - 1, 1], np.int32)).tolist() == [1, 0]


@pytest.mark.parametrize("given_rows", [[], [rows()], [rows(), rows(old=True), rows(test=True)]])
@pytest.mark.parametrize("kind", ["explicit", "implicit"])
@pytest.mark.parametrize("how", [None, "random", "time", "last"])
def test_a_unit_without_rows_is_empty(given_rows: list[UnitRows], kind: Any, how: Any) -> None:
    part = unit_pairs(given_rows, kind, SplitRule(how=how, share=0.2, moment=0.0))
    assert len(part.train) == len(part.test) == 0
    assert part.train.users.dtype == np.int32 and part.notes == PairNotes()


@pytest.mark.parametrize("split", [SplitRule(how="time", moment=1.0), SplitRule(how="last")])
def test_a_split_by_time_needs_times(split: SplitRule) -> None:
    with pytest.raises(DataError, match="no time") as raised:
        unit_pairs([rows((0, 0, 1))], "implicit", split)
    assert "--time" in raised.value.fix
    with pytest.raises(DataError, match="ageing"):
        unit_pairs([rows((0, 0, 1))], "implicit", NO_SPLIT, Ageing(half_life_s=1.0, as_of=0.0))


def test_notes_add_up() -> None:
    one, other = PairNotes(train_rows=1, cancelled=2), PairNotes(train_rows=3, test_rows=4)
    assert one + other == PairNotes(train_rows=4, test_rows=4, cancelled=2)


def test_what_was_read_is_left_as_it_was() -> None:
    given_rows = many()
    for array in (given_rows.users, given_rows.items, given_rows.values, given_rows.times):
        assert array is not None
        array.flags.writeable = False  # as arrays of shared memory are
    unit_pairs([given_rows], "implicit", SplitRule(how="last"), Ageing(half_life_s=DAY, as_of=50 * DAY))
    unit_pairs([given_rows], "explicit", SplitRule(how="time", moment=DAY))
