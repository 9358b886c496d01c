"""Models of tables that predict rows: columns by name and meaning, encoded as in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.data.features import Column, Encoder, stored_names
from dray.errors import ConfigError, DataError, nearest
from dray.learners.predictor import Counted, OpenPredictor, Question

Floats = npt.NDArray[np.float32]


class TableModel(Protocol):
    """What a model has to have."""

    @property
    def features(self) -> Sequence[Column]:
        """The columns, in the order of the matrix."""


M = TypeVar("M", bound=TableModel)


class TablePredictor(Generic[M]):
    """Implements `Predictor`. Another process gets the model's bytes, and parses them when it opens it.

    As it is, it predicts one number a row, by the model's `predict(matrix)`; a learner with more to say overrides
    `fields` and `open`.
    """

    uses_threads = False

    def __init__(self, learner: str, content: bytes, parse: Callable[[bytes], M]) -> None:
        self.learner = learner
        self._content, self._parse = content, parse
        self._model: M | None = None
        self.columns = tuple(stored_names(self.model.features))
        self.categories = tuple(feature.name for feature in self.model.features if feature.kind == "category")
        self.numbers = tuple(stored_names(feature for feature in self.model.features if feature.holds_numbers))
        self.moments = tuple(stored_names(feature for feature in self.model.features if feature.holds_moments))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None}

    @property
    def model(self) -> M:
        if self._model is None:
            self._model = self._parse(self._content)
        return self._model

    def check(self, schema: pa.Schema) -> tuple[str, ...]:
        missing = tuple(name for name in self.columns if name not in schema.names)
        if 2 * len(missing) > len(self.columns):
            raise _other_data(self.columns, missing, schema.names)
        return missing

    def fields(self, question: Question) -> list[pa.Field]:
        if question.type is not None or question.contributions:
            raise ConfigError(
                f"A model of {self.learner} predicts one number a row, and nothing else.",
                fix=f"Leave out --{'contributions' if question.contributions else 'type'}.",
            )
        return [pa.field("prediction", pa.float64())]

    def open(self, question: Question, threads: int, *, own_process: bool) -> OpenPredictor:  # noqa: ARG002
        return OpenTable(self.model)


class OpenTable:
    """Implements `OpenPredictor`."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._encoder = Encoder(model.features, any_type=True)
        self._counted = Counted()

    def prepare(self, batch: pa.RecordBatch) -> Floats:
        return self._encoder.matrix(batch)

    def predict(self, matrix: Floats) -> list[pa.Array]:
        return [pa.array(self._model.predict(matrix))]

    def take_counted(self) -> Counted:
        encoder = self._encoder
        taken = Counted(encoder.unseen.copy(), self._counted.infinite, encoder.unreadable.copy())
        encoder.unseen.clear()
        encoder.unreadable.clear()
        self._counted = Counted()
        return taken


def _other_data(wanted: Sequence[str], missing: Sequence[str], names: Sequence[str]) -> DataError:
    """Say that data has none, or the lesser part, of the columns that a model needs: it is probably another file."""
    of = f"{len(missing):,} of the {len(wanted):,} columns" if len(missing) < len(wanted) else "any of the columns"
    return DataError(
        f"The data does not have {of} that the model needs: {_some(missing)}.{nearest(missing[0], names)}",
        fix=f"Name the data that the model is for; its columns here are {_some(names)}. A file without a header needs "
        f"the names of all its {len(names):,} columns, in order: --read names=A,B,C",
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
