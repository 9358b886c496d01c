"""A trained recommender and its answers; `stored_model.py` keeps what it is made of.

An unknown user or item (an id that is not there, or one without a training event) gets a defined answer: a score of
what is known (the mean and the other side's bias; for implicit feedback the share of users that had the item), and
popular items in place of recommended ones, marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from dray.errors import DAMAGE, ModelError
from dray.learners.factorization import fold_in, model_files
from dray.learners.factorization.factors import Factors, Floats, Ints, Longs, Seen
from dray.learners.factorization.fold_in import Doubles, Folded
from dray.learners.factorization.ids import UNKNOWN
from dray.learners.factorization.stored_model import StoredModel
from dray.learners.factorization.top import EMPTY, ItemIndex, Tiles, best_for_users, best_of
from dray.learners.ids import as_ids
from dray.learners.recommender import require_some

if TYPE_CHECKING:
    from dray.learners.factorization.recommender import FactorRecommender

By = Literal["factors", "fold-in", "popularity"]
_ROWS_AT_ONCE = 1 << 16
_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of pairs, and how many of them have an unknown user or item."""

    values: Floats
    unknown_users: int
    unknown_items: int


@dataclass(frozen=True, slots=True)
class Recommended:
    """A list of items, the best first."""

    items: pa.Array
    scores: Floats
    """What `score` says; the cosine for similar items; by popularity the share of users that had the item."""
    by: By
    """"popularity" for an unknown user or item; "fold-in" for one that is known by its events only."""
    unknown_items: int = 0
    """Of the items to choose from, those that the model does not know."""


