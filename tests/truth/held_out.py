"""Which rows a share of every class is, worked out from the labels of all rows at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from dray.data.split import hashed


def lowest_of_each(labels: Sequence[Hashable], share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Return the rows of each class with the lowest hashes: its share, rounded so that the share of all is right."""
    exact = {name: share * rows for name, rows in Counter(labels).items()}
    taken = {name: int(wanted) for name, wanted in exact.items()}
    missing = round(share * len(labels)) - sum(taken.values())
    for name in sorted(exact, key=lambda name: (taken[name] - exact[name], str(name)))[:missing]:
        taken[name] += 1
    hashes = hashed(np.arange(len(labels)), seed)
    picked = np.zeros(len(labels), dtype=bool)
    for row in np.argsort(hashes):
        if taken[labels[row]]:
            taken[labels[row]] -= 1
            picked[row] = True
    return picked
