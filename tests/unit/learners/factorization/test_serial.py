"""Training in this process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dray.errors import DataError
from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.factors import Factors
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.ratings import Ratings
from rating_data import made_events, made_ratings, ratings_of, shuffled
from serial_factorization import Epoch, Evaluation, fit_explicit, fit_implicit

SETTINGS = ExplicitSettings(factors=8, epochs=4)


def rmse(factors: Factors, ratings: Ratings) -> float:
    scores = factors.mean + factors.user_bias[ratings.users] + factors.item_bias[ratings.items]
    scores = scores + (factors.users[ratings.users] * factors.items[ratings.items]).sum(axis=1)
    return float(np.sqrt(np.mean((scores - ratings.values) ** 2)))


def parts(ratings: Ratings, share: float = 0.9) -> tuple[Ratings, Ratings]:
    cut = int(share * len(ratings))
    first, last = (
        replace(ratings, users=ratings.users[at], items=ratings.items[at], values=ratings.values[at])
        for at in (slice(cut), slice(cut, None))
    )
    return first, last


def same_bits(left: Factors, right: Factors) -> bool:
    return left.users.tobytes() == right.users.tobytes() and left.items.tobytes() == right.items.tobytes()


def test_known_factors_are_found() -> None:
    train, test = parts(made_ratings(20_000, 200, 120))
    fit = fit_explicit(train, ExplicitSettings(factors=8, epochs=60, learning_rate=0.02), threads=2)
    biases_only = replace(fit.factors, users=np.zeros_like(fit.factors.users))
    assert rmse(fit.factors, test) < 0.25 < 0.7 < rmse(biases_only, test)


def test_the_order_of_the_ratings_does_not_matter() -> None:
    ratings = made_ratings()
    assert same_bits(fit_explicit(ratings, SETTINGS).factors, fit_explicit(shuffled(ratings), SETTINGS).factors)


def test_another_seed_gives_another_model() -> None:
    ratings = made_ratings()
    other = fit_explicit(ratings, replace(SETTINGS, seed=1))
    assert not same_bits(fit_explicit(ratings, SETTINGS).factors, other.factors)


def test_a_divergence_halves_the_step_and_goes_back() -> None:
    ratings = made_ratings()
    told: list[Epoch] = []
    fit = fit_explicit(ratings, replace(SETTINGS, learning_rate=4.0), on_epoch=told.append)
    assert fit.halvings == told[-1].halvings > 0
    assert [epoch.number for epoch in told] == [1, 2, 3, 4]
    assert told[-1].learning_rate == 4.0 / 2**fit.halvings
    assert np.isfinite(fit.factors.users).all() and np.isfinite(told[-1].train_rmse)


def test_after_a_divergence_training_goes_on_as_if_it_had_not_been() -> None:
    ratings, settings = made_ratings(), replace(SETTINGS, learning_rate=64.0, epochs=1)
    fit = fit_explicit(ratings, settings)
    smaller = fit_explicit(ratings, replace(settings, learning_rate=64.0 / 2**fit.halvings))
    assert fit.halvings > 0 and smaller.halvings == 0
    assert same_bits(fit.factors, smaller.factors)


def test_what_diverges_with_any_step_is_an_error() -> None:
    with pytest.raises(DataError, match=r"diverges even with a learning rate of .* far from all others"):
        fit_explicit(made_ratings(), replace(SETTINGS, learning_rate=1e30))


def test_training_stops_when_the_score_no_longer_gets_better() -> None:
    scores = iter([0.9, 0.8, 0.85, 0.81, 0.7, 0.6])
    seen: list[Factors] = []

    def measure(factors: Factors) -> float:
        seen.append(factors)
        return next(scores)

    fit = fit_explicit(made_ratings(), replace(SETTINGS, epochs=6), evaluation=Evaluation(measure=measure, patience=2))
    assert [epoch.score for epoch in fit.epochs] == [0.9, 0.8, 0.85, 0.81]
    assert fit.best_epoch == 2 and fit.factors is seen[1]
    assert same_bits(fit.factors, fit_explicit(made_ratings(), replace(SETTINGS, epochs=2)).factors)


def test_higher_scores_can_be_better() -> None:
    scores = iter([0.1, 0.3, 0.2])
    evaluation = Evaluation(measure=lambda _: next(scores), lower_is_better=False, patience=1)
    assert fit_implicit(made_events(), evaluation=evaluation).best_epoch == 2


def test_training_goes_on_from_a_model() -> None:
    ratings = made_ratings()
    before = fit_explicit(ratings, SETTINGS)
    after = fit_explicit(ratings, replace(SETTINGS, epochs=1), start=before.factors)
    assert after.epochs[0].train_rmse < before.epochs[-1].train_rmse


def test_training_without_an_epoch_gives_back_what_it_started_from() -> None:
    ratings = made_ratings()
    before = fit_explicit(ratings, SETTINGS).factors
    after = fit_explicit(ratings, replace(SETTINGS, epochs=0), start=before).factors
    assert same_bits(before, after) and before.mean == after.mean


@pytest.mark.parametrize("solver", ["gradient", "cholesky"])
def test_items_of_a_users_kind_rank_first(solver: str) -> None:
    fit = fit_implicit(made_events(), ImplicitSettings(factors=4, solver=solver), threads=2)
    scores = fit.factors.users @ fit.factors.items.T
    even = scores[:, ::2].mean(axis=1) > scores[:, 1::2].mean(axis=1)
    assert np.array_equal(even, np.arange(len(scores)) % 2 == 0)


def test_implicit_training_is_the_same_for_any_threads_and_any_order() -> None:
    events, settings = made_events(), ImplicitSettings(factors=6, iterations=3)
    alone = fit_implicit(events, settings).factors
    assert same_bits(alone, fit_implicit(shuffled(events), settings, threads=3).factors)


@pytest.mark.parametrize(
    ("ratings", "what"),
    [
        (ratings_of([0, 1], [0, 1], [1, float("nan")], 2, 2), "Rating 1 is nan, which is not a finite number"),
        (ratings_of([0, 1], [0, 1], [float("-inf"), 1], 2, 2), "Rating 0 is -inf, which is not a finite number"),
        (ratings_of([0, 0], [0, 1], [1, 2], 1, 2), "one user only"),
        (ratings_of([0, 1], [0, 0], [1, 2], 2, 1), "one item only"),
        (ratings_of([0, 2], [0, 1], [1, 2], 2, 2), r"A user index is 2, but there are 2 users"),
        (ratings_of([0, 1], [0, -1], [1, 2], 2, 2), r"An? item index is -1"),
        (ratings_of([], [], [], 2, 2), "no rating to train on"),
        (ratings_of([0], [0, 1], [1, 2], 2, 2), "differ in length"),
    ],
)
def test_what_cannot_be_factorized_is_refused(ratings: Ratings, what: str) -> None:
    for fit in (fit_explicit, fit_implicit):
        with pytest.raises(DataError, match=what):
            fit(ratings)


def test_ratings_of_a_pair_that_has_one_already_are_counted() -> None:
    ratings = ratings_of([0, 1, 0, 0], [0, 1, 0, 1], [1, 2, 3, 4], 2, 2)
    assert fit_explicit(ratings, SETTINGS).duplicates == 1
