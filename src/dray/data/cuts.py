"""Shared cuts: from a row sample to the few values per feature that every worker bins by.

Pure. The table of cuts is itself a tiny data set, at most `bins` rows: the learner builds its reference
matrix from it, which takes milliseconds, and every process with the table bins alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

LARGEST = np.finfo(np.float32).max
"""Larger than any number in training: it would not differ from what lies beyond the highest bin."""
_OUTERMOST = LARGEST / 2
_BEYOND = np.float32(1e-5)


def cut_table(points: Sequence[Floats], categories: Sequence[int | None]) -> Floats:
    """Return the reference rows: the cut points of each feature in a column, bounded, padded with NaN.

    `categories` holds the number of categories of a feature, None for a number: a category is a bin of its own.
    """
    cuts = [
        bounded(column) if count is None else np.arange(count, dtype=np.float32)
        for column, count in zip(points, categories, strict=True)
    ]
    table = np.full((max([1, *map(len, cuts)]), len(cuts)), np.nan, dtype=np.float32)
    for index, column in enumerate(cuts):
        table[: len(column), index] = column
    return table


def bounded(points: Floats) -> Floats:
    """Extend the outermost bins to the largest numbers; points that are bounded already stay as they are.

    XGBoost guesses the outermost borders: twice the sample's extremes. In training, a number beyond them falls into
    the outermost bin; in prediction, XGBoost sees the number itself and treats it as missing.
    """
    inner = points[1:] if len(points) and points[0] > -_OUTERMOST else points
    low = [] if len(inner) and inner is points else [-_OUTERMOST]
    high = [] if len(inner) and inner[-1] >= _OUTERMOST else [_OUTERMOST]
    return np.concatenate([low, inner, high]).astype(np.float32)


def borders_of(points: Floats, bins: int) -> Floats:
    """Return every value that a tree can split at when numbers are binned by these points.

    The first point only says where the lowest bin begins and the last where the highest ends: XGBoost doubles them.
    With one point more than bins, the last is not a border, so that a bound costs no bin.
    """
    low, high = points[0], points[-1]
    with np.errstate(over="ignore"):
        outer = [low - (np.abs(low) + _BEYOND), high + (np.abs(high) + _BEYOND)]
    return np.concatenate([points[1 : min(len(points), bins)], outer]).astype(np.float32)


def with_borders(columns: Sequence[Floats], borders: Sequence[Floats], bins: int) -> tuple[list[Floats], int]:
    """Return cut points with which trees that split at these borders predict binned rows exactly, and how many bins.

    Points that include all borders stay as they are: a training that continues with its own cuts is unchanged.
    """
    covering: list[Floats] = []
    for column, needed in zip(columns, borders, strict=True):
        points = bounded(column)
        if len(np.setdiff1d(needed, borders_of(points, bins))):
            inner = needed[np.abs(needed) <= _OUTERMOST]
            points = bounded(np.union1d(points, inner).astype(np.float32))
            bins = max(bins, len(points))
        covering.append(points)
    return covering, bins


def cut_points(column: Floats, bins: int) -> Floats:
    """Return at most `bins` values, each the lower border of a bin, bins holding about equally many rows.

    A value so frequent that it fills a bin gets its own bin, and the other values share the rest: a column
    that is mostly zero keeps its resolution elsewhere.
    """
    values, counts = np.unique(column[np.isfinite(column)], return_counts=True)
    if len(values) <= bins:
        return values
    heavy = counts > counts.sum() / bins
    light_bins = max(1, bins - 2 * int(heavy.sum()))
    rank = np.cumsum(np.where(heavy, 0, counts))
    bin_of = (rank - 1) * light_bins // max(1, int(rank[-1]))
    first_of_bin = np.concatenate([[True], bin_of[1:] != bin_of[:-1]])
    after_heavy = np.concatenate([[False], heavy[:-1]])
    chosen = first_of_bin | after_heavy | heavy
    if chosen.sum() > bins:  # many frequent values: keep them, thin out the rest evenly
        others = np.flatnonzero(chosen & ~heavy)
        chosen = heavy.copy()
        chosen[others[np.linspace(0, len(others) - 1, bins - int(heavy.sum())).round().astype(int)]] = True
    points: Floats = values[chosen]
    return points
