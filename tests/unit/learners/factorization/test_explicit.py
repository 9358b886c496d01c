"""Gradient descent on blocks: the same bits however it is divided."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from dray.learners.factorization import explicit
from dray.learners.factorization.explicit import ExplicitSettings, FactorBlock, Scale, Step, Task
from dray.learners.factorization.factors import Factors
from dray.learners.factorization.grid import Block, Layout, Shape, build_blocks, strata, stratum
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Ratings
from rating_data import made_ratings
from serial_factorization import disassemble, fit_explicit, layout_of

SETTINGS = ExplicitSettings(factors=13, epochs=3, seed=5)
SHAPE = Shape(4, 3)


def train_block(users: FactorBlock, items: FactorBlock, block: Block, step: Step, threads: Threads) -> float:
    return explicit.train_stratum([Task(users, items, block)], step, threads)[0]


def same_bits(left: Factors, right: Factors) -> bool:
    names = ("users", "items", "user_bias", "item_bias")
    return left.mean == right.mean and all(
        getattr(left, name).tobytes() == getattr(right, name).tobytes() for name in names
    )


def replay(ratings: Ratings) -> Factors:
    """Block after block and cell after cell, in the order that the grid gives, each by itself."""
    layout = layout_of(ratings, SETTINGS.seed, SHAPE)
    rows = build_blocks(layout, [ratings.triples]).rows
    scale = explicit.scale_of(explicit.moments(block) for line in rows.values() for block in line)
    users, items = first(layout, scale)
    with Threads(1) as alone:
        for epoch in range(1, SETTINGS.epochs + 1):
            for step in strata(SHAPE.blocks, SETTINGS.seed, epoch):
                for user, item in stratum(SHAPE.blocks, step):
                    train_block(users[user], items[item], rows[user][item], Step.of(SETTINGS, scale), alone)
    return explicit.assemble(layout, users, items, scale)


def first(layout: Layout, scale: Scale) -> tuple[dict[int, FactorBlock], dict[int, FactorBlock]]:
    blocks = range(layout.shape.blocks)
    return (
        {block: explicit.first_block("users", layout, block, SETTINGS, scale) for block in blocks},
        {block: explicit.first_block("items", layout, block, SETTINGS, scale) for block in blocks},
    )


class Rotating:
    """A worker of its own: the ratings and factors of its users; factors of items come and go as copies."""

    def __init__(self, ratings: Ratings, layout: Layout, own: list[int], threads: int) -> None:
        self.layout, self.own, self.threads = layout, own, threads
        self.rows = build_blocks(layout, [ratings.triples], own).rows

    def begin(self, scale: Scale) -> None:
        self.scale = scale
        self.users = {block: explicit.first_block("users", self.layout, block, SETTINGS, scale) for block in self.own}

    def step(self, items: dict[int, FactorBlock]) -> dict[int, FactorBlock]:
        came = {item: block.copy() for item, block in items.items()}
        tasks = [
            Task(self.users[user], came[item], self.rows[user][item])
            for user, item in zip(self.own, items, strict=True)
        ]
        with Threads(self.threads) as threads:
            explicit.train_stratum(tasks, Step.of(SETTINGS, self.scale), threads)
        return came


def rotate(ratings: Ratings, workers: int, threads: int) -> Factors:
    layout = layout_of(ratings, SETTINGS.seed, SHAPE)
    blocks = range(SHAPE.blocks)
    crew = [
        Rotating(ratings, layout, [block for block in blocks if block % workers == worker], threads)
        for worker in range(workers)
    ]
    crew.reverse()  # who comes first must not matter
    scale = explicit.scale_of(explicit.moments(block) for one in crew for line in one.rows.values() for block in line)
    _, items = first(layout, scale)
    for one in crew:
        one.begin(scale)
    for epoch in range(1, SETTINGS.epochs + 1):
        for step in strata(SHAPE.blocks, SETTINGS.seed, epoch):
            pairs = dict(stratum(SHAPE.blocks, step))
            for one in crew:
                items.update(one.step({pairs[user]: items[pairs[user]] for user in one.own}))
    users = {block: held for one in crew for block, held in one.users.items()}
    return explicit.assemble(layout, users, items, scale)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads_gives_the_bits_of_a_serial_replay(threads: int) -> None:
    ratings = made_ratings()
    fit = fit_explicit(ratings, SETTINGS, threads=threads, shape=SHAPE)
    assert same_bits(fit.factors, replay(ratings))


@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (1, 4), (2, 1), (2, 2), (4, 1), (4, 4)])
def test_any_number_of_workers_gives_the_bits_of_a_serial_replay(workers: int, threads: int) -> None:
    ratings = made_ratings()
    assert same_bits(rotate(ratings, workers, threads), replay(ratings))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_that_share_one_block_give_the_bits_of_one(threads: int) -> None:
    ratings = made_ratings()
    layout = layout_of(ratings, 0, Shape(1, 5))
    block = build_blocks(layout, [ratings.triples]).rows[0][0]
    scale = explicit.scale_of([explicit.moments(block)])
    results = []
    for count in (1, threads):
        users, items = first(layout, scale)
        with Threads(count) as pool:
            squares = train_block(users[0], items[0], block, Step.of(SETTINGS, scale), pool)
        results.append((squares, users[0].factors.tobytes(), items[0].factors.tobytes(), users[0].bias.tobytes()))
    assert results[0] == results[1]


def by_hand(users: FactorBlock, items: FactorBlock, block: Block, step: Step) -> tuple[FactorBlock, FactorBlock, float]:
    """The textbook's update in float64, rating by rating."""
    p, q = users.factors.astype(np.float64), items.factors.astype(np.float64)
    bu, bi = users.bias.astype(np.float64), items.bias.astype(np.float64)
    rate, reg, squares = step.learning_rate, step.regularization, 0.0
    for u, i, value in zip(block.users, block.items, block.values, strict=True):
        error = value - (step.mean + bu[u] + bi[i] + p[u] @ q[i])
        squares += error * error
        bu[u] += rate * (error - reg * bu[u])
        bi[i] += rate * (error - reg * bi[i])
        p[u], q[i] = (
            p[u] + rate * (error / step.unit * q[i] - reg * p[u]),
            q[i] + rate * (error / step.unit * p[u] - reg * q[i]),
        )
    return FactorBlock(p.astype(np.float32), bu.astype(np.float32)), FactorBlock(q, bi), squares


