"""Metrics of all test pairs at once: the reference that sums over parts must equal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dray.errors import DataError
from dray.learners.factorization.evaluate import Popularity, RankingQuality, error_sums, merged, ranking_sums
from dray.learners.factorization.factors import Factors, Floats, Ints, Seen

_PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class RatingErrors:
    """Root mean squared and mean absolute error."""

    rmse: float
    mae: float
    ratings: int


def rating_errors(
    factors: Factors,
    users: Ints,
    items: Ints,
    ratings: Floats,
    limits: tuple[float, float] | None = None,
    threads: int = 1,
) -> RatingErrors:
    """Return the errors for pairs of indices; -1 is an unknown user or item, scored by what is known.

    Scores are held within `limits`, the scale of the ratings. The sums are of pieces of a fixed size: the same for any
    number of threads.
    """
    if len(ratings) == 0:
        raise DataError("There are no ratings to evaluate on.", fix="Use a larger test subset.")
    low, high = limits or (-np.inf, np.inf)

    def sums(begin: int) -> tuple[float, float]:
        piece = slice(begin, begin + _PAIRS_AT_ONCE)
        return error_sums(factors, users[piece], items[piece], ratings[piece], (low, high))

    with ThreadPoolExecutor(threads) as pool:
        parts = np.array(list(pool.map(sums, range(0, len(ratings), _PAIRS_AT_ONCE))))
    squares, sizes = parts.sum(axis=0) / len(ratings)
    return RatingErrors(float(np.sqrt(squares)), float(sizes), len(ratings))


def ranking_quality(
    factors: Factors,
    seen: Seen,
    users: Ints,
    items: Ints,
    ks: Sequence[int] = (10,),
    threads: int = 1,
) -> RankingQuality:
    """Return how well the factors rank the test pairs (users, items) among all items that the user has not seen.

    Only items that a user had in the train subset are recommended: the factors of others have no meaning.
    """
    popularity = Popularity(seen.counts(len(factors.items)))
    return merged([ranking_sums(factors, seen, users, items, ks, popularity, threads)], ks, len(factors.users))
