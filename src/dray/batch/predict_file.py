"""Predict one file after the other: batches in, predictions out; a row of the output for each row of the input.

Memory is that of a few batches and of one row group's predictions, whatever the size of the data.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.batch.function import BatchFunction, Context
from dray.batch.input_files import InputFile, Rows, rows_of_pieces, rows_of_slices
from dray.batch.rejects import Rejects
from dray.batch.table_files import table_file
from dray.batch.written import Written
from dray.data.source import Source
from dray.data.stream import ahead
from dray.errors import DataError, StorageError
from dray.learners.predictor import Counted, OpenPredictor, Predictor, Question
from dray.storage import StorageOptions, write_atomically
from dray.threads.apply import apply

FILE, ROW_NUMBER = "file", "row_number"
"""Columns of the output that say which row it is."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file of predictions, and whose they are."""

    inputs: tuple[InputFile, ...]
    destination: str
    rejects: str
    """Where the rows that cannot be read are listed, if there are any."""


@dataclass(frozen=True, slots=True)
class FileReport:
    rows: int
    counted: Counted
    rejected: int
    first_reject: str
    extra_fields: dict[str, int]
    """Rows by the field that was left out of them."""


@dataclass(frozen=True, slots=True)
class RowsDone:
    """Told: so many rows of an input are predicted."""

    name: str
    rows: int
    bytes: int = 0
    """Of the input before these rows, where its rows are not known beforehand."""


@dataclass(frozen=True, slots=True)
class StoreWait:
    """Told: a store does not answer, and is asked again."""

    host: str
    what: str


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are read, and those that come before the predictions."""

    known: tuple[str, ...]
    """Those that the model reads and the data has."""
    missing: tuple[str, ...]
    """Those that the model reads and the data does not have: nulls."""
    kept: tuple[pa.Field, ...]
    """Copied to the output, with the types that they have there."""
    file: bool = False
    row_number: bool = False

    @property
    def read(self) -> list[str]:
        return list(dict.fromkeys([*self.known, *(field.name for field in self.kept)]))

    @property
    def carried(self) -> list[pa.Field]:
        """The columns of the output before the predictions."""
        file = [pa.field(FILE, pa.string())] if self.file else []
        return [*file, *([pa.field(ROW_NUMBER, pa.int64())] if self.row_number else []), *self.kept]


@dataclass(frozen=True)
class PredictFile(BatchFunction[OutputFile, FileReport]):
    """What to predict, the same for every file."""

    predictor: Predictor
    question: Question
    columns: Columns
    schema: pa.Schema
    """Of the output."""
    storage: StorageOptions
    source: Source | None
    """None: the inputs are slices of Parquet."""
    written: Written

    def open(self, context: Context) -> Callable[[OutputFile], FileReport]:
        opened = self.predictor.open(self.question, context.threads, own_process=context.own_process)

        def write(file: OutputFile) -> FileReport:
            with apply(context.threads), Rejects() as rejects:
                return _Writing(self, opened, context, file, rejects).write()

        return write


class _Abandoned(Exception):  # noqa: N818  (not a failure)
    """Reading ends: the file is given up."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Some rows, as the model takes them."""

    group: tuple[int, int]
    """Number of the input, and of the row group."""
    rows: int
    done: RowsDone
    carried: list[pa.Array]
    good: pa.Array | None
    """True for the rows that could be read; None: all."""
    taken: Any
    """What the predictor takes; None if there is no good row."""


