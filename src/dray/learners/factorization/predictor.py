"""A recommender that predicts rows: a score for each pair of user and item."""

from __future__ import annotations

import pyarrow as pa

from dray.data.features import require_column
from dray.errors import ConfigError
from dray.learners.factorization.events import require_id
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.opening import open_recommender
from dray.learners.factorization.recommender import FactorRecommender
from dray.learners.ids import as_ids, as_model_has
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

    def check(self, schema: pa.Schema) -> None:
        for side, name in zip(("user", "item"), self.columns, strict=True):
            require_id(name, require_column(schema, name, role=side), side)

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

    def prepare(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        model = self._model
        users = as_model_has(as_ids(batch.column(self._user), "user id"), model.user_ids, "user")
        return users, as_model_has(as_ids(batch.column(self._item), "item id"), model.item_ids, "item")

    def predict(self, pairs: tuple[pa.Array, pa.Array]) -> list[pa.Array]:
        scores = self._model.score(*pairs)
        for name, count in ((self._user, scores.unknown_users), (self._item, scores.unknown_items)):
            if count:
                self._counted.unseen[name] += count
        return [pa.array(scores.values)]

    def take_counted(self) -> Counted:
        taken, self._counted = self._counted, Counted()
        return taken


def open_pairs(location: str, storage: StorageOptions) -> PairsPredictor:
    """Open the recommender of a finished run, or of a model's directory."""
    return PairsPredictor(open_recommender(location, storage), location)
