"""The best items: against scoring everything and sorting it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dray.errors import ConfigError
from dray.learners.factorization import top
from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.top import EMPTY, ItemIndex, best_for_users, best_of, encode_items

NONE = np.zeros(0, np.int32)


def some_factors(users: int, items: int, k: int = 16, seed: int = 0, spread: float = 0.0) -> Factors:
    random = np.random.default_rng(seed)
    q = random.standard_normal((items, k), dtype=np.float32)
    q *= np.exp(spread * random.standard_normal((items, 1))).astype(np.float32)
    return Factors.of(
        random.standard_normal((users, k), dtype=np.float32),
        q,
        random.standard_normal(users, dtype=np.float32),
        random.standard_normal(items, dtype=np.float32),
        3.5,
    )


def some_seen(users: int, items: int, each: int = 20, seed: int = 1) -> Seen:
    random = np.random.default_rng(seed)
    of = np.repeat(np.arange(users, dtype=np.int32), each)
    return Seen.of(of, random.integers(0, items, len(of)).astype(np.int32), users)


def by_sorting(f: Factors, user: int, n: int, seen: Any, among: Any = None) -> list[int]:
    scores = f.items.astype(np.float64) @ f.users[user].astype(np.float64) + f.item_bias
    allowed = np.ones(len(scores), bool) if among is None else np.isin(np.arange(len(scores)), among)
    allowed[seen] = False
    ranked = np.lexsort((np.arange(len(scores)), -scores))
    return [int(item) for item in ranked if allowed[item]][:n]


def all_lists(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    blocks = list(best_for_users(*args, **kwargs))
    assert [block.first for block in blocks] == sorted(block.first for block in blocks)
    return np.concatenate([block.items for block in blocks]), np.concatenate([block.scores for block in blocks])


@pytest.mark.parametrize("spread", [0.0, 1.5])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_lists_of_all_users_are_those_of_sorting(spread: float, threads: int) -> None:
    factors, seen = some_factors(600, 5_000, spread=spread), some_seen(600, 5_000)
    lists, scores = all_lists(factors, seen, 10, threads=threads)
    for user in range(0, 600, 7):
        assert lists[user].tolist() == by_sorting(factors, user, 10, seen.of_user(user))
    exact = (
        factors.mean + factors.user_bias[5] + factors.item_bias[lists[5]] + factors.items[lists[5]] @ factors.users[5]
    )
    assert scores[5] == pytest.approx(exact, abs=1e-4)


def test_nothing_seen_is_recommended_even_if_it_is_best() -> None:
    factors = some_factors(50, 3_000)
    best, _ = all_lists(factors, Seen.nothing(50), 40)
    seen = Seen.of(np.repeat(np.arange(50, dtype=np.int32), 40), best.ravel(), 50)
    lists, _ = all_lists(factors, seen, 10)
    assert not any(np.isin(lists[user], best[user]).any() for user in range(50))


def test_some_users_in_any_order_and_some_items() -> None:
    factors, seen = some_factors(300, 2_000), some_seen(300, 2_000)
    among = np.arange(0, 2_000, 3, dtype=np.int32)
    users = np.array([250, 3, 3, 299], np.int32)
    lists, _ = all_lists(factors, seen, 5, users=users, among=among)
    expected = [by_sorting(factors, int(user), 5, seen.of_user(int(user)), among) for user in users]
    assert lists.tolist() == expected


def test_equal_scores_rank_by_index() -> None:
    factors = Factors.of(np.ones((3, 4), np.float32), np.ones((9_000, 4), np.float32))
    lists, _ = all_lists(factors, Seen.nothing(3), 6)
    assert lists.tolist() == [[0, 1, 2, 3, 4, 5]] * 3
    index = ItemIndex(factors.items, factors.item_bias)
    assert index.best(factors.users[0], 6, np.array([1, 3], np.int32))[0].tolist() == [0, 2, 4, 5, 6, 7]


def test_where_items_run_out_there_is_nobody() -> None:
    factors, seen = some_factors(2, 4), Seen.of(np.array([0, 0], np.int32), np.array([1, 2], np.int32), 2)
    lists, scores = all_lists(factors, seen, 3)
    assert (lists[0] == EMPTY).tolist() == [False, False, True]
    assert scores[0, 2] == -np.inf
    assert EMPTY not in lists[1]


def test_tiles_of_any_size_give_the_same_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    factors, seen = some_factors(200, 3_001), some_seen(200, 3_001)
    usual, _ = all_lists(factors, seen, 10)
    monkeypatch.setattr(top, "USERS_AT_ONCE", 37)
    monkeypatch.setattr(top, "ITEMS_AT_ONCE", 111)
    lists, _ = all_lists(factors, seen, 10, threads=2)
    assert np.array_equal(lists, usual)


def test_a_caller_who_stops_early_leaves_no_threads_behind() -> None:
    factors = some_factors(2_000, 500)
    blocks = best_for_users(factors, Seen.nothing(2_000), 3, threads=2)
    assert next(blocks).first == 0
    blocks.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("k", [1, 2, 7, 16, 100])
@pytest.mark.parametrize("spread", [0.0, 1.5])
def test_the_index_finds_what_sorting_finds(k: int, spread: float) -> None:
    factors, seen = some_factors(40, 7_001, k, spread=spread), some_seen(40, 7_001)
    index = ItemIndex(factors.items, factors.item_bias, threads=2)
    for user in range(40):
        items, scores = index.best(factors.users[user], 10, seen.of_user(user))
        assert items.tolist() == by_sorting(factors, user, 10, seen.of_user(user))
        assert np.all(np.diff(scores) <= 0)


def test_the_index_by_several_threads_finds_the_same() -> None:
    factors = some_factors(5, 70_000, 8)
    one, many = (ItemIndex(factors.items, factors.item_bias, threads=threads) for threads in (1, 3))
    for user in range(5):
        (items, scores), (same_items, same_scores) = (
            index.best(factors.users[user], 20, NONE) for index in (one, many)
        )
        assert np.array_equal(items, same_items) and np.array_equal(scores, same_scores)


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e6])
def test_the_index_serves_vectors_of_any_length(scale: float) -> None:
    factors = some_factors(3, 1_000)
    items = factors.items * np.float32(scale)
    index = ItemIndex(items, np.zeros(1_000, np.float32))
    for user in factors.users:
        exact = items.astype(np.float64) @ user.astype(np.float64)
        assert index.best(user, 5, NONE)[0].tolist() == np.argsort(-exact)[:5].tolist()


@pytest.mark.parametrize("k", [500, 1_000])
def test_sums_of_many_factors_that_all_agree_do_not_overflow(k: int) -> None:
    random = np.random.default_rng(0)
    user = np.where(random.random(k) < 0.5, -1, 1).astype(np.float32) * np.float32(0.731)
    items = user * random.uniform(0.99, 1, (300, 1)).astype(np.float32)
    index = ItemIndex(items, np.zeros(300, np.float32))
    exact = items.astype(np.float64) @ user.astype(np.float64)
    assert index.best(user, 5, NONE)[0].tolist() == np.argsort(-exact)[:5].tolist()


def test_items_and_users_of_zeros_rank_by_bias() -> None:
    bias = np.array([0, 3, 1, 2], np.float32)
    index = ItemIndex(np.zeros((4, 5), np.float32), bias)
    assert index.best(np.zeros(5, np.float32), 10, NONE)[0].tolist() == [1, 3, 2, 0]


def test_the_index_of_some_items_knows_no_others() -> None:
    factors = some_factors(1, 500)
    among = np.array([400, 7, 90], np.int32)
    index = ItemIndex(factors.items, factors.item_bias, encode_items(factors.items, among))
    assert index.best(factors.users[0], 10, NONE)[0].tolist() == by_sorting(factors, 0, 10, NONE, among)


def test_no_items_asked_for_is_an_error() -> None:
    factors = some_factors(1, 5)
    with pytest.raises(ConfigError, match="0 items"):
        next(best_for_users(factors, Seen.nothing(1), 0))


def test_best_of_leaves_out_what_is_minus_infinity() -> None:
    assert best_of(np.array([1.0, -np.inf, 3.0, 1.0]), 9).tolist() == [2, 0, 3]
    assert best_of(np.array([1.0, 1.0, 1.0]), 2).tolist() == [0, 1]
    assert best_of(np.zeros(0), 2).tolist() == []
