"""Ratings and events with known factors, small enough for a test."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dray.learners.factorization.ratings import Ratings


def made_ratings(
    count: int = 4000, n_users: int = 90, n_items: int = 60, *, noise: float = 0.1, seed: int = 0, scale: float = 1.0
) -> Ratings:
    """Return ratings around 3.5 that three factors and biases explain; few items have most of them."""
    random = np.random.default_rng(seed)
    likely = 1.0 / np.arange(1, n_items + 1)
    users = random.integers(0, n_users, count).astype(np.int32)
    items = random.choice(n_items, count, p=likely / likely.sum()).astype(np.int32)
    p, q = random.normal(0, 0.7, (n_users, 3)), random.normal(0, 0.7, (n_items, 3))
    truth = 3.5 + random.normal(0, 0.3, n_users)[users] + random.normal(0, 0.3, n_items)[items]
    truth += (p[users] * q[items]).sum(axis=1) + random.normal(0, noise, count)
    return ratings_of(users, items, truth * scale, n_users, n_items)


def made_events(n_users: int = 80, n_items: int = 50, *, seed: int = 0) -> Ratings:
    """Return events of two kinds of users, each with items of its own kind; a pair occurs once."""
    random = np.random.default_rng(seed)
    same = np.arange(n_users)[:, None] % 2 == np.arange(n_items)[None, :] % 2
    users, items = np.nonzero(random.random((n_users, n_items)) < np.where(same, 0.3, 0.01))
    mixed = random.permutation(len(users))
    return ratings_of(users[mixed], items[mixed], random.integers(1, 6, len(users)), n_users, n_items)


def ratings_of(users: object, items: object, values: object, n_users: int, n_items: int) -> Ratings:
    return Ratings(
        np.asarray(users, np.int32),
        np.asarray(items, np.int32),
        np.asarray(values, np.float32),
        pa.array([f"user {index}" for index in range(n_users)]),
        pa.array(range(n_items), pa.int64()),
    )


def shuffled(ratings: Ratings, seed: int = 1) -> Ratings:
    order = np.random.default_rng(seed).permutation(len(ratings))
    return Ratings(
        *(ratings.users[order], ratings.items[order], ratings.values[order]), ratings.user_ids, ratings.item_ids
    )
