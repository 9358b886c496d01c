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

from dray.data.cuts import LARGEST
from dray.data.features import Encoder
from dray.data.parquet import read_slices
from dray.data.shards import Slice, Unit
from dray.data.stream import ahead
from dray.learners.xgboost_model import Model, Output
from dray.learners.xgboost_outputs import Outputs
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
    infinite: dict[str, int]
    """Rows by column whose number counted as missing."""


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
    infinite: Counter[str] = Counter()
    rows = 0
    for slices, destination in files:

        def write(stream: pa.NativeFile, slices: Unit = slices) -> None:
            with pq.ParquetWriter(stream, job.schema) as writer:
                for table in _row_groups(job, model, encoder, infinite, slices, on_rows, on_wait):
                    writer.write_table(table, row_group_size=table.num_rows)

        write_atomically(destination, job.storage, write)
        rows += sum(piece.rows for piece in slices)
    return PredictReport(rows, dict(encoder.unseen), dict(infinite))


def _row_groups(
    job: PredictJob,
    model: Model,
    encoder: Encoder,
    infinite: Counter[str],
    slices: Unit,
    on_rows: Callable[[int], None],
    on_wait: OnWait,
) -> Iterator[pa.Table]:
    """Yield one table of predictions for each row group of the input."""
    categories = [feature.name for feature in model.features if feature.kind == "category"]
    columns = list(dict.fromkeys([*encoder.names, *job.keep]))
    raw = read_slices(slices, columns, categories, job.storage, on_wait)
    batches = ahead(_encoded(raw, encoder, infinite, job.keep))
    for _, parts in groupby(batches, key=lambda part: part[0].row_group):
        tables = []
        for _, kept, matrix in parts:
            arrays = [*kept, *_predictions(job, model, matrix)]
            casted = [array.cast(field.type) for array, field in zip(arrays, job.schema, strict=True)]
            tables.append(pa.Table.from_arrays(casted, schema=job.schema))
            on_rows(len(matrix))
        yield pa.concat_tables(tables)


def _encoded(
    batches: Iterator[tuple[Slice, pa.RecordBatch]], encoder: Encoder, infinite: Counter[str], keep: Sequence[str]
) -> Iterator[tuple[Slice, list[pa.Array], npt.NDArray[np.float32]]]:
    for piece, batch in batches:
        matrix = encoder.matrix(batch)
        infinite.update(_drop_infinite(matrix, encoder.names))
        yield piece, [batch.column(name) for name in keep], matrix


def _drop_infinite(matrix: npt.NDArray[np.float32], names: Sequence[str]) -> dict[str, int]:
    """Make missing what no training row can hold: infinities and the largest float32. Return how many, by column.

    Training refuses them, so no tree knows on which side they belong.
    """
    beyond = matrix >= LARGEST
    beyond |= matrix == -np.inf
    if not beyond.any():
        return {}
    matrix[beyond] = np.nan
    return {names[column]: int(count) for column, count in enumerate(beyond.sum(axis=0)) if count}


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
    suffixes = _suffixes(model)
    if output == "class" and model.is_classifier:
        fields = [pa.field("prediction", pa.string() if model.class_names() else pa.int32())]
    else:
        fields = [pa.field(f"prediction{suffix}", pa.float32()) for suffix in suffixes]
    if contributions:
        fields += [
            pa.field(f"contribution{suffix}_{name}", pa.float32())
            for suffix in suffixes
            for name in [*(feature.name for feature in model.features), "bias"]
        ]
    return pa.schema([*keep, *fields])


def _suffixes(model: Model) -> list[str]:
    """What tells the columns of a prediction apart: classes by name or number, quantiles as q0.9; one has none."""
    outputs = Outputs.of(model.booster)
    if len(outputs.quantiles) > 1:
        return [f"_q{quantile:.9g}" for quantile in outputs.quantiles]
    names = model.class_names()
    if outputs.classes > 1:
        return [f"_{names[index] if names else index}" for index in range(outputs.classes)]
    return [""]
