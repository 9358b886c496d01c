"""A trained recommender with the ids of its users and items: saved, loaded, identified, asked.

Who is unknown (an id that is not there, or one without a training event) gets a defined answer: a score of what is
known (the mean and the other side's bias; for implicit feedback the share of users who had the item), and popular items
in place of recommended ones, marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dray.errors import ModelError
from dray.learners.factorization import fold_in, model_files
from dray.learners.factorization.factors import Factors, Floats, Ints, Longs, Seen
from dray.learners.factorization.fold_in import Doubles, Folded
from dray.learners.factorization.ids import UNKNOWN, Lookup, as_ids
from dray.learners.factorization.top import NOBODY, ItemIndex, Tiles, best_for_users, best_of, require_some
from dray.learners.factorization.vector_files import write_vectors
from dray.storage import DEFAULT, StorageOptions
from dray.threads.limits import cpus_of_this_process

Kind = Literal["explicit", "implicit"]
By = Literal["factors", "fold-in", "popularity"]
_ROWS_AT_ONCE = 1 << 16
_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of pairs, and how many of them were of somebody unknown."""

    values: Floats
    unknown_users: int
    unknown_items: int


@dataclass(frozen=True, slots=True)
class Recommended:
    """A list of items, the best first."""

    items: pa.Array
    scores: Floats
    """What `score` says; the cosine for similar items; by popularity the share of users who had the item."""
    by: By
    """"popularity" if the one it is for is unknown; "fold-in" if it is known by its events only."""
    unknown_items: int = 0
    """Of the items to choose from, those that the model does not know."""


