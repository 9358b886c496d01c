"""Which events test a model."""

from __future__ import annotations

import numpy as np
import pytest

from dray.errors import ConfigError, DataError
from dray.learners.factorization import split

RNG = np.random.default_rng(0)
USERS = RNG.integers(0, 500, 20_000).astype(np.int32)
ITEMS = RNG.integers(0, 300, 20_000).astype(np.int32)


def test_a_random_split_has_about_the_share_asked_for() -> None:
    assert split.at_random(USERS, ITEMS, 0.2).mean() == pytest.approx(0.2, abs=0.01)


def test_a_random_split_keeps_all_events_of_a_pair_on_one_side() -> None:
    mask = split.at_random(USERS, ITEMS, 0.5)
    sides: dict[tuple[int, int], set[bool]] = {}
    for user, item, side in zip(USERS.tolist(), ITEMS.tolist(), mask.tolist(), strict=True):
        sides.setdefault((user, item), set()).add(side)
    assert all(len(side) == 1 for side in sides.values())


def test_a_random_split_does_not_depend_on_the_order_of_rows_but_on_the_seed() -> None:
    mask = split.at_random(USERS, ITEMS, 0.3, seed=4)
    order = RNG.permutation(len(USERS))
    assert np.array_equal(split.at_random(USERS[order], ITEMS[order], 0.3, seed=4), mask[order])
    assert not np.array_equal(split.at_random(USERS, ITEMS, 0.3, seed=5), mask)


def test_users_and_items_are_spread_evenly_over_both_parts() -> None:
    mask = split.at_random(USERS, ITEMS, 0.5, seed=-1)
    for column in (USERS, ITEMS):
        shares = np.bincount(column, weights=mask) / np.bincount(column)
        assert abs(shares - 0.5).max() < 0.4


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="not possible"):
        split.at_random(USERS, ITEMS, share)


def test_by_time_all_test_events_are_later() -> None:
    times = RNG.integers(0, 10_000, 5_000)
    mask = split.since(times, 8_000)
    assert times[~mask].max() < 8_000 <= times[mask].min()
    assert mask.any() and not mask.all()


def test_timestamps_can_be_split_too() -> None:
    times = np.array(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"], "datetime64[us]")
    assert split.since(times, "2026-01-03").tolist() == [False, False, True, True]


def test_an_event_without_a_time_is_refused() -> None:
    with pytest.raises(DataError, match="1 of 2 events have no time"):
        split.since(np.array([1.0, np.nan]), 0.5)


def test_the_last_n_of_each_user_are_left_out_but_never_all() -> None:
    users = np.array([0, 1, 0, 0, 1, 2], np.int32)
    times = np.array([3, 1, 1, 2, 5, 9])
    assert split.last_of_each_user(users, times).tolist() == [True, False, False, False, True, False]
    assert split.last_of_each_user(users, times, 5).tolist() == [True, False, False, True, True, False]


def test_of_events_at_the_same_time_the_later_row_is_the_last() -> None:
    users, times = np.zeros(3, np.int32), np.ones(3)
    assert split.last_of_each_user(users, times).tolist() == [False, False, True]


def test_leaving_out_none_is_refused() -> None:
    with pytest.raises(ConfigError):
        split.last_of_each_user(USERS, ITEMS, 0)
