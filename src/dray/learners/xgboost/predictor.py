"""Trees that predict rows. Loads XGBoost when a model is opened, not before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import fs as pafs

from dray.data.cuts import LARGEST
from dray.errors import ModelError
from dray.learners.predictor import PredictionType, Question
from dray.learners.table_predictor import Floats, OpenTable, TablePredictor
from dray.runs.directory import open_run
from dray.storage import StorageOptions, open_storage, translate_errors

if TYPE_CHECKING:
    from dray.learners.xgboost.model import Model


class TreesPredictor(TablePredictor["Model"]):
    """A model of a run or a file."""

    uses_threads = True

    def __init__(self, content: bytes, origin: str) -> None:
        super().__init__("xgboost", content, partial(_parsed, origin))

    def fields(self, question: Question) -> list[pa.Field]:
        """Name the columns: `prediction`, one a class where there are several, contributions after."""
        from dray.learners.xgboost.outputs import has_vector_leaves

        model, output = self.model, _type_of(question)
        if output == "probability" and model.objective == "multi:softmax":
            raise ModelError(
                "A multi:softmax model knows classes, no probabilities.",
                fix="Ask for --type class, or train for it: dray train DATA --objective multiclass.",
            )
        if question.contributions and has_vector_leaves(model.booster):
            raise ModelError(
                "XGBoost has no contributions for trees that predict several numbers at once.",
                fix="Leave out --contributions, or train without multi_strategy=multi_output_tree.",
            )
        suffixes = _suffixes(model)
        if output == "class" and model.is_classifier:
            fields = [pa.field("prediction", pa.int32() if model.classes is None else model.classes.type)]
        else:
            fields = [pa.field(f"prediction{suffix}", pa.float32()) for suffix in suffixes]
        if question.contributions:
            fields += [
                pa.field(f"contribution{suffix}_{name}", pa.float32())
                for suffix in suffixes
                for name in [*(feature.name for feature in model.features), "bias"]
            ]
        return fields

    def open(self, question: Question, threads: int, *, own_process: bool) -> OpenTrees:
        if own_process:
            from dray.learners.xgboost.learner import XGBOOST

            XGBOOST.preload()
        return OpenTrees(self.model, question, threads)


class OpenTrees(OpenTable):
    """Rows become the matrix that the trees were grown on, and the matrix predictions."""

    def __init__(self, model: Model, question: Question, threads: int) -> None:
        super().__init__(model)
        model.use_threads(threads)
        self._type = _type_of(question)
        self._classes = model.classes if self._type == "class" and model.is_classifier else None
        self._contributions = question.contributions

    def prepare(self, batch: pa.RecordBatch) -> Floats:
        matrix = super().prepare(batch)
        self._counted.infinite.update(_drop_infinite(matrix, self._encoder.names))
        return matrix

    def predict(self, matrix: Floats) -> list[pa.Array]:
        values = self._model.predict(matrix, self._type)
        if self._classes is not None:
            columns: list[pa.Array] = [self._classes.take(pa.array(values))]
        else:
            columns = [pa.array(column) for column in (values.T if values.ndim == 2 else [values])]
        if self._contributions:
            shap = self._model.contributions(matrix)
            columns += [pa.array(column) for column in shap.reshape(len(matrix), -1).T]
        return columns


def _parsed(origin: str, content: bytes) -> Model:
    from dray.learners.xgboost.model import Model

    return Model.from_bytes(content, origin)


def open_trees(location: str, storage: StorageOptions) -> TreesPredictor:
    """Open the model of a finished run, or a model file."""
    from dray.learners.xgboost.unknown import MODEL, read_model, rewritten

    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        is_file = filesystem.get_file_info(path).type == pafs.FileType.File
    if is_file:
        with translate_errors(location), filesystem.open_input_stream(path) as stream:
            content = rewritten(bytes(stream.read()), location)
        return TreesPredictor(content, location)
    directory = open_run(location, storage)
    directory.require_finished()
    return TreesPredictor(read_model(directory), directory.path(MODEL))


def _type_of(question: Question) -> PredictionType:
    return question.type or "probability"


def _drop_infinite(matrix: Floats, names: Sequence[str]) -> dict[str, int]:
    """Make missing what no training row can hold: infinities and the largest float32. Return how many, by column.

    Training refuses them, so no tree knows on which side they belong.
    """
    beyond = matrix >= LARGEST
    beyond |= matrix == -np.inf
    if not beyond.any():
        return {}
    matrix[beyond] = np.nan
    return {names[column]: int(count) for column, count in enumerate(beyond.sum(axis=0)) if count}


def _suffixes(model: Model) -> list[str]:
    """What tells the columns of a prediction apart: classes by name or number, quantiles as q0.9; one has none."""
    from dray.learners.xgboost.outputs import Outputs

    outputs = Outputs.of(model.booster)
    if len(outputs.quantiles) > 1:
        return [f"_q{quantile:.9g}" for quantile in outputs.quantiles]
    names = model.class_names()
    if outputs.classes > 1:
        return [f"_{names[index] if names else index}" for index in range(outputs.classes)]
    return [""]
