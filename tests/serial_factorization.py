"""Train in this process: the reference that training on many workers must equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum, inf, isfinite, sqrt
from time import perf_counter

import numpy as np

from dray.learners.factorization import explicit, implicit
from dray.learners.factorization.explicit import (
    MOST_HALVINGS,
    ExplicitSettings,
    FactorBlock,
    Scale,
    Step,
    Task,
    hopeless,
)
from dray.learners.factorization.factors import Factors, Floats
from dray.learners.factorization.grid import Blocks, Layout, Shape, build_blocks, lay_out, shape_for, strata, stratum
from dray.learners.factorization.implicit import ImplicitSettings, Rows
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Ratings, Triples, check


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the data, and how it went."""

    number: int
    """From 1."""
    seconds: float
    """Of training, without the evaluation."""
    train_rmse: float
    """Of the ratings while they were trained on; nan for implicit feedback, which has none."""
    score: float
    """What the evaluation gave; nan without one."""
    learning_rate: float
    halvings: int
    """How often the step was halved so far, because an epoch diverged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is measured after each epoch, and when that is reason enough to stop."""

    measure: Callable[[Factors], float]
    lower_is_better: bool = True
    patience: int = 0
    """Epochs without a better score after which training stops; 0: never."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What training gave."""

    factors: Factors
    """Of the best epoch if there was an evaluation, otherwise of the last."""
    epochs: tuple[Epoch, ...]
    best_epoch: int
    halvings: int
    duplicates: int
    """Ratings whose user and item had one before; each was trained on."""
    scale: Scale | None = None


OnEpoch = Callable[[Epoch], None]


def _no_news(_: Epoch) -> None:
    pass


class Best:
    """Keeps the best factors so far, and tells when to stop."""

    def __init__(self, evaluation: Evaluation | None) -> None:
        self._evaluation = evaluation
        self._score = inf
        self.epoch = 0
        self.factors: Factors | None = None

    def offer(self, epoch: int, factors: Callable[[], Factors]) -> tuple[float, bool]:
        """Return the epoch's score, and whether to stop. `factors` are made only if they are evaluated."""
        evaluation = self._evaluation
        if evaluation is None:
            return float("nan"), False
        offered = factors()
        score = float(evaluation.measure(offered))
        cost = score if evaluation.lower_is_better else -score
        if self.factors is None or cost < self._score:
            self._score, self.epoch, self.factors = cost, epoch, offered
        return score, 0 < evaluation.patience <= epoch - self.epoch


def fit_explicit(
    ratings: Ratings,
    settings: ExplicitSettings | None = None,
    *,
    threads: int = 1,
    evaluation: Evaluation | None = None,
    on_epoch: OnEpoch = _no_news,
    start: Factors | None = None,
    shape: Shape | None = None,
) -> Fit:
    """Train on explicit ratings. `start`: factors to go on from, of the same users and items."""
    settings = settings or ExplicitSettings()
    check(ratings.triples, ratings.n_users, ratings.n_items)
    layout = layout_of(ratings, settings.seed, shape)
    blocks = build_blocks(layout, [ratings.triples])
    return fit_blocks(layout, blocks, settings, threads=threads, evaluation=evaluation, on_epoch=on_epoch, start=start)


def layout_of(ratings: Ratings, seed: int, shape: Shape | None = None) -> Layout:
    """Return the layout that the ratings call for."""
    user_counts = np.bincount(ratings.users, minlength=ratings.n_users)
    item_counts = np.bincount(ratings.items, minlength=ratings.n_items)
    shape = shape or shape_for(len(ratings), ratings.n_users, ratings.n_items)
    return lay_out(user_counts, item_counts, shape, seed)


def fit_blocks(
    layout: Layout,
    blocks: Blocks,
    settings: ExplicitSettings,
    *,
    threads: int = 1,
    evaluation: Evaluation | None = None,
    on_epoch: OnEpoch = _no_news,
    start: Factors | None = None,
) -> Fit:
    """Train on blocks: 8 bytes a rating, and the factors twice, to go back to. The ratings may be gone by now."""
    count = layout.shape.blocks
    scale = explicit.scale_of(explicit.moments(block) for row in blocks.rows.values() for block in row)
    if start is not None:
        scale = replace(scale, mean=start.mean)  # the biases of `start` are those from its own mean
    users = {block: _begin("users", layout, block, settings, scale, start) for block in range(count)}
    items = {block: _begin("items", layout, block, settings, scale, start) for block in range(count)}
    good = _copy(users), _copy(items)
    best, epochs, halvings, number = Best(evaluation), list[Epoch](), 0, 1
    with Threads(threads) as pool:
        while number <= settings.epochs:
            rate = settings.learning_rate / 2**halvings
            began = perf_counter()
            squares = _epoch(layout, blocks, users, items, Step.of(settings, scale, rate), settings.seed, number, pool)
            seconds = perf_counter() - began
            if diverged(squares, [*users.values(), *items.values()]):
                halvings += 1
                if halvings > MOST_HALVINGS:
                    raise hopeless(settings, rate)
                _restore(users, good[0])
                _restore(items, good[1])
                continue
            _restore(good[0], users)
            _restore(good[1], items)
            score, stop = best.offer(number, lambda: explicit.assemble(layout, users, items, scale))
            rmse = sqrt(squares / scale.count)
            epochs.append(Epoch(number, seconds, rmse, score, rate, halvings))
            on_epoch(epochs[-1])
            number += 1
            if stop:
                break
    factors = best.factors or explicit.assemble(layout, users, items, scale)
    return Fit(factors, tuple(epochs), best.epoch or len(epochs), halvings, blocks.duplicates, scale)


