"""Predict one file after the other: batches in, predictions out, one output file for each input file.

Memory is that of a few batches and of one row group's predictions, whatever the size of the data.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dray.batch.function import BatchFunction, Context
from dray.data.parquet import read_slices
from dray.data.shards import Slice, Unit, rows_of
from dray.data.stream import ahead
from dray.errors import StorageError
from dray.learners.predictor import Counted, OpenPredictor, Predictor, Question
from dray.storage import StorageOptions, write_atomically
from dray.threads.apply import apply

File = tuple[Unit, str]
"""The slices of a file, and where its predictions go."""


@dataclass(frozen=True, slots=True)
class FileReport:
    rows: int
    counted: Counted


@dataclass(frozen=True, slots=True)
class RowsDone:
    """Told: so many rows of a file are predicted."""

    destination: str
    rows: int


@dataclass(frozen=True, slots=True)
class StoreWait:
    """Told: a store does not answer, and is asked again."""

    host: str
    what: str


@dataclass(frozen=True)
class PredictFile(BatchFunction[File, FileReport]):
    """What to predict, the same for every file."""

    predictor: Predictor
    question: Question
    keep: tuple[str, ...]
    schema: pa.Schema
    """Of the output."""
    storage: StorageOptions

    def open(self, context: Context) -> Callable[[File], FileReport]:
        opened = self.predictor.open(self.question, context.threads, own_process=context.own_process)

        def write(file: File) -> FileReport:
            with apply(context.threads):
                return _Writing(self, opened, context, file).write()

        return write


class _Abandoned(Exception):  # noqa: N818  (not a failure)
    """Reading ends: the file is given up."""


class _Writing:
    """One file on its way; it appears whole or not at all, rows and row groups as in the input."""

    def __init__(self, job: PredictFile, predictor: OpenPredictor, context: Context, file: File) -> None:
        self._job, self._predictor, self._context = job, predictor, context
        self._slices, self._destination = file
        self._abandoned = threading.Event()

    def write(self) -> FileReport:
        self._predictor.take_counted()  # of a file that failed

        def write(stream: pa.NativeFile) -> None:
            with pq.ParquetWriter(stream, self._job.schema) as writer:
                for table in self._row_groups():
                    writer.write_table(table, row_group_size=table.num_rows)

        write_atomically(self._destination, self._job.storage, write)
        return FileReport(rows_of((self._slices,)), self._predictor.take_counted())

    def _row_groups(self) -> Iterator[pa.Table]:
        """Yield one table of predictions for each row group of the input."""
        schema, rows = self._job.schema, 0
        for _, batches in groupby(
            ahead(self._prepared(), self._abandoned.set), key=lambda prepared: prepared[0].row_group
        ):
            tables = []
            for slice_, kept, prepared in batches:
                arrays = [*kept, *self._predictor.predict(prepared)]
                casted = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
                tables.append(pa.Table.from_arrays(casted, schema=schema))
                rows += slice_.rows
                self._context.tell(RowsDone(self._destination, rows))
            yield pa.concat_tables(tables)

    def _prepared(self) -> Iterator[tuple[Slice, list[pa.Array], Any]]:
        """Yield the batches as the model takes them, with the columns to keep. Runs in a thread of its own."""
        job = self._job
        columns = list(dict.fromkeys([*job.predictor.columns, *job.keep]))
        for slice_, batch in read_slices(self._slices, columns, job.predictor.categories, job.storage, self._on_wait):
            yield slice_, [batch.column(name) for name in job.keep], self._predictor.prepare(batch)

    def _on_wait(self, error: StorageError, _wait_s: float) -> None:
        if self._abandoned.is_set():
            raise _Abandoned
        self._context.tell(StoreWait(socket.gethostname(), error.what))