class FactorModel:
    """Factors, ids and who had what. `FactorModel.of` makes one, `save` and `load` keep one."""

    def __init__(self, about: Mapping[str, Any], parts: model_files.Parts) -> None:
        self._about, self._parts = dict(about), parts
        self.kind: Kind = about["kind"]
        self.mean = float(about["mean"])
        as_of = about.get("as_of")
        self.as_of: float | None = None if as_of is None else float(as_of)
        """Of the newest event it was trained on, in Unix seconds: what the age of events is counted from."""
        self.settings: dict[str, Any] = dict(about["settings"])
        """What it was trained with; folding in needs what fold_in.DESCENT (explicit) or ALTERNATION (implicit) name."""
        low, high = about["limits"] or (-np.inf, np.inf)
        self.limits = (float(low), float(high))
        """Scores of pairs are held within: the scale of explicit ratings."""
        self.threads = min(4, cpus_of_this_process())
        """How many look for one user's items in a large catalogue."""

    @staticmethod
    def of(
        kind: Kind,
        factors: Factors,
        user_ids: Any,
        item_ids: Any,
        seen: Seen,
        settings: Mapping[str, Any],
        limits: tuple[float, float] | None = None,
        as_of: float | None = None,
    ) -> FactorModel:
        """Return a model of arrays in memory. `seen` holds the training part's pairs, and what each came to."""
        users, items = as_ids(user_ids, "user id"), as_ids(item_ids, "item id")
        if (len(users), len(items)) != (len(factors.users), len(factors.items)):
            raise ModelError(
                f"{len(users)} users and {len(items)} items have ids, {len(factors.users)} and "
                f"{len(factors.items)} have factors.",
                fix="Give every index its id.",
            )
        parts = {
            "user_factors": factors.users,
            "item_factors": factors.items,
            "user_bias": factors.user_bias,
            "item_bias": factors.item_bias,
            "seen_starts": np.asarray(seen.starts, np.int64),
            "seen_items": np.asarray(seen.items, np.int32),
            "seen_values": np.ones(len(seen.items), np.float32) if seen.values is None else seen.values,
            "users": users,
            "items": items,
        }
        about = {"kind": kind, "mean": factors.mean, "settings": dict(settings), "limits": limits, "as_of": as_of}
        return FactorModel(about, model_files.Parts(parts))

    @staticmethod
    def load(location: str, storage: StorageOptions = DEFAULT) -> FactorModel:
        """Return the model in a directory. Its arrays are read when they are needed."""
        about, parts = model_files.read(location, storage)
        try:
            return FactorModel(about, parts)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"The model.json of {location} is damaged: {error}.", fix="Train again.") from error

    def save(self, location: str, storage: StorageOptions = DEFAULT) -> None:
        """Write the model as a directory of .npy and .arrow files; model.json comes last."""
        model_files.write(location, storage, self.describe(), self._parts)

    def describe(self) -> dict[str, Any]:
        """What model.json holds."""
        users, factors = self._parts["user_factors"].shape
        return {
            "kind": self.kind,
            "mean": self.mean,
            "settings": self.settings,
            "limits": self._about["limits"],
            "as_of": self.as_of,
            "factors": factors,
            "users": users,
            "items": len(self._parts["item_factors"]),
            "pairs": len(self._parts["seen_items"]),
            "digest": self.digest,
        }

    @cached_property
    def digest(self) -> str:
        """sha256 of arrays and ids, as computed when the model was made."""
        stored = self._about.get("digest")
        return str(stored) if stored else model_files.digest(self.kind, self.mean, self.as_of, self._parts)

    def verify(self) -> None:
        """Read everything and compare it with the digest in model.json."""
        actual = model_files.digest(self.kind, self.mean, self.as_of, self._parts)
        if actual != self.digest:
            raise ModelError(
                f"The model is not what its digest says: {actual[:12]}, not {self.digest[:12]}.",
                fix="Put its files back if there is a copy, or train again.",
            )

    # What it is made of

    @property
    def user_ids(self) -> pa.Array:
        return self._parts["users"]

    @property
    def item_ids(self) -> pa.Array:
        return self._parts["items"]

    @cached_property
    def factors(self) -> Factors:
        parts = self._parts
        return Factors(parts["user_factors"], parts["item_factors"], parts["user_bias"], parts["item_bias"], self.mean)

    @cached_property
    def seen(self) -> Seen:
        return Seen(self._parts["seen_starts"], self._parts["seen_items"], self._parts["seen_values"])

    @property
    def item_counts(self) -> Longs:
        """How many users had each item."""
        counts: Longs = self._parts["item_counts"]
        return counts

    @property
    def popular(self) -> Ints:
        """All items that anybody had, the most popular first."""
        popular: Ints = self._parts["popular"]
        return popular

    @cached_property
    def _users(self) -> Lookup:
        return Lookup(self.user_ids, self._parts["users_order"], "user id")

    @cached_property
    def _items(self) -> Lookup:
        return Lookup(self.item_ids, self._parts["items_order"], "item id")

    @cached_property
    def _index(self) -> ItemIndex:
        coded = tuple(self._parts[name] for name in model_files.INDEX)
        return ItemIndex(self.factors.items, self.factors.item_bias, coded, self.threads)

    def find_users(self, ids: Any) -> Ints:
        """Return the index of each user, -1 for one that is unknown or had no training event."""
        found = self._users.find(ids)
        return np.where(found != UNKNOWN, self._trained(np.maximum(found, 0)), UNKNOWN).astype(np.int32)

    def find_items(self, ids: Any) -> Ints:
        """Return the index of each item, -1 for one that is unknown or that nobody had in the training part."""
        found = self._items.find(ids)
        return np.where((found != UNKNOWN) & (self.item_counts[found] > 0), found, UNKNOWN).astype(np.int32)

    # What it answers

    def score(self, users: Any, items: Any) -> Scores:
        """Return the score of each pair of ids."""
        from dray.learners.factorization import top_kernels

        rows, columns = self.find_users(users), self.find_items(items)
        if len(rows) != len(columns):
            raise ModelError(f"{len(rows)} users and {len(columns)} items are no pairs.", fix="Give as many of both.")
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

        `events` has the items (by their index) and ratings or summed weights of each. Who has none gets what is
        popular.
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
        """Yield the lists of the users in `rows` of `factors`, whose ids stand at `places`."""
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
        """Return what a new user is to the model, from the items it had and its ratings (or summed weights)."""
        f = self.factors
        return self._fold_in(self.find_items(items), values, f.items, f.item_bias, lambda: self._item_gram)

    def fold_in_item(self, users: Any, values: Any) -> Folded:
        """Return what a new item is to the model, from the users who had it."""
        f = self.factors
        return self._fold_in(self.find_users(users), values, f.users, f.user_bias, lambda: self._user_gram)

    def recommend_folded(self, user: Folded, n: int = 10, *, exclude: Any = (), items: Any = None) -> Recommended:
        """Return the best items of a user that was folded in, without those in `exclude`."""
        require_some(n)
        among, unknown = self._among(items)
        skipped = np.unique(self.find_items(exclude))
        best = self._best(user.vector, user.bias, n, among, unknown, skipped[skipped != UNKNOWN])
        return replace(best, by="fold-in")

    def export(
        self,
        location: str,
        side: Literal["items", "users"] = "items",
        *,
        bias_in_vector: bool = False,
        storage: StorageOptions = DEFAULT,
    ) -> None:
        """Write ids and vectors as Parquet, or as Arrow if the name ends so, for an index of nearest neighbours.

        With `bias_in_vector` an item's bias is one more coordinate and a user's is 1, so that the inner product alone
        has the order of the scores.
        """
        ids = self.item_ids if side == "items" else self.user_ids
        vectors = self._parts["item_factors" if side == "items" else "user_factors"]
        bias = self._parts["item_bias" if side == "items" else "user_bias"]
        extra = (bias if side == "items" else np.ones(len(ids), np.float32)) if bias_in_vector else None
        about = {"kind": self.kind, "mean": repr(self.mean), "digest": self.digest}
        write_vectors(location, storage, ids, vectors, bias, extra, about)

    # How

    @cached_property
    def _tiles(self) -> Tiles:
        return Tiles.of(self.factors.items, self.factors.item_bias, self.popular)

    def _trained(self, users: Ints) -> Ints:
        """Return UNKNOWN in place of a user without a training event."""
        starts = self._parts["seen_starts"]
        trained: Ints = np.where(starts[users + np.int64(1)] > starts[users], users, UNKNOWN).astype(np.int32)
        return trained

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
        except KeyError as error:
            raise ModelError(
                f"The model does not say which {error.args[0]} it was trained with.", fix="Train again to fold in."
            ) from error
        return fold_in.from_events(others, numbers, factors, gram(), **chosen)

    def _best(
        self, vector: Floats, bias: float, n: int, among: Ints | None, unknown: int, skipped: Ints
    ) -> Recommended:
        from dray.learners.factorization import top_kernels

        if among is None and len(self.popular) > model_files.FEW_ITEMS:
            best, scores = self._index.best(vector, n, skipped)
        else:
            choice = np.sort(self.popular) if among is None else among
            scores = np.empty(len(choice))
            nobody, f = np.zeros(1, np.float32), self.factors
            rows = np.zeros(len(choice), np.int32)
            top_kernels.score_pairs(vector[None], f.items, nobody, f.item_bias, 0.0, rows, choice, scores)
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
        """Which part of all users had each item."""
        return (self.item_counts[items] / max(len(self.user_ids), 1)).astype(np.float32)

    def _ids(self, indices: Any) -> pa.Array:
        # Of the array's own memory: `pa.array` imports pandas first, which takes longer than the answer.
        held = np.ascontiguousarray(indices, np.int64)
        return self.item_ids.take(pa.Array.from_buffers(pa.int64(), len(held), [None, pa.py_buffer(held)]))

    def _table(self, users: pa.Array, lists: Ints, scores: Floats, by: By) -> pa.Table:
        """Return lists as rows; a place that no item is left for has no row."""
        rows, ranks = np.nonzero(lists != NOBODY)
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
