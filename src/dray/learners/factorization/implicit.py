"""Implicit feedback: alternating least squares with confidence weights (iALS).

An entry of weight w has the confidence 1 + alpha |w|, and says "likes it" (1) if w > 0, "does not" (0) otherwise; all
pairs that are not there say "does not" with the confidence 1. A row's regularization grows with the confidence it
carries, sum over all pairs of it, to the power `frequency_power`: with 1 rows of all lengths are drawn to zero alike
(Rendle et al. 2021), with 0 all have the same.

Each row is solved alone, from the factors of the other side: any worker can solve any rows, in any order, and gets the
same bits. The Gram matrix is summed over parts of rows that follow from their number alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dray.errors import DataError
from dray.learners.factorization.factors import Floats, Ints, Longs
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Triples

_STREAMS: Mapping[str, int] = {"users": 5, "items": 6}

_PARTS = 64
"""Pieces of all rows that the Gram matrix is summed over in one process."""

_ENTRIES_PER_CALL = 200_000
"""Some 20 ms of work: enough for a thread not to notice the call, little enough to end at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplicitSettings:
    """How to train on implicit feedback."""

    factors: int = 64
    """Numbers that describe a user, and an item."""
    iterations: int = 15
    """Times that users and items are each solved."""
    alpha: float = 10.0
    """Confidence that a weight of 1 adds."""
    regularization: float = 0.003
    """How strongly factors are drawn to zero, by the confidence that a row carries."""
    frequency_power: float = 1.0
    """How much more so those of rows with many entries; 0: all alike."""
    solver: Literal["gradient", "cholesky"] = "gradient"
    """Some steps of the conjugate gradient from the last solution, or exactly."""
    gradient_steps: int = 3
    init_std: float = 0.1
    """Length of a row of factors at first, as a standard deviation."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """Entries of some rows, those of a row by column. 8 bytes an entry."""

    starts: Longs
    """Where each row begins, and the end."""
    columns: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.starts) - 1


def rows_by_user(parts: Sequence[Triples], first: int, last: int) -> Rows:
    """Return the entries of the users `first` to `last`; those of others are passed over.

    Two passes, count and place: beside the triples there is only the result. A pair may occur once, as its weights
    must be summed up before: the sum of two confidences is not the confidence of the sum.
    """
    from dray.learners.factorization import als_kernels

    counts = np.zeros(last - first + 1, np.int64)
    for part in parts:
        als_kernels.count_rows(part.users, first, counts)
    starts = np.cumsum(counts)
    columns, weights = np.empty(int(starts[-1]), np.int32), np.empty(int(starts[-1]), np.float32)
    free = starts[:-1].copy()
    for part in parts:
        als_kernels.place_in_rows(part.users, part.items, part.values, first, free, columns, weights)
    repeated = int(als_kernels.sort_rows(starts, columns, weights, 0, last - first))
    if repeated:
        raise DataError(
            f"{repeated} of {len(columns)} entries repeat a user and item that had one before.",
            fix="Sum up the weights of each user and item first.",
        )
    return Rows(starts, columns, weights)


def parts_of(n_rows: int) -> list[tuple[int, int]]:
    """Return the parts of rows, from and to. They depend on the number of rows only."""
    size = -(-n_rows // _PARTS)
    return [(first, min(n_rows, first + size)) for first in range(0, n_rows, size)] if n_rows else []


def random_rows(side: Literal["users", "items"], part: int, n_rows: int, settings: ImplicitSettings) -> Floats:
    random = np.random.default_rng([settings.seed, _STREAMS[side], part])
    factors = random.standard_normal((n_rows, settings.factors), dtype=np.float32)
    factors *= np.float32(settings.init_std / np.sqrt(settings.factors))
    return factors


def gram_of_part(factors: Floats) -> NDArray[np.float64]:
    """Return Y'Y of the factors of one part."""
    from dray.learners.factorization import als_kernels

    out = np.empty((factors.shape[1], factors.shape[1]), np.float64)
    als_kernels.gram(factors, out)
    return out


def gram_of_parts(parts: Sequence[NDArray[np.float64]]) -> Floats:
    """Return the sum of all parts, in their order."""
    total = np.zeros_like(parts[0])
    for part in parts:
        total += part
    return total.astype(np.float32)


def gram(factors: Floats, threads: Threads) -> Floats:
    """Return Y'Y of all rows."""
    parts = [factors[first:last] for first, last in parts_of(len(factors))]
    return gram_of_parts(threads.map(gram_of_part, parts))


def solve_rows(
    rows: Rows, others: Floats, matrix: Floats, settings: ImplicitSettings, out: Floats, threads: Threads
) -> None:
    """Solve all rows from the factors of the other side and their Gram matrix, in place.

    `out` holds the last solutions, where the conjugate gradient starts from. A row without entries becomes zero.
    """
    from dray.learners.factorization import als_kernels

    common = (rows.starts, rows.columns, rows.weights, others, matrix, np.float32(settings.alpha))
    scaling = (np.float32(settings.regularization), np.float32(settings.frequency_power))

    def solve(span: tuple[int, int]) -> int:
        if settings.solver == "cholesky":
            return int(als_kernels.solve_exactly(*common, *scaling, *span, out))
        als_kernels.solve_by_gradients(*common, *scaling, settings.gradient_steps, *span, out)
        return -1

    failed = [row for row in threads.map(solve, spans(rows.starts)) if row >= 0]
    if failed:
        raise DataError(
            f"The factors of row {failed[0]} cannot be solved for: its system is not positive definite in float32.",
            fix="Raise the regularization, or lower alpha.",
        )


def spans(starts: Longs) -> list[tuple[int, int]]:
    """Return consecutive rows, from and to, with about as many entries each; a row weighs something by itself."""
    work = starts[1:] + np.arange(1, len(starts)) * 16
    if not len(work):
        return []
    marks = np.searchsorted(work, np.arange(_ENTRIES_PER_CALL, int(work[-1]), _ENTRIES_PER_CALL)) + 1
    edges = np.unique(np.concatenate([[0], marks, [len(work)]]))
    return [(int(first), int(last)) for first, last in pairwise(edges)]