class _Writing:
    """One file on its way; it appears whole or not at all, with a row for each row of its inputs, in order."""

    def __init__(
        self, job: PredictFile, predictor: OpenPredictor, context: Context, file: OutputFile, rejects: Rejects
    ) -> None:
        self._job, self._predictor, self._context, self._file, self._rejects = job, predictor, context, file, rejects
        self._abandoned = threading.Event()
        self._unreadable: Counter[str] = Counter()
        """Of columns that are copied."""
        self._unfit: Counter[str] = Counter()
        """Of columns that the model reads: texts that are no times of their form."""

    def write(self) -> FileReport:
        self._predictor.take_counted()  # of a file that failed
        rows = 0

        def write(stream: pa.NativeFile) -> None:
            nonlocal rows
            with table_file(stream, self._file.destination, self._job.schema) as add:
                for table in self._row_groups():
                    add(table)
                    rows += table.num_rows

        write_atomically(self._file.destination, self._job.storage, write)
        rejected = self._rejects.count
        if rejected:
            write_atomically(self._file.rejects, self._job.storage, self._rejects.copy_to)
        counted = self._predictor.take_counted()
        counted.unreadable += self._unfit  # without those of which none was lost
        counted.unreadable |= self._unreadable  # the larger: a row that neither can use is one row
        first = self._rejects.first if rejected else ""
        return FileReport(rows, counted, rejected, first, dict(self._rejects.extra))

    def _row_groups(self) -> Iterator[pa.Table]:
        """Yield the predictions, a table for each row group."""
        for _, some in groupby(ahead(self._prepared(), self._abandoned.set), key=lambda prepared: prepared.group):
            tables = []
            for prepared in some:
                tables.append(self._table(prepared))
                self._context.tell(prepared.done)
            yield pa.concat_tables(tables)

    def _table(self, prepared: _Prepared) -> pa.Table:
        schema = self._job.schema
        if prepared.taken is None:
            found = [pa.nulls(prepared.rows)] * (len(schema) - len(prepared.carried))
        else:
            found = list(self._predictor.predict(prepared.taken))
            if prepared.good is not None:
                found = _in_place(found, prepared.good)
        arrays = [*prepared.carried, *found]
        casted = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
        return pa.Table.from_arrays(casted, schema=schema)

    def _prepared(self) -> Iterator[_Prepared]:
        """Yield the batches as the model takes them, with the columns to keep. Runs in a thread of its own."""
        for number, file in enumerate(self._file.inputs):
            first = 0
            for rows in self._rows_of(file):
                count = rows.batch.num_rows
                if count == 0:
                    continue
                good = None if rows.rejected is None else pc.invert(rows.rejected)
                batch = rows.batch if good is None else rows.batch.filter(good)
                yield _Prepared(
                    (number, rows.group),
                    count,
                    RowsDone(file.name, first + count, rows.bytes),
                    self._carried(rows.batch, file, first),
                    good,
                    self._predictor.prepare(self._as_model_reads(batch)) if batch.num_rows else None,
                )
                first += count

    def _rows_of(self, file: InputFile) -> Iterator[Rows]:
        job, columns = self._job, self._job.columns.read
        if job.source is not None:
            return rows_of_pieces(job.source, file.pieces, columns, self._rejects.add)
        categories = [name for name in job.predictor.categories if name in columns]
        return rows_of_slices(file.slices, columns, categories, job.storage, self._on_wait)

    def _as_model_reads(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch, lost = self._job.written.as_meant(batch.select(self._job.columns.known), self._job.predictor.numbers)
        self._unfit.update(lost)
        for name in self._job.columns.missing:
            batch = batch.append_column(name, pa.nulls(batch.num_rows))
        return batch

    def _carried(self, batch: pa.RecordBatch, file: InputFile, first: int) -> list[pa.Array]:
        columns, count = self._job.columns, batch.num_rows
        found = [pa.repeat(pa.scalar(file.name), count)] if columns.file else []
        if columns.row_number:
            found.append(pa.array(np.arange(first, first + count, dtype=np.int64)))
        return found + [self._kept(field, batch.column(field.name), file) for field in columns.kept]

    def _kept(self, field: pa.Field, values: pa.Array, file: InputFile) -> pa.Array:
        found, lost = self._job.written.as_kept(field.name, values, field.type)
        if lost:
            self._unreadable[field.name] += lost
        try:
            return found.cast(field.type)
        except pa.ArrowInvalid as error:
            raise DataError(
                f'Column "{field.name}" of {file.name} is {found.type}, and {field.type} in all files together, which '
                f"cannot hold every value: {(str(error).splitlines() or [''])[0]}",
                fix="Leave it out of --keep and --key, or write it with one type in all files.",
            ) from error

    def _on_wait(self, error: StorageError, _wait_s: float) -> None:
        if self._abandoned.is_set():
            raise _Abandoned
        self._context.tell(StoreWait(socket.gethostname(), error.what))


def _in_place(arrays: list[pa.Array], good: pa.Array) -> list[pa.Array]:
    """Return the predictions of the good rows in their places, with nulls between them."""
    places = pc.subtract(pc.cumulative_sum(good.cast(pa.int64())), 1)
    places = pc.if_else(good, places, None)
    return [array.take(places) for array in arrays]