def test_a_block_is_trained_as_the_textbook_says() -> None:
    ratings = made_ratings()
    layout = layout_of(ratings, 0, Shape(1, 1))
    block = build_blocks(layout, [ratings.triples]).rows[0][0]
    scale = explicit.scale_of([explicit.moments(block)])
    users, items = first(layout, scale)
    step = Step.of(SETTINGS, scale, learning_rate=0.02)
    expected_users, expected_items, expected_squares = by_hand(users[0], items[0], block, step)
    with Threads(1) as alone:
        squares = train_block(users[0], items[0], block, step, alone)
    assert squares == pytest.approx(expected_squares, rel=1e-4)
    np.testing.assert_allclose(users[0].factors, expected_users.factors, atol=1e-4)
    np.testing.assert_allclose(items[0].factors, expected_items.factors, atol=1e-4)
    np.testing.assert_allclose(users[0].bias, expected_users.bias, atol=1e-4)
    np.testing.assert_allclose(items[0].bias, expected_items.bias, atol=1e-4)


def test_points_from_0_to_100_are_learnt_as_stars_are() -> None:
    stars = fit_explicit(made_ratings(), SETTINGS)
    points = fit_explicit(made_ratings(scale=25.0), SETTINGS)
    assert points.epochs[-1].train_rmse == pytest.approx(25 * stars.epochs[-1].train_rmse, rel=1e-3)


def test_the_scale_is_that_of_the_ratings_whatever_the_order_of_blocks() -> None:
    ratings = made_ratings()
    rows = build_blocks(layout_of(ratings, 0, SHAPE), [ratings.triples]).rows
    parts = [explicit.moments(block) for line in rows.values() for block in line]
    scale = explicit.scale_of(parts)
    assert scale == explicit.scale_of(reversed(parts))
    assert scale.mean == pytest.approx(ratings.values.mean(), rel=1e-6)
    assert scale.spread == pytest.approx(ratings.values.std(), rel=1e-5)
    assert (scale.low, scale.high) == (ratings.values.min(), ratings.values.max())


def test_equal_ratings_have_no_spread_and_can_be_trained_on() -> None:
    ratings = made_ratings()
    equal = replace(ratings, values=np.full(len(ratings), 4.1, np.float32))
    fit = fit_explicit(equal, SETTINGS)
    assert fit.scale is not None and fit.scale.spread == 0
    assert fit.epochs[-1].train_rmse < 0.1 * sqrt(SETTINGS.factors)


def test_what_nobody_rated_has_no_factors() -> None:
    ratings = made_ratings(n_users=90)
    rated = ratings.users != 17
    kept = replace(ratings, users=ratings.users[rated], items=ratings.items[rated], values=ratings.values[rated])
    factors = fit_explicit(kept, SETTINGS).factors
    assert not factors.users[17].any() and factors.user_bias[17] == 0
    assert factors.users[16].any()


def test_factors_go_back_into_the_blocks_they_came_from() -> None:
    ratings = made_ratings()
    layout = layout_of(ratings, 0, SHAPE)
    users, items = first(layout, Scale(3.5, 1.0, 1, 1, 5))
    whole = explicit.assemble(layout, users, items, Scale(3.5, 1.0, 1, 1, 5))
    for number, block in items.items():
        back = disassemble(layout, "items", number, whole.items, whole.item_bias)
        assert np.array_equal(back.factors, block.factors) and np.array_equal(back.bias, block.bias)


def test_other_threads_run_while_a_block_is_trained_on() -> None:
    ratings = made_ratings(300_000)
    layout = layout_of(ratings, 0, Shape(1, 1))
    block = build_blocks(layout, [ratings.triples]).rows[0][0]
    scale = explicit.scale_of([explicit.moments(block)])
    wide = replace(SETTINGS, factors=2000)  # one call of a quarter of a second
    users, items = (explicit.first_block(side, layout, 0, wide, scale) for side in ("users", "items"))
    with Threads(1) as alone:
        task = (users, items, block, Step.of(wide, scale), alone)
        train_block(*task)  # compiles: that gives way anyhow
        training = threading.Thread(target=train_block, args=task)
        training.start()
        turns = 0
        while training.is_alive():
            time.sleep(0.001)
            turns += 1
    assert turns > 10  # a call that kept the lock would leave one or two
