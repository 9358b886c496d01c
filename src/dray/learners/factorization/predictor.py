"""A recommender that predicts rows: a score for each pair of user and item."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.features import require_column
from dray.errors import ConfigError
from dray.learners.factorization.factors import Ints
from dray.learners.factorization.ids import UNKNOWN
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.opening import open_recommender
from dray.learners.factorization.recommender import FactorRecommender
from dray.learners.ids import ids_like
from dray.learners.predictor import Counted, Question
from dray.storage import StorageOptions

SCORE = "score"


class PairsPredictor:
    """Scores pairs. Another process gets the location of the model, as the recommender pickles."""

    learner = "factorization"
    categories: tuple[str, ...] = ()
    uses_threads = False

    def __init__(self, recommender: FactorRecommender, named: str) -> None:
        self._recommender, self._named = recommender, named
        self.columns: tuple[str, ...] = (recommender.user_column, recommender.item_column)

    @property
    def model(self) -> FactorModel:
        return self._recommender.model

    @property
    def moments(self) -> tuple[str, ...]:
        return ()

    @property
    def numbers(self) -> tuple[str, ...]:
        ids = (self.model.user_ids, self.model.item_ids)
        return tuple(name for name, side in zip(self.columns, ids, strict=True) if pa.types.is_integer(side.type))

    def check(self, schema: pa.Schema) -> tuple[str, ...]:
        for side, name in zip(("user", "item"), self.columns, strict=True):
            require_column(schema, name, role=side)
        return ()

    def fields(self, question: Question) -> list[pa.Field]:
        if question.type is not None or question.contributions:
            raise ConfigError(
                f"The run {self._named} is a recommender: it has scores of pairs, no "
                f"{'contributions' if question.contributions else 'types of predictions'}.",
                fix=f"Leave out --{'contributions' if question.contributions else 'type'}.",
            )
        return [pa.field(SCORE, pa.float32())]

    def open(self, question: Question, threads: int, *, own_process: bool) -> OpenPairs:  # noqa: ARG002
        return OpenPairs(self.model, *self.columns)


class OpenPairs:
    def __init__(self, model: FactorModel, user: str, item: str) -> None:
        self._model, self._user, self._item = model, user, item
        self._counted = Counted()

    def prepare(self, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
        model = self._model
        return (
            self._found(batch, self._user, model.user_ids, model.find_users),
            self._found(batch, self._item, model.item_ids, model.find_items),
        )

    def _found(self, batch: pa.RecordBatch, name: str, like: pa.Array, find: Callable[[pa.Array], Ints]) -> Ints:
        """Return the indices of the ids in a column; one that is missing is as unknown as a new one, and counted."""
        ids, lost = ids_like(batch.column(name), like.type)
        found = np.full(len(ids), UNKNOWN, np.int32)
        found[pc.is_valid(ids).to_numpy(zero_copy_only=False)] = find(ids.drop_null())
        if lost:
            self._counted.unreadable[name] += lost
        if unknown := int(np.count_nonzero(found == UNKNOWN)) - lost:
            self._counted.unseen[name] += unknown
        return found

    def predict(self, pairs: tuple[Ints, Ints]) -> list[pa.Array]:
        return [pa.array(self._model.score_at(*pairs).values)]

    def take_counted(self) -> Counted:
        taken, self._counted = self._counted, Counted()
        return taken


def open_pairs(location: str, storage: StorageOptions) -> PairsPredictor:
    """Open the recommender of a finished run, or of a model's directory."""
    return PairsPredictor(open_recommender(location, storage), location)
