"""Alternating least squares for implicit feedback."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dray.errors import DataError
from dray.learners.factorization import implicit
from dray.learners.factorization.implicit import ImplicitSettings, Rows
from dray.learners.factorization.pool import Threads
from rating_data import made_events, ratings_of, shuffled
from serial_factorization import transposed

SETTINGS = ImplicitSettings(factors=9, solver="cholesky", alpha=3.0, regularization=0.05, frequency_power=0.5)


def some_factors(rows: int, k: int = 9) -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(0, 0.3, (rows, k)).astype(np.float32)


def solved(rows: Rows, others: NDArray[np.float32], how: ImplicitSettings, threads: int = 1) -> NDArray[np.float32]:
    out = np.zeros((len(rows), others.shape[1]), np.float32)
    with Threads(threads) as pool:
        implicit.solve_rows(rows, others, implicit.gram(others, pool), how, out, pool)
    return out


def by_hand(rows: Rows, others: NDArray[np.float32], how: ImplicitSettings) -> NDArray[np.float64]:
    """Every pair of the row, seen or not, as one weighted least squares problem."""
    y = others.astype(np.float64)
    out = np.zeros((len(rows), y.shape[1]))
    for row in range(len(rows)):
        confidence, preference = np.ones(len(y)), np.zeros(len(y))
        entries = slice(rows.starts[row], rows.starts[row + 1])
        for column, weight in zip(rows.columns[entries], rows.weights[entries], strict=True):
            confidence[column] = 1 + how.alpha * abs(weight)
            preference[column] = weight > 0
        shift = how.regularization * confidence.sum() ** how.frequency_power
        out[row] = np.linalg.solve((y.T * confidence) @ y + shift * np.eye(y.shape[1]), (y.T * confidence) @ preference)
    return out


def rows_of_events(negative: bool = False) -> Rows:
    events = made_events()
    values = events.values.copy()
    if negative:
        values[::5] = -2
        values[1::11] = 0
    return implicit.rows_by_user([replace(events, values=values).triples], 0, events.n_users)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_a_row_is_the_least_squares_solution_over_all_pairs(negative: bool, power: float) -> None:
    rows, others = rows_of_events(negative), some_factors(50)
    how = replace(SETTINGS, frequency_power=power)
    np.testing.assert_allclose(solved(rows, others, how), by_hand(rows, others, how), atol=2e-4)


def test_enough_steps_of_the_conjugate_gradient_find_the_same_solution() -> None:
    rows, others = rows_of_events(negative=True), some_factors(50)
    steps = replace(SETTINGS, solver="gradient", gradient_steps=30)
    np.testing.assert_allclose(solved(rows, others, steps), by_hand(rows, others, steps), atol=2e-4)


@pytest.mark.parametrize("solver", ["gradient", "cholesky"])
@pytest.mark.parametrize("threads", [2, 4])
def test_any_number_of_threads_gives_the_same_bits(solver: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit, "_ENTRIES_PER_CALL", 60)
    rows, others = rows_of_events(), some_factors(50)
    how = replace(SETTINGS, solver=solver)
    assert solved(rows, others, how, threads).tobytes() == solved(rows, others, how).tobytes()


@pytest.mark.parametrize("solver", ["gradient", "cholesky"])
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_that_solve_some_parts_each_give_the_same_bits(solver: str, workers: int) -> None:
    events, others, how = made_events(), some_factors(50), replace(SETTINGS, solver=solver)
    whole = solved(implicit.rows_by_user([events.triples], 0, events.n_users), others, how)
    parts = implicit.parts_of(events.n_users)
    arrived = [shuffled(events).triples]
    for worker in range(workers):
        for first, last in parts[worker::workers]:
            part = implicit.rows_by_user(arrived, first, last)
            assert solved(part, others, how).tobytes() == whole[first:last].tobytes()


def test_the_gram_matrix_does_not_depend_on_who_sums_it() -> None:
    factors = some_factors(3001, 21)
    with Threads(1) as one, Threads(4) as four:
        alone = implicit.gram(factors, one)
        assert alone.tobytes() == implicit.gram(factors, four).tobytes()
    parts = implicit.parts_of(len(factors))
    theirs = {at: implicit.gram_of_part(factors[slice(*parts[at])].copy()) for at in reversed(range(len(parts)))}
    assert alone.tobytes() == implicit.gram_of_parts([theirs[at] for at in range(len(parts))]).tobytes()
    np.testing.assert_allclose(alone, factors.astype(np.float64).T @ factors.astype(np.float64), rtol=1e-4, atol=1e-2)


@given(st.integers(0, 1000))
def test_parts_hold_every_row_once(n_rows: int) -> None:
    assert [row for first, last in implicit.parts_of(n_rows) for row in range(first, last)] == list(range(n_rows))


@given(st.lists(st.integers(0, 300_000), max_size=60))
def test_spans_hold_every_row_once(sizes: list[int]) -> None:
    starts = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]).astype(np.int64)
    assert [row for first, last in implicit.spans(starts) for row in range(first, last)] == list(range(len(sizes)))


@settings(max_examples=30, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1), st.randoms())
def test_entries_by_item_are_those_by_user(pairs: set[tuple[int, int]], random: object) -> None:
    mixed = sorted(pairs, key=lambda _: random.random())  # type: ignore[attr-defined]
    weights = [user * 100 + item for user, item in mixed]
    events = ratings_of([user for user, _ in mixed], [item for _, item in mixed], weights, 13, 10)
    by_user = implicit.rows_by_user([events.triples], 0, 13)
    by_item = transposed(by_user, 10)
    for rows, count, key in ((by_user, 13, 0), (by_item, 10, 1)):
        expected = sorted(pairs, key=lambda pair: (pair[key], pair[1 - key]))
        owners = np.repeat(np.arange(count), np.diff(rows.starts))
        assert list(zip(owners, rows.columns, strict=True)) == [(pair[key], pair[1 - key]) for pair in expected]
        assert rows.weights.tolist() == [user * 100 + item for user, item in expected]


def test_a_row_without_entries_becomes_zero() -> None:
    events = ratings_of([0, 2], [1, 0], [1, 1], 3, 50)
    rows = implicit.rows_by_user([events.triples], 0, 3)
    for solver in ("gradient", "cholesky"):
        out = solved(rows, some_factors(50), replace(SETTINGS, solver=solver))
        assert not out[1].any() and out[0].any() and out[2].any()


def test_a_pair_that_occurs_twice_is_refused() -> None:
    events = ratings_of([0, 1, 0], [1, 0, 1], [1, 1, 2], 2, 2)
    with pytest.raises(DataError, match=r"1 of 3 entries repeat .* Sum up"):
        implicit.rows_by_user([events.triples], 0, 2)


def test_a_system_without_a_solution_is_told() -> None:
    others = np.zeros((50, 9), np.float32)
    with pytest.raises(DataError, match=r"row 0 cannot be solved .* Raise the regularization"):
        solved(rows_of_events(), others, replace(SETTINGS, regularization=0.0))
