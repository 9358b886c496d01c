"""New users and items without training again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dray.errors import DataError, ModelError
from dray.learners.factorization import fold_in, split
from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.factors import Factors, Seen
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.ratings import Ratings
from serial_factorization import fit_explicit, fit_implicit

USERS, ITEMS = 400, 300


def some_ratings(seed: int = 0) -> Ratings:
    random = np.random.default_rng(seed)
    p, q = random.standard_normal((USERS, 4)) * 0.5, random.standard_normal((ITEMS, 4))
    keys = random.choice(USERS * ITEMS, 20_000, replace=False)
    users, items = (keys // ITEMS).astype(np.int32), (keys % ITEMS).astype(np.int32)
    exact = 3.5 + (p[users] * q[items]).sum(axis=1) + 0.3 * random.standard_normal(len(keys))
    values = np.clip(exact, 1, 5).astype(np.float32)
    return Ratings(users, items, values, pa.array(range(USERS), pa.int64()), pa.array(range(ITEMS), pa.int64()))


@pytest.fixture(scope="module")
def explicit() -> tuple[Ratings, FactorModel]:
    ratings = some_ratings()
    settings = ExplicitSettings(factors=8, epochs=40, learning_rate=0.01)
    fit = fit_explicit(ratings, settings)
    assert fit.scale is not None
    chosen = {"regularization": 0.02, "learning_rate": 0.01, "epochs": 40, "unit": fit.scale.unit}
    seen = Seen.of(ratings.users, ratings.items, USERS)
    return ratings, FactorModel.of("explicit", fit.factors, ratings.user_ids, ratings.item_ids, seen, chosen)


@pytest.fixture(scope="module")
def implicit() -> tuple[Ratings, FactorModel]:
    all_of_them = some_ratings()
    liked = all_of_them.values > 4
    ratings = Ratings(
        all_of_them.users[liked],
        all_of_them.items[liked],
        all_of_them.values[liked] - 3,
        all_of_them.user_ids,
        all_of_them.item_ids,
    )
    settings = ImplicitSettings(factors=8, iterations=10, solver="cholesky")
    fit = fit_implicit(ratings, settings)
    chosen = {name: getattr(settings, name) for name in fold_in.ALTERNATION}
    seen = Seen.of(ratings.users, ratings.items, USERS)
    return ratings, FactorModel.of("implicit", fit.factors, ratings.user_ids, ratings.item_ids, seen, chosen)


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def test_folding_in_a_trained_user_of_ratings_comes_close_to_it(explicit: tuple[Ratings, FactorModel]) -> None:
    ratings, model = explicit
    cosines, shared = [], []
    for user in range(100):
        mine = ratings.users == user
        folded = model.fold_in(ratings.items[mine], ratings.values[mine])
        cosines.append(cosine(folded.vector, model.factors.users[user]))
        assert folded.bias == pytest.approx(float(model.factors.user_bias[user]), abs=0.15)
        trained = model.recommend(user, 20).items.to_pylist()
        shared.append(
            len({*trained} & {*model.recommend_folded(folded, 20, exclude=ratings.items[mine]).items.to_pylist()})
        )
    assert np.median(cosines) > 0.97
    assert np.mean(shared) > 16


def test_a_folded_user_is_predicted_nearly_as_well_as_a_trained_one() -> None:
    ratings = some_ratings()
    held_out = split.at_random(ratings.users, ratings.items, 0.2)
    users, items, values = (column[~held_out] for column in (ratings.users, ratings.items, ratings.values))
    settings = ExplicitSettings(factors=8, epochs=40, learning_rate=0.01)
    fit = fit_explicit(Ratings(users, items, values, ratings.user_ids, ratings.item_ids), settings)
    assert fit.scale is not None
    f = fit.factors
    squares: list[list[float]] = [[], []]
    for user in range(200):
        mine, tested = users == user, held_out & (ratings.users == user)
        ridges = fold_in.ridges_of_descent(int(mine.sum()), 0.02, 0.01, 40, fit.scale.unit)
        folded = fold_in.from_ratings(items[mine], values[mine], f.items, f.item_bias, f.mean, *ridges)
        for place, (vector, bias) in enumerate([(f.users[user], f.user_bias[user]), (folded.vector, folded.bias)]):
            scores = f.mean + bias + f.item_bias[ratings.items[tested]] + f.items[ratings.items[tested]] @ vector
            squares[place] += list((scores - ratings.values[tested]) ** 2)
    trained, new = (float(np.sqrt(np.mean(side))) for side in squares)
    assert new < trained * 1.05


def test_folding_in_a_trained_item_comes_close_to_it(explicit: tuple[Ratings, FactorModel]) -> None:
    ratings, model = explicit
    cosines = []
    for item in range(50):
        mine = ratings.items == item
        folded = model.fold_in_item(ratings.users[mine], ratings.values[mine])
        cosines.append(cosine(folded.vector, model.factors.items[item]))
    assert np.median(cosines) > 0.97


def test_folding_in_a_trained_item_of_events_is_its_last_solution(implicit: tuple[Ratings, FactorModel]) -> None:
    # items were solved last, from the users as they are: exactly the same system
    ratings, model = implicit
    for item in range(30):
        mine = ratings.items == item
        folded = model.fold_in_item(ratings.users[mine], ratings.values[mine])
        assert folded.vector == pytest.approx(model.factors.items[item], abs=2e-3)


def test_folding_in_a_trained_user_of_events_ranks_alike(implicit: tuple[Ratings, FactorModel]) -> None:
    ratings, model = implicit
    shared = []
    for user in range(100):
        mine = ratings.users == user
        if not mine.any():
            continue
        folded = model.fold_in(ratings.items[mine], ratings.values[mine])
        new = model.recommend_folded(folded, 10, exclude=ratings.items[mine]).items.to_pylist()
        shared.append(len({*new} & {*model.recommend(user, 10).items.to_pylist()}))
        assert not {*new} & {*ratings.items[mine].tolist()}
    assert np.mean(shared) > 8.5


def test_a_negative_weight_pushes_an_item_down(implicit: tuple[Ratings, FactorModel]) -> None:
    _, model = implicit
    q = model.factors.items
    liked, disliked = (model.fold_in([1, 2, 3], [1, 1, weight]).vector for weight in (5, -5))
    assert q[3] @ liked > q[3] @ disliked


def test_events_of_unknown_items_are_passed_over(explicit: tuple[Ratings, FactorModel]) -> None:
    _, model = explicit
    with_stranger = model.fold_in([1, 2, 99_999], [5, 1, 3])
    assert np.array_equal(with_stranger.vector, model.fold_in([1, 2], [5, 1]).vector)
    with pytest.raises(DataError, match="no event"):
        model.fold_in([99_999], [5])


def test_values_must_be_finite_and_as_many_as_ids(explicit: tuple[Ratings, FactorModel]) -> None:
    _, model = explicit
    with pytest.raises(DataError, match="finite"):
        model.fold_in([1, 2], [1, float("inf")])
    with pytest.raises(ModelError, match="do not fit"):
        model.fold_in([1, 2], [1])


def test_a_model_that_does_not_say_how_it_was_trained_cannot_fold_in() -> None:
    factors = Factors.of(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    seen = Seen.of(np.array([0, 1], np.int32), np.array([0, 1], np.int32), 2)
    with pytest.raises(ModelError, match="which regularization"):
        FactorModel.of("implicit", factors, [1, 2], [1, 2], seen, {}).fold_in([1], [1])
