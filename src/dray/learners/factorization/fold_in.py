"""The vector of a new user (or item) from its events, without training again: one small least squares problem.

The other side stays as it was trained. In float64, as it is one vector of k numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dray.errors import DataError
from dray.learners.factorization.factors import Floats, Ints

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Folded:
    """What a new user (or item) is to the model."""

    vector: Floats
    bias: float


DESCENT = ("regularization", "learning_rate", "epochs", "unit")
"""Settings of explicit training that say how far it went."""
ALTERNATION = ("regularization", "alpha", "frequency_power")
"""Settings of implicit training that say what a row was solved for."""


def ridges_of_descent(
    ratings: int, regularization: float, learning_rate: float, epochs: float, unit: float
) -> tuple[float, float]:
    """Return the ridges of bias and vector that come closest to where SGD is after its epochs.

    Each rating pulls back once, so at rest the ridge would be regularization x ratings. SGD stops long before: after
    the time learning_rate x epochs it has come as far as with a ridge of one over it. Steps of vectors are 1 / unit.
    """
    ridge = regularization * ratings + 1 / (learning_rate * epochs)
    return ridge, ridge * unit


def from_ratings(
    others: Ints, ratings: Floats, factors: Floats, biases: Floats, mean: float, bias_ridge: float, vector_ridge: float
) -> Folded:
    """Return bias and vector that explain the ratings of (or by) `others` best: ridge regression on the residuals."""
    _require_events(others, ratings)
    rows = factors[others].astype(np.float64)
    rows = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
    residuals = ratings.astype(np.float64) - mean - biases[others].astype(np.float64)
    matrix = rows.T @ rows
    matrix[np.diag_indices_from(matrix)] += np.maximum([bias_ridge, *[vector_ridge] * factors.shape[1]], 1e-9)
    solved = np.linalg.solve(matrix, rows.T @ residuals)
    return Folded(solved[1:].astype(np.float32), float(solved[0]))


def gram_of(factors: Floats) -> Doubles:
    """Return Y'Y, what all the pairs without events come to; needed once for many new users."""
    gram = np.zeros((factors.shape[1], factors.shape[1]))
    for begin in range(0, len(factors), 1 << 14):  # in float64, but never all of it
        part = factors[begin : begin + (1 << 14)].astype(np.float64)
        gram += part.T @ part
    return gram


def from_events(
    others: Ints,
    weights: Floats,
    factors: Floats,
    gram: Doubles,
    alpha: float,
    regularization: float,
    frequency_power: float,
) -> Folded:
    """Return the vector of one ALS step: confidence 1 + alpha |w|, preference 1 where w > 0, else 0.

    (Y'Y + Y'(C - 1)Y + ridge) x = Y'C preference, the ridge as in implicit.py: by the confidence of the whole row.
    """
    _require_events(others, weights)
    rows = factors[others].astype(np.float64)
    extra = alpha * np.abs(weights.astype(np.float64))
    matrix = gram + (rows.T * extra) @ rows
    ridge = regularization * (len(factors) + extra.sum()) ** frequency_power
    matrix[np.diag_indices_from(matrix)] += max(ridge, 1e-9)
    wanted = rows.T @ np.where(weights > 0, 1 + extra, 0.0)
    return Folded(np.linalg.solve(matrix, wanted).astype(np.float32), 0.0)


def _require_events(others: Ints, values: Floats) -> None:
    if len(others) == 0:
        raise DataError(
            "There is no event with an id that the model knows.",
            fix="Give at least one; without any, popular items are the answer.",
        )
    if not np.isfinite(values).all():
        raise DataError("A rating or weight is not a finite number.", fix="Leave such events out.")
