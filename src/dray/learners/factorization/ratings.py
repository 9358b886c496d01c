"""Ratings, or events summed up per user and item, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dray.errors import DataError
from dray.learners.factorization.factors import Floats, Ints


@dataclass(frozen=True, slots=True)
class Triples:
    """User, item, value: three arrays of one length. 12 bytes a rating."""

    users: Ints
    items: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def joined(parts: Sequence[Triples]) -> Triples:
        return Triples(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items", "values"))
        )


@dataclass(frozen=True, slots=True)
class Ratings:
    """Triples and the ids of their indices."""

    users: Ints
    items: Ints
    values: Floats
    user_ids: pa.Array
    """The id of every user index: text or int64."""
    item_ids: pa.Array

    def __len__(self) -> int:
        return len(self.values)

    @property
    def triples(self) -> Triples:
        return Triples(self.users, self.items, self.values)

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)


def check(triples: Triples, n_users: int, n_items: int) -> None:
    """Refuse what no factorization can be made of."""
    lengths = {len(triples.users), len(triples.items), len(triples.values)}
    if len(lengths) != 1:
        raise DataError(
            f"Users, items and values differ in length: {sorted(lengths)}.", fix="Give one of each for every rating."
        )
    if not len(triples):
        raise DataError("There is no rating to train on.", fix="Check the location, the filter and the split.")
    for name, indices, count in (("user", triples.users, n_users), ("item", triples.items, n_items)):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= count:
            raise DataError(
                f"A {name} index is {low if low < 0 else high}, but there are {count} {name}s (0 to {count - 1}).",
                fix=f"Index {name}s by their place among the ids.",
            )
        if count < 2:
            raise DataError(
                f"There is one {name} only: nothing is shared between {name}s.",
                fix=f"Give the ratings of several {name}s, or check that --{name} names the right column.",
            )
    # A sum is not finite if any value is not, and costs no array of its own; float64, so that it cannot overflow.
    if not np.isfinite(triples.values.sum(dtype=np.float64)):
        at = int(np.flatnonzero(~np.isfinite(triples.values))[0])
        raise DataError(
            f"Rating {at} is {triples.values[at]}, which is not a finite number.",
            fix="Remove such rows, or give them a rating.",
        )
