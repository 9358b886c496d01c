"""Trees that predict rows. Loads XGBoost when a model is opened, not before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs as pafs

from dray.data.cuts import LARGEST
from dray.data.features import Encoder
from dray.errors import DataError, ModelError, nearest
from dray.learners.predictor import Counted, PredictionType, Question
from dray.runs.directory import open_run
from dray.storage import StorageOptions, open_storage, translate_errors

if TYPE_CHECKING:
    from dray.learners.xgboost.model import Model

Floats = npt.NDArray[np.float32]


class TreesPredictor:
    """A model of a run or a file; another process gets its bytes, and loads them when it opens it."""

    learner = "xgboost"
    uses_threads = True

    def __init__(self, content: bytes, origin: str) -> None:
        self._content, self._origin = content, origin
        self._model: Model | None = None
        features = self.model.features
        self.columns = tuple(feature.name for feature in features)
        self.categories = tuple(feature.name for feature in features if feature.kind == "category")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None}

    @property
    def model(self) -> Model:
        from dray.learners.xgboost.model import Model

        if self._model is None:
            self._model = Model.from_bytes(self._content, self._origin)
        return self._model

    def check(self, schema: pa.Schema) -> None:
        for feature in self.model.features:
            if feature.name not in schema.names:
                raise DataError(
                    f'The model needs the column "{feature.name}", which the data does not have.'
                    f"{nearest(feature.name, schema.names)}",
                    fix="Add the column (with nulls where it is unknown).",
                )
            arrow = schema.field(feature.name).type
            if not feature.takes(arrow):
                raise DataError(
                    f'The model knows the column "{feature.name}" as a {feature.kind}, the data holds {arrow}.',
                    fix="Write the column with the type it had in training.",
                )

    def fields(self, question: Question) -> list[pa.Field]:
        """Name the columns: `prediction`, one a class where there are several, contributions after."""
        from dray.learners.xgboost.outputs import has_vector_leaves

        model, output = self.model, _type_of(question)
        if output == "probability" and model.objective == "multi:softmax":
            raise ModelError(
                "A multi:softmax model knows classes, no probabilities.",
                fix="Ask for --type class, or train with --objective multiclass.",
            )
        if question.contributions and has_vector_leaves(model.booster):
            raise ModelError(
                "XGBoost has no contributions for trees that predict several numbers at once.",
                fix="Leave out --contributions, or train without multi_strategy=multi_output_tree.",
            )
        suffixes = _suffixes(model)
        if output == "class" and model.is_classifier:
            fields = [pa.field("prediction", pa.string() if model.class_names() else pa.int32())]
        else:
            fields = [pa.field(f"prediction{suffix}", pa.float32()) for suffix in suffixes]
        if question.contributions:
            fields += [
                pa.field(f"contribution{suffix}_{name}", pa.float32())
                for suffix in suffixes
                for name in [*self.columns, "bias"]
            ]
        return fields

    def open(self, question: Question, threads: int, *, own_process: bool) -> OpenTrees:
        if own_process:
            from dray.learners.xgboost.learner import XGBOOST

            XGBOOST.preload()
        return OpenTrees(self.model, question, threads)


class OpenTrees:
    """Rows become the matrix that the trees were grown on, and the matrix predictions."""

    def __init__(self, model: Model, question: Question, threads: int) -> None:
        model.use_threads(threads)
        self._model = model
        self._type = _type_of(question)
        self._contributions = question.contributions
        self._encoder = Encoder(model.features)
        self._counted = Counted()

    def prepare(self, batch: pa.RecordBatch) -> Floats:
        matrix = self._encoder.matrix(batch)
        self._counted.infinite.update(_drop_infinite(matrix, self._encoder.names))
        return matrix

    def predict(self, matrix: Floats) -> list[pa.Array]:
        values = self._model.predict(matrix, self._type)
        names = self._model.class_names()
        if self._type == "class" and names is not None:
            columns: list[pa.Array] = [pa.array(names).take(pa.array(values))]
        else:
            columns = [pa.array(column) for column in (values.T if values.ndim == 2 else [values])]
        if self._contributions:
            shap = self._model.contributions(matrix)
            columns += [pa.array(column) for column in shap.reshape(len(matrix), -1).T]
        return columns

    def take_counted(self) -> Counted:
        taken = Counted(self._encoder.unseen.copy(), self._counted.infinite)
        self._encoder.unseen.clear()
        self._counted = Counted()
        return taken


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