class FactorModel(StoredModel):
    """A recommender that answers: scores, lists, similar items, users and items folded in."""

    def score(self, users: Any, items: Any) -> Scores:
        """Return the score of each pair of ids."""
        rows, columns = self.find_users(users), self.find_items(items)
        if len(rows) != len(columns):
            raise ModelError(
                f"{len(rows)} users and {len(columns)} items do not make pairs.", fix="Give as many users as items."
            )
        return self.score_at(rows, columns)

    def score_at(self, rows: Ints, columns: Ints) -> Scores:
        """Return the score of each pair by the indices of user and item; UNKNOWN is one that it does not have."""
        from dray.learners.factorization import top_kernels

        f = self.factors
        values = np.empty(len(rows))
        top_kernels.score_pairs(f.users, f.items, f.user_bias, f.item_bias, f.mean, rows, columns, values)
        if self.kind == "implicit":
            strangers = (rows == UNKNOWN) & (columns != UNKNOWN)
            values[strangers] = self._share(columns[strangers])
        values = np.clip(values, *self.limits)
        return Scores(
            values.astype(np.float32), int(np.count_nonzero(rows == UNKNOWN)), int(np.count_nonzero(columns == UNKNOWN))
        )

    def recommend(self, user: Any, n: int = 10, *, exclude_seen: bool = True, items: Any = None) -> Recommended:
        """Return the best items of one user, out of all or of `items`."""
        require_some(n)
        among, unknown = self._among(items)
        index = int(self.find_users([user])[0])
        if index == UNKNOWN:
            return self._popular(n, among, unknown, _NONE)
        skipped = self.seen.of_user(index) if exclude_seen else _NONE
        return self._best(self.factors.users[index], float(self.factors.user_bias[index]), n, among, unknown, skipped)

    def recommend_many(
        self,
        users: Any = None,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        items: Any = None,
        threads: int = 1,
    ) -> Iterator[pa.Table]:
        """Yield the best items of many users (all) as tables of user, rank, item, score, by: unknown users come last.

        In bounded memory, whatever the number of users.
        """
        asked = self.user_ids if users is None else as_ids(users, "user id")
        yield from self._lists(asked, self.find_users(asked), n, exclude_seen, items, threads)

    def recommend_between(
        self, begin: int, end: int, n: int = 10, *, exclude_seen: bool = True, items: Any = None, threads: int = 1
    ) -> Iterator[pa.Table]:
        """Yield what `recommend_many` does for the model's own users `begin` to `end`: none has to be looked up."""
        ids = self.user_ids.slice(begin, end - begin)
        found = self._trained(np.arange(begin, begin + len(ids), dtype=np.int32))
        yield from self._lists(ids, found, n, exclude_seen, items, threads)

    def recommend_new(
        self, users: Any, events: Seen, n: int = 10, *, exclude_seen: bool = True, items: Any = None, threads: int = 1
    ) -> Iterator[pa.Table]:
        """Yield lists, as `recommend_many` does, for users that the model does not know, by folding them in.

        `events` has the items (by their index) and ratings or summed weights of each user. A user without events gets
        popular items.
        """
        require_some(n)
        among, _ = self._among(items)
        ids, f = as_ids(users, "user id"), self.factors
        values = np.ones(len(events.items), np.float32) if events.values is None else events.values
        counts = np.diff(events.starts)
        able = np.flatnonzero(counts)
        vectors, biases = np.zeros((len(ids), f.items.shape[1]), np.float32), np.zeros(len(ids), np.float32)
        for user in able:
            rows = slice(events.starts[user], events.starts[user + 1])
            folded = self._fold_in(events.items[rows], values[rows], f.items, f.item_bias, lambda: self._item_gram)
            vectors[user], biases[user] = folded.vector, folded.bias
        new = Factors(vectors, f.items, biases, f.item_bias, f.mean)
        had = events if exclude_seen else Seen.nothing(len(ids))
        yield from self._ranked(new, had, ids, able.astype(np.int32), able, n, among, threads, "fold-in")
        yield from self._popular_lists(ids.take(pa.array(np.flatnonzero(counts == 0))), n, among)

    def similar(self, item: Any, n: int = 10) -> Recommended:
        """Return the items whose vectors point most in the direction of an item's own, by cosine."""
        require_some(n)
        index = int(self.find_items([item])[0])
        if index == UNKNOWN:
            return self._popular(n, None, 1, _NONE)
        vectors, lengths = self.factors.items, self._lengths
        cosines = np.full(len(vectors), -np.inf, np.float32)
        usable = (lengths > 0) & (self.item_counts > 0)
        if lengths[index] > 0:
            np.divide(vectors @ vectors[index], lengths * lengths[index], out=cosines, where=usable)
        cosines[index] = -np.inf
        best = best_of(cosines, n)
        return Recommended(self._ids(best), np.clip(cosines[best], -1, 1), "factors")

    def recommender(self) -> FactorRecommender:
        """Return itself as what `dray.recommend` asks; its columns are "user" and "item"."""
        from dray.learners.factorization.recommender import FactorRecommender

        return FactorRecommender(self)

    def _lists(
        self, ids: pa.Array, found: Ints, n: int, exclude_seen: bool, items: Any, threads: int
    ) -> Iterator[pa.Table]:
        require_some(n)
        among, _ = self._among(items)
        known, strangers = np.flatnonzero(found != UNKNOWN), np.flatnonzero(found == UNKNOWN)
        seen = self.seen if exclude_seen else Seen.nothing(len(self.user_ids))
        yield from self._ranked(self.factors, seen, ids, found[known], known, n, among, threads, "factors")
        yield from self._popular_lists(ids.take(pa.array(strangers)), n, among)

    def _ranked(
        self,
        factors: Factors,
        seen: Seen,
        ids: pa.Array,
        rows: Ints,
        places: Longs,
        n: int,
        among: Ints | None,
        threads: int,
        by: By,
    ) -> Iterator[pa.Table]:
        """Yield the lists of the users in `rows` of `factors`, whose ids are at `places`."""
        tiles = self._tiles if among is None else Tiles.of(factors.items, factors.item_bias, among)
        if len(rows) and len(tiles.names):
            for best in best_for_users(factors, seen, n, rows, tiles, threads):
                taken = places[best.first : best.first + len(best.items)]
                yield self._table(ids.take(pa.array(taken)), best.items, best.scores, by)

    def _popular_lists(self, users: pa.Array, n: int, among: Ints | None) -> Iterator[pa.Table]:
        shown = self._popular_indices(n, among, _NONE)
        for begin in range(0, len(users), _ROWS_AT_ONCE):
            ids = users.slice(begin, _ROWS_AT_ONCE)
            lists = np.broadcast_to(shown, (len(ids), len(shown)))
            yield self._table(ids, lists, np.broadcast_to(self._share(shown), lists.shape), "popularity")

    def fold_in(self, items: Any, values: Any) -> Folded:
        """Return the vector and bias of a new user, from its items and their ratings (or summed weights)."""
        f = self.factors
        return self._fold_in(self.find_items(items), values, f.items, f.item_bias, lambda: self._item_gram)

    def fold_in_item(self, users: Any, values: Any) -> Folded:
        """Return the vector and bias of a new item, from the users that had it."""
        f = self.factors
        return self._fold_in(self.find_users(users), values, f.users, f.user_bias, lambda: self._user_gram)

    def recommend_folded(self, user: Folded, n: int = 10, *, exclude: Any = (), items: Any = None) -> Recommended:
        """Return the best items of a user that was folded in, without those in `exclude`."""
        require_some(n)
        among, unknown = self._among(items)
        skipped = np.unique(self.find_items(exclude))
        best = self._best(user.vector, user.bias, n, among, unknown, skipped[skipped != UNKNOWN])
        return replace(best, by="fold-in")

    @cached_property
    def _tiles(self) -> Tiles:
        return Tiles.of(self.factors.items, self.factors.item_bias, self.popular)

    @cached_property
    def _index(self) -> ItemIndex:
        coded = tuple(self._parts[name] for name in model_files.INDEX)
        return ItemIndex(self.factors.items, self.factors.item_bias, coded, self.threads)

    @cached_property
    def _lengths(self) -> Floats:
        items = self.factors.items
        lengths: Floats = np.sqrt(np.einsum("ij,ij->i", items, items))
        return lengths

    @cached_property
    def _item_gram(self) -> Doubles:
        return fold_in.gram_of(self.factors.items)

    @cached_property
    def _user_gram(self) -> Doubles:
        return fold_in.gram_of(self.factors.users)

    def _fold_in(self, others: Ints, values: Any, factors: Floats, biases: Floats, gram: Any) -> Folded:
        numbers = np.atleast_1d(np.asarray(values, np.float32))
        if len(numbers) != len(others):
            raise ModelError(f"{len(others)} ids and {len(numbers)} values do not fit.", fix="Give a value for each.")
        numbers, others = numbers[others != UNKNOWN], others[others != UNKNOWN]
        try:
            if self.kind == "explicit":
                ridges = fold_in.ridges_of_descent(len(others), **_chosen(self.settings, fold_in.DESCENT))
                return fold_in.from_ratings(others, numbers, factors, biases, self.mean, *ridges)
            chosen = _chosen(self.settings, fold_in.ALTERNATION)
            return fold_in.from_events(others, numbers, factors, gram(), **chosen)
        except KeyError as error:
            raise ModelError(
                f"The model does not say which {error.args[0]} it was trained with.", fix="Train again to fold in."
            ) from error
        except DAMAGE as error:  # factors that are not finite, settings that are not numbers
            raise ModelError(f"The model cannot be folded into: {error}.", fix="Train again to fold in.") from error

    def _best(
        self, vector: Floats, bias: float, n: int, among: Ints | None, unknown: int, skipped: Ints
    ) -> Recommended:
        from dray.learners.factorization import top_kernels

        if among is None and len(self.popular) > model_files.FEW_ITEMS:
            best, scores = self._index.best(vector, n, skipped)
        else:
            choice = np.sort(self.popular) if among is None else among
            scores = np.empty(len(choice))
            no_bias, f = np.zeros(1, np.float32), self.factors
            rows = np.zeros(len(choice), np.int32)
            top_kernels.score_pairs(vector[None], f.items, no_bias, f.item_bias, 0.0, rows, choice, scores)
            scores[np.isin(choice, skipped)] = -np.inf
            places = best_of(scores, n)
            best, scores = choice[places], scores[places]
        return Recommended(self._ids(best), (scores + (self.mean + bias)).astype(np.float32), "factors", unknown)

    def _among(self, items: Any) -> tuple[Ints | None, int]:
        """Return the indices to choose from, ascending, and how many were unknown; None are all."""
        if items is None:
            return None, 0
        found = self.find_items(items)
        known = np.unique(found)
        return known[known != UNKNOWN], int(np.count_nonzero(found == UNKNOWN))

    def _popular_indices(self, n: int, among: Ints | None, skipped: Ints) -> Ints:
        listed = self.popular
        if among is not None:
            listed = listed[np.isin(listed, among)]
        return listed[~np.isin(listed, skipped)][:n] if len(skipped) else listed[:n]

    def _popular(self, n: int, among: Ints | None, unknown: int, skipped: Ints) -> Recommended:
        best = self._popular_indices(n, among, skipped)
        return Recommended(self._ids(best), self._share(best), "popularity", unknown)

    def _share(self, items: Ints) -> Floats:
        """The share of all users that had each item."""
        return (self.item_counts[items] / max(len(self.user_ids), 1)).astype(np.float32)

    def _ids(self, indices: Any) -> pa.Array:
        # Of the array's own memory: `pa.array` imports pandas first, which takes longer than the answer.
        held = np.ascontiguousarray(indices, np.int64)
        return self.item_ids.take(pa.Array.from_buffers(pa.int64(), len(held), [None, pa.py_buffer(held)]))

    def _table(self, users: pa.Array, lists: Ints, scores: Floats, by: By) -> pa.Table:
        """Return lists as rows; a place that no item is left for has no row."""
        rows, ranks = np.nonzero(lists != EMPTY)
        return pa.table(
            {
                "user": users.take(pa.array(rows)),
                "rank": pa.array((ranks + 1).astype(np.int32)),
                "item": self._ids(lists[rows, ranks]),
                "score": pa.array(scores[rows, ranks]),
                "by": pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), pa.array([by])),
            }
        )


def _chosen(settings: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    return {name: float(settings[name]) for name in names}
