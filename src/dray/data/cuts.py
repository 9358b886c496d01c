"""Shared cuts: from a row sample to the few values per feature that every worker bins by.

Pure. The table of cuts is itself a tiny data set, at most `bins` rows: the learner builds its reference
matrix from it, which takes milliseconds, and everyone who has the table bins alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def cut_table(columns: Sequence[Floats], categories: Sequence[int], bins: int) -> Floats:
    """Return the reference rows, one column a feature, padded with NaN; columns may be cut points already.

    `categories` holds the number of categories of a feature, 0 for a number: a category is a bin of its own.
    """
    cuts = [
        np.arange(count, dtype=np.float32) if count else cut_points(column, bins)
        for column, count in zip(columns, categories, strict=True)
    ]
    table = np.full((max([1, *map(len, cuts)]), len(cuts)), np.nan, dtype=np.float32)
    for index, points in enumerate(cuts):
        table[: len(points), index] = points
    return table


def cut_points(column: Floats, bins: int) -> Floats:
    """At most `bins` values, each the lower border of a bin, bins holding about equally many rows.

    A value so frequent that it fills a bin gets one to itself, and the others share what is left: a column
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
    if chosen.sum() > bins:  # many heavy values: they stay, the others are thinned out evenly
        others = np.flatnonzero(chosen & ~heavy)
        chosen = heavy.copy()
        chosen[others[np.linspace(0, len(others) - 1, bins - int(heavy.sum())).round().astype(int)]] = True
    points: Floats = values[chosen]
    return points
