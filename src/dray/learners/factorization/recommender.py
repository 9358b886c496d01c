"""A factor model as a recommender: with the columns of its run, and where its files are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dray.data.shards import Slice
from dray.learners.factorization.events import RowRule, require_columns
from dray.learners.factorization.ids import UNKNOWN
from dray.learners.factorization.model import FactorModel, Recommended
from dray.learners.factorization.new_users import NewUsers, for_model, read_users
from dray.learners.recommender import EventUsers, ListQuestion, Users
from dray.storage import DEFAULT, StorageOptions

PLAIN = RowRule(user="user", item="item")
"""The columns of a model without a run."""


class FactorRecommender:
    """Another process gets the location of the model, whose arrays it maps."""

    def __init__(
        self,
        model: FactorModel,
        rule: RowRule = PLAIN,
        half_life_s: float | None = None,
        location: str | None = None,
        storage: StorageOptions = DEFAULT,
    ) -> None:
        self._model: FactorModel | None = model
        self._rule, self._half_life_s, self._storage = rule, half_life_s, storage
        self.location = location
        self.user_column, self.item_column = rule.user, rule.item

    def __getstate__(self) -> dict[str, Any]:
        assert self.location is not None, "a model in memory stays in its process"
        return self.__dict__ | {"_model": None}

    @property
    def model(self) -> FactorModel:
        if self._model is None:
            assert self.location is not None
            self._model = FactorModel.load(self.location, self._storage)
        return self._model

    @property
    def user_ids(self) -> pa.Array:
        return self.model.user_ids

    @property
    def item_ids(self) -> pa.Array:
        return self.model.item_ids

    def count_unknown(self, items: pa.Array) -> int:
        return int(np.count_nonzero(self.model.find_items(items) == UNKNOWN))

    def check_events(self, schema: pa.Schema) -> None:
        require_columns(schema, for_model(self._rule, self.model))

    def read_users(self, slices: Sequence[Slice], storage: StorageOptions) -> EventUsers:
        return read_users(slices, self.model, self._rule, self._half_life_s, storage)

    def lists(self, users: Users, question: ListQuestion, threads: int) -> Iterator[pa.Table]:
        asked: dict[str, Any] = {
            "n": question.top,
            "exclude_seen": question.exclude_seen,
            "items": question.items,
            "threads": threads,
        }
        if isinstance(users, range):
            return self.model.recommend_between(users.start, users.stop, **asked)
        if isinstance(users, NewUsers):
            return self.model.recommend_new(users.ids, users.events, **asked)
        return self.model.recommend_many(users, **asked)

    def similar(self, item: str | int, top: int) -> Recommended:
        return self.model.similar(item, top)

    def export(
        self, location: str, side: Literal["users", "items"], *, bias_in_vector: bool, storage: StorageOptions
    ) -> None:
        self.model.export(location, side, bias_in_vector=bias_in_vector, storage=storage)
