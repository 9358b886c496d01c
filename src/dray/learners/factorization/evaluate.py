"""How good factors are: errors of ratings, and rankings over all items without those of the train subset. Exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import Any

import numpy as np
import numpy.typing as npt

from dray.errors import ConfigError, DataError
from dray.learners.factorization.factors import Factors, Floats, Ints, Longs, Seen, by_popularity
from dray.learners.factorization.top import EMPTY, best_for_users

_USERS_AT_ONCE = 1024
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AtK:
    """Means over the users with test items, for lists of k."""

    k: int
    recall: float
    """Of a user's test items, the share among the k."""
    ndcg: float
    """Gain 1 / log2(rank + 1) for each hit, of the most that was possible."""
    map: float
    """Mean of the precision at each hit's rank, over min(k, test items)."""
    coverage: float
    """Of all items, the share that is among the k of any user."""


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """How well rankings find the test items, and what was counted on the way."""

    at: tuple[AtK, ...]
    users: int
    """Users with test items: the means are over them."""
    users_without_test: int
    users_without_training: int
    """Of `users`, those without training events: they are recommended what is popular."""
    pairs: int
    """Different test pairs that count."""
    pairs_of_unseen_items: int
    """Of `pairs`, those with an item that no user had in the train subset: no list can hold it, each is a miss."""
    pairs_seen_in_training: int
    """Test pairs left out, because the pair is in the train subset too."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Popularity:
    """How many of all users had each item."""

    counts: Longs
    names: Ints | None = None
    """The items' indices, if the items are in another order: equally popular items are ordered by index."""


@dataclass(frozen=True, slots=True)
class RankingSums:
    """Sums over the rankings of some users; those of other users can be added."""

    sums: Doubles
    """For each k, the sums over users of recall, NDCG and average precision."""
    listed: npt.NDArray[np.bool_]
    """For each k, the items that are in the list of any user."""
    counts: tuple[int, int, int, int, int]
    """Users asked for, of them without training events, pairs, of unseen items, seen in training."""


def merged(parts: Sequence[RankingSums], ks: Sequence[int], n_users: int) -> RankingQuality:
    """Return the ranking metrics over all sums; these are exact, so that their order does not matter."""
    asked, strangers, pairs, unseen, repeated = (sum(column) for column in zip(*(p.counts for p in parts), strict=True))
    if not pairs:
        raise DataError("No pair is left to evaluate on.", fix="Use a larger test subset, or another split.")
    listed = np.logical_or.reduce([part.listed for part in parts])
    means = [
        [fsum(part.sums[place, which] for part in parts) / asked for which in range(3)] for place in range(len(ks))
    ]
    return RankingQuality(
        at=tuple(
            AtK(k, recall, ndcg, precision, float(np.count_nonzero(shown) / len(shown)))
            for k, (recall, ndcg, precision), shown in zip(ks, means, listed, strict=True)
        ),
        users=asked,
        users_without_test=n_users - asked,
        users_without_training=strangers,
        pairs=pairs,
        pairs_of_unseen_items=unseen,
        pairs_seen_in_training=repeated,
    )


def ranking_sums(
    factors: Factors,
    seen: Seen,
    users: Ints,
    items: Ints,
    ks: Sequence[int],
    popularity: Popularity,
    threads: int = 1,
) -> RankingSums:
    """Rank for the users of `factors`, which may be some of all users."""
    tally = _Tally(seen, users, items, ks, popularity)
    known = tally.asked[tally.trained]
    if len(known):
        for best in best_for_users(factors, seen, max(ks), known, tally.popular, threads):
            tally.add(known[best.first : best.first + len(best.items)], best.items)
    tally.add_popular(tally.asked[~tally.trained])
    return tally.result()


def popular_sums(seen: Seen, users: Ints, items: Ints, ks: Sequence[int], popularity: Popularity) -> RankingSums:
    """The same for lists of the most popular items that a user has not seen: the baseline that a model must beat."""
    tally = _Tally(seen, users, items, ks, popularity)
    tally.add_popular(tally.asked)
    return tally.result()


