"""Metrics: against their definitions, one user at a time."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np
import pytest

from dray.errors import ConfigError, DataError
from dray.learners.factorization.evaluate import AtK
from dray.learners.factorization.factors import Factors, Seen
from whole_evaluation import ranking_quality, rating_errors

USERS, ITEMS = 300, 400


def some_factors(seed: int = 0) -> Factors:
    random = np.random.default_rng(seed)
    return Factors.of(
        random.standard_normal((USERS, 6), dtype=np.float32),
        random.standard_normal((ITEMS, 6), dtype=np.float32),
        random.standard_normal(USERS, dtype=np.float32),
        random.standard_normal(ITEMS, dtype=np.float32),
        3.0,
    )


def some_pairs(count: int, seed: int, users: int = USERS, items: int = ITEMS) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.integers(0, users, count).astype(np.int32), random.integers(0, items, count).astype(np.int32)


def by_definition(f: Factors, train: set[tuple[int, int]], test: set[tuple[int, int]], k: int) -> AtK:
    counts = np.zeros(ITEMS, int)
    for _, item in train:
        counts[item] += 1
    trained_users = {user for user, _ in train}
    recalls, ndcgs, precisions, shown = [], [], [], set()
    for user in range(USERS):
        relevant = {item for u, item in test if u == user and (user, item) not in train}
        if not relevant:
            continue
        scores = counts.astype(float)
        if user in trained_users:
            scores = f.items.astype(float) @ f.users[user].astype(float) + f.item_bias
        ranked = [i for i in np.lexsort((np.arange(ITEMS), -scores)) if counts[i] and (user, i) not in train][:k]
        shown |= set(ranked)
        hits = [item in relevant for item in ranked]
        recalls.append(sum(hits) / len(relevant))
        best = sum(1 / log2(rank + 2) for rank in range(min(k, len(relevant))))
        ndcgs.append(sum(hit / log2(rank + 2) for rank, hit in enumerate(hits)) / best)
        precisions.append(
            sum(sum(hits[: r + 1]) / (r + 1) for r, hit in enumerate(hits) if hit) / min(k, len(relevant))
        )
    return AtK(k, float(np.mean(recalls)), float(np.mean(ndcgs)), float(np.mean(precisions)), len(shown) / ITEMS)


@pytest.mark.parametrize("threads", [1, 3])
def test_rankings_match_their_definitions(threads: int) -> None:
    factors = some_factors()
    # users from 250 on have no training event, items from 350 on nobody had, and some users have no test item
    train_users, train_items = some_pairs(4_000, 1, users=250, items=350)
    test_users, test_items = some_pairs(700, 2)
    seen = Seen.of(train_users, train_items, USERS)
    quality = ranking_quality(factors, seen, test_users, test_items, ks=(1, 10, 50), threads=threads)
    train = set(zip(train_users.tolist(), train_items.tolist(), strict=True))
    test = set(zip(test_users.tolist(), test_items.tolist(), strict=True))
    for at in quality.at:
        expected = by_definition(factors, train, test, at.k)
        for name in ("recall", "ndcg", "map", "coverage"):
            assert getattr(at, name) == pytest.approx(getattr(expected, name), abs=1e-12), name
    valid = test - train
    assert quality.pairs == len(valid)
    assert quality.pairs_seen_in_training == len(test & train) > 0
    assert quality.pairs_of_unseen_items == sum(item >= 350 for _, item in valid) > 0
    assert quality.users == len({user for user, _ in valid})
    assert quality.users_without_test == USERS - quality.users > 0
    trained = {user for user, _ in train}
    assert quality.users_without_training == len({user for user, _ in valid if user not in trained}) > 0
    assert quality.to_json()["at"][1]["k"] == 10


def test_a_perfect_ranking_scores_one() -> None:
    f = Factors.of(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32))
    everyone = np.arange(4, dtype=np.int32)
    seen = Seen.of(everyone, np.roll(everyone, 1), 4)
    (at,) = ranking_quality(f, seen, everyone, everyone, ks=(2,)).at
    assert (at.recall, at.ndcg, at.map, at.coverage) == (1, 1, 1, 1)


def test_there_must_be_something_to_evaluate_on() -> None:
    pairs = some_pairs(100, 3)
    with pytest.raises(DataError, match="No pair is left"):
        ranking_quality(some_factors(), Seen.of(*pairs, USERS), *pairs)
    with pytest.raises(ConfigError):
        ranking_quality(some_factors(), Seen.of(*pairs, USERS), *pairs, ks=(0,))
    with pytest.raises(DataError, match="no ratings"):
        rating_errors(some_factors(), pairs[0][:0], pairs[1][:0], np.zeros(0, np.float32))


@pytest.mark.parametrize("limits", [None, (1.0, 5.0)])
def test_errors_of_ratings_match_their_definition(limits: tuple[float, float] | None) -> None:
    f = some_factors()
    users, items = some_pairs(600_000, 4)
    users[::10], items[::7] = -1, -1
    ratings = np.random.default_rng(5).integers(1, 6, len(users)).astype(np.float32)
    scores = np.full(len(users), 3.0)
    scores += np.where(users >= 0, f.user_bias[users], 0) + np.where(items >= 0, f.item_bias[items], 0)
    scores += np.where((users >= 0) & (items >= 0), np.einsum("ij,ij->i", f.users[users], f.items[items]), 0)
    errors = (np.clip(scores, *limits) if limits else scores) - ratings
    found = rating_errors(f, users, items, ratings, limits, threads=1)
    assert found.rmse == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-6)
    assert found.mae == pytest.approx(np.abs(errors).mean(), rel=1e-6)
    assert rating_errors(f, users, items, ratings, limits, threads=3) == found
