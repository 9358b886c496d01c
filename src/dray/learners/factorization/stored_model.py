"""What a trained recommender is made of: its arrays and ids, as they are kept in a directory and found by id."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from dray.errors import DAMAGE, ModelError
from dray.learners.factorization import model_files
from dray.learners.factorization.factors import Factors, Ints, Longs, Seen
from dray.learners.factorization.ids import UNKNOWN, Lookup
from dray.learners.factorization.vector_files import write_vectors
from dray.learners.ids import as_ids
from dray.storage import DEFAULT, StorageOptions
from dray.threads.limits import cpus_of_this_process

Kind = Literal["explicit", "implicit"]


class StoredModel:
    """Factors, ids and the pairs of the train subset. `of` makes one, `save` and `load` store and read one."""

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

    @classmethod
    def of(
        cls,
        kind: Kind,
        factors: Factors,
        user_ids: Any,
        item_ids: Any,
        seen: Seen,
        settings: Mapping[str, Any],
        limits: tuple[float, float] | None = None,
        as_of: float | None = None,
    ) -> Self:
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
        return cls(about, model_files.Parts(parts))

    @classmethod
    def load(cls, location: str, storage: StorageOptions = DEFAULT) -> Self:
        """Return the model in a directory. Its arrays are read when they are needed."""
        about, parts = model_files.read(location, storage)
        try:
            return cls(about, parts)
        except DAMAGE as error:
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
        """All items with an event, the most popular first."""
        popular: Ints = self._parts["popular"]
        return popular

    @cached_property
    def _users(self) -> Lookup:
        return Lookup(self.user_ids, self._parts["users_order"], "user id")

    @cached_property
    def _items(self) -> Lookup:
        return Lookup(self.item_ids, self._parts["items_order"], "item id")

    def find_users(self, ids: Any) -> Ints:
        """Return the index of each user, -1 for one that is unknown or had no training event."""
        found = self._users.find(ids)
        return np.where(found != UNKNOWN, self._trained(np.maximum(found, 0)), UNKNOWN).astype(np.int32)

    def find_items(self, ids: Any) -> Ints:
        """Return the index of each item, -1 for one that is unknown or has no event in the train subset."""
        found = self._items.find(ids)
        return np.where((found != UNKNOWN) & (self.item_counts[found] > 0), found, UNKNOWN).astype(np.int32)

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

    def _trained(self, users: Ints) -> Ints:
        """Return UNKNOWN in place of a user without a training event."""
        starts = self._parts["seen_starts"]
        trained: Ints = np.where(starts[users + np.int64(1)] > starts[users], users, UNKNOWN).astype(np.int32)
        return trained