class _Tally:
    """Test pairs, and how well lists find them."""

    def __init__(self, seen: Seen, users: Ints, items: Ints, ks: Sequence[int], popularity: Popularity) -> None:
        if not ks or min(ks) < 1:
            raise ConfigError(f"Lists of {list(ks)} items cannot be evaluated.", fix="Use lengths such as 10 and 20.")
        n_users, counts = len(seen.starts) - 1, popularity.counts
        self._seen, self._ks, self._counts = seen, ks, counts
        self._test, self._repeated = _without(Seen.of(users, items, n_users), seen)
        self._sums = np.zeros((len(ks), 3))
        self._listed = np.zeros((len(ks), len(counts)), np.bool_)
        self._sizes = np.bincount(self._test >> 32, minlength=n_users)
        self.popular = by_popularity(counts, popularity.names)
        self.asked: Ints = np.flatnonzero(self._sizes).astype(np.int32)
        self.trained = np.diff(seen.starts)[self.asked] > 0

    def add(self, users: Ints, lists: Ints) -> None:
        hits = _hits(self._test, users, lists)
        sizes = self._sizes[users]
        for place, k in enumerate(self._ks):
            self._sums[place] += _sums_at(hits[:, :k], sizes, k)
            found = lists[:, :k]
            self._listed[place, found[found != EMPTY]] = True

    def add_popular(self, users: Ints) -> None:
        rank = np.full(len(self._counts), len(self.popular), np.int64)
        rank[self.popular] = np.arange(len(self.popular))
        for begin in range(0, len(users), _USERS_AT_ONCE):
            those = users[begin : begin + _USERS_AT_ONCE]
            self.add(those, _popular_lists(self._seen, those, self.popular, rank, max(self._ks)))

    def result(self) -> RankingSums:
        unseen = int(np.count_nonzero(self._counts[self._test & 0xFFFFFFFF] == 0))
        strangers = int(np.count_nonzero(~self.trained))
        counts = (len(self.asked), strangers, len(self._test), unseen, self._repeated)
        return RankingSums(self._sums, self._listed, counts)


def _popular_lists(seen: Seen, users: Ints, popular: Ints, rank: Longs, n: int) -> Ints:
    """Return the `n` most popular items that each user has not seen; `rank` is each item's place in `popular`."""
    lengths = seen.starts[users.astype(np.int64) + 1] - seen.starts[users]
    width = min(
        len(popular), n + int(lengths.max(initial=0))
    )  # enough even for a user that has seen the most popular ones
    rows = np.repeat(np.arange(len(users)), lengths)
    places = np.repeat(seen.starts[users] - np.cumsum(lengths) + lengths, lengths) + np.arange(len(rows))
    ranks = rank[seen.items[places]]
    free = np.ones((len(users), width), np.bool_)
    free[rows[ranks < width], ranks[ranks < width]] = False
    order = np.cumsum(free, axis=1)
    lists = np.full((len(users), n), EMPTY, np.int32)
    chosen = np.nonzero(free & (order <= n))
    lists[chosen[0], order[chosen] - 1] = popular[chosen[1]]
    return lists


def error_sums(
    factors: Factors, users: Ints, items: Ints, ratings: Floats, limits: tuple[float, float]
) -> tuple[float, float]:
    """Return the sums of squared and of absolute errors; -1 is an unknown user or item."""
    from dray.learners.factorization import top_kernels

    squares, sizes = top_kernels.error_sums(_scores(factors, users, items), ratings, *limits)
    return float(squares), float(sizes)


def _scores(factors: Factors, users: Ints, items: Ints) -> Doubles:
    from dray.learners.factorization import top_kernels

    out = np.empty(len(users))
    top_kernels.score_pairs(
        *(factors.users, factors.items, factors.user_bias, factors.item_bias, factors.mean),
        *(np.ascontiguousarray(users, np.int32), np.ascontiguousarray(items, np.int32), out),
    )
    return out


def _without(test: Seen, seen: Seen) -> tuple[Longs, int]:
    """Return the keys of the test pairs that are not in the train subset, and how many are."""
    n_users = len(test.starts) - 1
    keys = _keys(test, 0, n_users)
    repeated = np.zeros(len(keys), np.bool_)
    for begin in range(0, n_users, 1 << 16):  # the keys of all training pairs at once would be thrice their memory
        end = min(begin + (1 << 16), n_users)
        had = _keys(seen, begin, end)
        if len(had):
            piece = slice(test.starts[begin], test.starts[end])
            places = np.minimum(np.searchsorted(had, keys[piece]), len(had) - 1)
            repeated[piece] = had[places] == keys[piece]
    return keys[~repeated], int(np.count_nonzero(repeated))


def _keys(pairs: Seen, begin: int, end: int) -> Longs:
    """Return the pairs of users begin..end as one ascending number each."""
    users = np.repeat(np.arange(begin, end, dtype=np.int64), np.diff(pairs.starts[begin : end + 1]))
    keys: Longs = (users << 32) | pairs.items[pairs.starts[begin] : pairs.starts[end]]
    return keys


def _hits(test: Longs, users: Ints, lists: Ints) -> npt.NDArray[np.bool_]:
    """Return for each place of each list whether its item is a test item of the user."""
    wanted = (users.astype(np.int64)[:, None] << 32) | lists.astype(np.int64)
    hits: npt.NDArray[np.bool_] = test[np.minimum(np.searchsorted(test, wanted), len(test) - 1)] == wanted
    return hits


def _sums_at(hits: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64], k: int) -> tuple[float, float, float]:
    """Return the sums over users of recall, NDCG and average precision."""
    ranks = np.arange(1, hits.shape[1] + 1)
    gains = 1 / np.log2(ranks + 1)
    found = np.cumsum(hits, axis=1)
    possible = np.minimum(sizes, k)
    ideal = np.cumsum(gains)[possible - 1]
    recall = found[:, -1] / sizes
    ndcg = (hits * gains).sum(axis=1) / ideal
    precision = (hits * found / ranks).sum(axis=1) / possible
    return float(recall.sum()), float(ndcg.sum()), float(precision.sum())
