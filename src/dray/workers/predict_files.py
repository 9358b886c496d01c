"""Predict some files: batches in, predictions out, one output file for each input file.

Memory is that of a few batches and of one row group's predictions, whatever the size of the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.features import Encoder
from dray.data.parquet import read_slices
from dray.data.shards import Slice, Unit
from dray.data.stream import ahead
from dray.learners.xgboost_model import Model, Output
from dray.retry import OnWait, no_word
from dray.storage import StorageOptions, write_atomically


@dataclass(frozen=True)
class PredictJob:
    """What to predict, the same for every worker."""

    model: bytes
    origin: str
    output: Output
    keep: tuple[str, ...]
    contributions: bool
    schema: pa.Schema
    """Of the output."""
    storage: StorageOptions


@dataclass(frozen=True, slots=True)
class PredictReport:
    rows: int
    unseen: dict[str, int]


def predict_files(
    job: PredictJob,
    files: Sequence[tuple[Unit, str]],
    threads: int,
    on_rows: Callable[[int], None],
    on_wait: OnWait = no_word,
) -> PredictReport:
    """Write the predictions of every (file, destination); each destination appears whole or not at all."""
    model = Model.from_bytes(job.model, job.origin)
    model.use_threads(threads)
    encoder = Encoder(model.features)
    rows = 0
    for slices, destination in files:

        def write(stream: pa.NativeFile, slices: Unit = slices) -> None:
            with pq.ParquetWriter(stream, job.schema) as writer:
                for table in _row_groups(job, model, encoder, slices, on_rows, on_wait):
                    writer.write_table(table, row_group_size=table.num_rows)

        write_atomically(destination, job.storage, write)
        rows += sum(piece.rows for piece in slices)
    return PredictReport(rows, dict(Counter(encoder.unseen)))


def _row_groups(
    job: PredictJob,
    model: Model,
    encoder: Encoder,
    slices: Unit,
    on_rows: Callable[[int], None],
    on_wait: OnWait,
) -> Iterator[pa.Table]:
    """Yield one table of predictions for each row group of the input."""
    categories = [feature.name for feature in model.features if feature.kind == "category"]
    columns = list(dict.fromkeys([*encoder.names, *job.keep]))
    batches = ahead(_encoded(read_slices(slices, columns, categories, job.storage, on_wait), encoder, job.keep))
    for _, parts in groupby(batches, key=lambda part: part[0].row_group):
        tables = []
        for _, kept, matrix in parts:
            arrays = [*kept, *_predictions(job, model, matrix)]
            casted = [array.cast(field.type) for array, field in zip(arrays, job.schema, strict=True)]
            tables.append(pa.Table.from_arrays(casted, schema=job.schema))
            on_rows(len(matrix))
        yield pa.concat_tables(tables)


def _encoded(
    batches: Iterator[tuple[Slice, pa.RecordBatch]], encoder: Encoder, keep: Sequence[str]
) -> Iterator[tuple[Slice, list[pa.Array], npt.NDArray[np.float32]]]:
    for piece, batch in batches:
        yield piece, [batch.column(name) for name in keep], encoder.matrix(batch)


def _predictions(job: PredictJob, model: Model, matrix: npt.NDArray[np.float32]) -> list[pa.Array]:
    values = model.predict(matrix, job.output)
    names = model.class_names()
    if job.output == "class" and names is not None:
        columns: list[Any] = [pa.array(names).take(pa.array(values))]
    else:
        columns = [pa.array(column) for column in (values.T if values.ndim == 2 else [values])]
    if job.contributions:
        shap = model.contributions(matrix)
        columns += [pa.array(column) for column in shap.reshape(len(matrix), -1).T]
    return columns


def output_schema(model: Model, output: Output, keep: Sequence[pa.Field], *, contributions: bool) -> pa.Schema:
    """Name the columns of the output: `prediction`, one a class where there are several, contributions after."""
    names = model.class_names()
    classes = _classes_of(model)
    suffixes = [f"_{names[index] if names else index}" for index in range(classes)] if classes > 1 else [""]
    if output == "class" and model.is_classifier:
        fields = [pa.field("prediction", pa.string() if names else pa.int32())]
    else:
        fields = [pa.field(f"prediction{suffix}", pa.float32()) for suffix in suffixes]
    if contributions:
        fields += [
            pa.field(f"contribution{suffix}_{name}", pa.float32())
            for suffix in suffixes
            for name in [*(feature.name for feature in model.features), "bias"]
        ]
    return pa.schema([*keep, *fields])


def _classes_of(model: Model) -> int:
    """Columns that a prediction has; a model that answers with the class itself has one."""
    if model.objective == "multi:softmax" or not model.objective.startswith("multi:"):
        return 1
    probe = np.full((1, len(model.features)), np.nan, dtype=np.float32)
    return int(np.atleast_2d(model.predict(probe, "margin")).shape[1])
