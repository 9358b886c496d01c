"""What factorization learns, as plain arrays: the score of a pair is mean + biases + p.q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Factors:
    """Factors of all users and items, float32 and C-contiguous; a model without biases has zeros."""

    users: Floats
    items: Floats
    user_bias: Floats
    item_bias: Floats
    mean: float

    @staticmethod
    def of(
        users: Floats,
        items: Floats,
        user_bias: Floats | None = None,
        item_bias: Floats | None = None,
        mean: float = 0.0,
    ) -> Factors:
        """Return them in the layout that the kernels need; biases that are not there are zero."""
        return Factors(
            np.ascontiguousarray(users, np.float32),
            np.ascontiguousarray(items, np.float32),
            np.zeros(len(users), np.float32) if user_bias is None else np.ascontiguousarray(user_bias, np.float32),
            np.zeros(len(items), np.float32) if item_bias is None else np.ascontiguousarray(item_bias, np.float32),
            float(mean),
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The items of every user in the train subset: CSR, the items of a user ascending, each once."""

    starts: Longs
    """int64[users + 1]: where the items of a user begin."""
    items: Ints
    values: Floats | None = None
    """The rating or summed weight of each pair, in the order of `items`; None where they were not kept."""

    @staticmethod
    def of(users: Ints, items: Ints, n_users: int, values: Floats | None = None) -> Seen:
        """Return what pairs in any order, also repeated ones, come to; of repeated ones the last value counts."""
        keys = (users.astype(np.int64) << 32) | items.astype(np.int64)
        if values is None:
            keys = np.unique(keys)
        else:
            order = np.argsort(keys, kind="stable")
            keys, values = keys[order], np.asarray(values, np.float32)[order]
            last = np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), bool))
            keys, values = keys[last], values[last]
        starts = np.zeros(n_users + 1, np.int64)
        np.cumsum(np.bincount(keys >> 32, minlength=n_users), out=starts[1:])
        return Seen(starts, (keys & 0xFFFFFFFF).astype(np.int32), values)

    @staticmethod
    def nothing(n_users: int) -> Seen:
        return Seen(np.zeros(n_users + 1, np.int64), np.zeros(0, np.int32))

    def of_user(self, user: int) -> Ints:
        return self.items[self.starts[user] : self.starts[user + 1]]

    def counts(self, n_items: int) -> Longs:
        """How many users had each item."""
        return count(self.items, n_items)


def count(items: Ints, n_items: int) -> Longs:
    """Return how often each index occurs, a piece at a time: NumPy would make 64 bits of all of them first."""
    counts = np.zeros(n_items, np.int64)
    for begin in range(0, len(items), 1 << 20):
        counts += np.bincount(items[begin : begin + (1 << 20)], minlength=n_items)
    return counts


def by_popularity(counts: Longs, names: Ints | None = None) -> Ints:
    """Return all items with an event, the most popular first, equal ones by index, or by their names."""
    order = np.argsort(-counts, kind="stable") if names is None else np.lexsort((names, -counts))
    return order[: np.count_nonzero(counts)].astype(np.int32)