def _begin(
    side: explicit.SideName,
    layout: Layout,
    block: int,
    settings: ExplicitSettings,
    scale: Scale,
    start: Factors | None,
) -> FactorBlock:
    if start is None:
        return explicit.first_block(side, layout, block, settings, scale)
    if side == "users":
        return disassemble(layout, side, block, start.users, start.user_bias)
    return disassemble(layout, side, block, start.items, start.item_bias)


def _epoch(
    layout: Layout,
    blocks: Blocks,
    users: Mapping[int, FactorBlock],
    items: Mapping[int, FactorBlock],
    step: Step,
    seed: int,
    number: int,
    pool: Threads,
) -> float:
    """Run all blocks once; return the sum of squared errors."""
    squares: list[float] = []
    for which in strata(layout.shape.blocks, seed, number):
        pairs = stratum(layout.shape.blocks, which)
        tasks = [Task(users[user], items[item], blocks.rows[user][item]) for user, item in pairs]
        squares += explicit.train_stratum(tasks, step, pool)
        if not all(map(isfinite, squares)):
            return inf  # the rest of the epoch would be wasted
    return fsum(squares)


def _copy(blocks: Mapping[int, FactorBlock]) -> dict[int, FactorBlock]:
    return {number: block.copy() for number, block in blocks.items()}


def _restore(to: Mapping[int, FactorBlock], source: Mapping[int, FactorBlock]) -> None:
    for number, block in source.items():
        to[number].factors[:] = block.factors
        to[number].bias[:] = block.bias


def fit_implicit(
    ratings: Ratings,
    settings: ImplicitSettings | None = None,
    *,
    threads: int = 1,
    evaluation: Evaluation | None = None,
    on_epoch: OnEpoch = _no_news,
    start: Factors | None = None,
) -> Fit:
    """Train on implicit feedback: the values are weights, each pair once. `start`: factors to go on from."""
    settings = settings or ImplicitSettings()
    check(ratings.triples, ratings.n_users, ratings.n_items)
    by_user = implicit.rows_by_user([ratings.triples], 0, ratings.n_users)
    by_item = transposed(by_user, ratings.n_items)
    return fit_rows(by_user, by_item, settings, threads=threads, evaluation=evaluation, on_epoch=on_epoch, start=start)


def transposed(rows: Rows, n_columns: int) -> Rows:
    """Return the same entries by column."""
    owners = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.starts))
    return implicit.rows_by_user([Triples(rows.columns, owners, rows.weights)], 0, n_columns)


def fit_rows(
    by_user: Rows,
    by_item: Rows,
    settings: ImplicitSettings,
    *,
    threads: int = 1,
    evaluation: Evaluation | None = None,
    on_epoch: OnEpoch = _no_news,
    start: Factors | None = None,
) -> Fit:
    """Train on entries by user and by item: 16 bytes an entry. The ratings may be gone by now."""
    users = _first_rows("users", len(by_user), settings) if start is None else start.users.copy()
    items = _first_rows("items", len(by_item), settings) if start is None else start.items.copy()
    best, epochs = Best(evaluation), list[Epoch]()
    with Threads(threads) as pool:
        for number in range(1, settings.iterations + 1):
            began = perf_counter()
            implicit.solve_rows(by_user, items, implicit.gram(items, pool), settings, users, pool)
            implicit.solve_rows(by_item, users, implicit.gram(users, pool), settings, items, pool)
            seconds = perf_counter() - began
            score, stop = best.offer(number, lambda: Factors.of(users.copy(), items.copy()))
            epochs.append(Epoch(number, seconds, float("nan"), score, float("nan"), 0))
            on_epoch(epochs[-1])
            if stop:
                break
    factors = best.factors or Factors.of(users, items)
    return Fit(factors, tuple(epochs), best.epoch or len(epochs), 0, 0)


def _first_rows(side: explicit.SideName, n_rows: int, settings: ImplicitSettings) -> Floats:
    parts = range(len(implicit.parts_of(n_rows)))
    return np.concatenate([first_factors(side, n_rows, part, settings) for part in parts])


def diverged(squared_error: float, blocks: Iterable[FactorBlock]) -> bool:
    """Whether training diverged: NaN or infinity after an epoch. The sum alone misses the last updates."""
    return not isfinite(squared_error) or not all(block.is_finite for block in blocks)


def disassemble(layout: Layout, side: explicit.SideName, block: int, factors: Floats, bias: Floats) -> FactorBlock:
    """Return a block of factors that are given by index: to go on from a model that was trained before."""
    own = explicit.side_of(layout, side)
    start, stop = own.span(block)
    rows = own.order[start:stop]
    return FactorBlock(np.ascontiguousarray(factors[rows]), np.ascontiguousarray(bias[rows]))


def first_factors(side: explicit.SideName, n_rows: int, part: int, settings: ImplicitSettings) -> Floats:
    """Return a part's factors before the first iteration: random numbers of its own, so that any worker can."""
    first, last = implicit.parts_of(n_rows)[part]
    return implicit.random_rows(side, part, last - first, settings)
