"""One task: read its pieces, transform, filter, write. Runs in any process and returns only its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dray.batch.rejects import Rejects
from dray.data.source import ExtraField, OnReject, Piece, Reject, Source
from dray.errors import DataError
from dray.ingesting.expression import Filter, compile_filter
from dray.ingesting.journal import Journal
from dray.ingesting.limits import Limit
from dray.ingesting.moving_rows import POSITION
from dray.ingesting.plan import Task, part_name, where
from dray.ingesting.recipe import Recipe
from dray.ingesting.transform import Transform
from dray.ingesting.writing import Layout
from dray.ingesting.written import Report
from dray.storage import StorageOptions

TASK_SHIFT = 40
"""The position of a row that must move is task << 40 | row."""


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Does a task. Picklable."""

    source: Source
    transform: Transform | None
    schema: pa.Schema
    """Of the rows after the transform."""
    columns: tuple[str, ...] | None
    """Columns to read; None: all."""
    recipe: Recipe
    layout: Layout
    """Of the files that a task writes: output files, or staged ones."""
    out: str
    storage: StorageOptions
    tasks: int

    def __call__(self, task: Task) -> Report:
        filter_ = compile_filter(self.recipe.filter, self.schema) if self.recipe.filter else None
        carried = list(self.recipe.carried(self.schema.names))
        written = 0
        with (
            Rejects() as rejects,
            self.layout.open(part_name(task.index, self.tasks)) as output,
        ):
            counts = _Counts()
            for batch in self._batches(task.pieces, filter_, rejects, counts):
                batch = batch.select(carried)
                if self.recipe.moves:
                    batch = _with_position(batch, task.index, written)
                output.add(batch)
                written += batch.num_rows
            files = tuple(output.finish())
            journal = Journal(self.out, self.storage)
            if rejects.count:
                journal.write(journal.rejects_name(task.index), rejects.copy_to)
            report = Report(
                task=task.index,
                rows_read=counts.read + rejects.count,
                rows_rejected=rejects.count,
                rows_filtered=counts.filtered,
                rows_transformed=counts.transformed,
                files=files,
                rejects=rejects.by_file(),
                extra_fields=dict(rejects.extra),
            )
            journal.record(report)
        return report

    def _batches(
        self, pieces: Sequence[Piece], filter_: Filter | None, rejects: Rejects, counts: _Counts
    ) -> Iterator[pa.RecordBatch]:
        on_reject = _adding_to(rejects, self.recipe.max_rejects)
        for piece in pieces:
            for read in self.source.read(piece, self.columns, on_reject):
                counts.read += read.num_rows
                made = [read] if self.transform is None else self.transform.batches(read, piece, self.schema)
                for batch in made:
                    counts.transformed += batch.num_rows
                    if filter_ is not None:
                        kept = _filtered(batch, filter_, piece)
                        counts.filtered += batch.num_rows - kept.num_rows
                        batch = kept
                    if batch.num_rows:
                        yield batch


@dataclass(slots=True)
class _Counts:
    read: int = 0
    transformed: int = 0
    filtered: int = 0


def _filtered(batch: pa.RecordBatch, filter_: Filter, piece: Piece) -> pa.RecordBatch:
    try:
        return batch.filter(filter_.mask(batch))
    except pa.ArrowInvalid as error:
        raise DataError(
            f"The filter {filter_.text!r} cannot be computed at {where(piece.name, piece.start, piece.stop)}: "
            f"{str(error).splitlines()[0]}",
            fix="Write it so that no number exceeds its column's type, such as 1.0 * price instead of price.",
        ) from error


def _with_position(batch: pa.RecordBatch, task: int, first: int) -> pa.RecordBatch:
    start = (task << TASK_SHIFT) + first
    return batch.append_column(POSITION, pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64)))


def _adding_to(rejects: Rejects, limit: Limit) -> OnReject:
    """Return what keeps a rejected row, and gives up where a task alone has too many."""

    def add(reject: Reject | ExtraField) -> None:
        rejects.add(reject)
        if limit.rows is not None and rejects.count > limit.rows:
            raise too_many_rejects(f"{rejects.count:,}", limit, rejects.first)

    return add


def too_many_rejects(count: str, limit: Limit, first: str) -> DataError:
    return DataError(
        f"{count} rows could not be read, more than the limit of {limit}. The first: {first}.",
        fix="Correct the data, say how to read it (--format, --read), or leave out more rows: "
        "dray data ingest DATA OUT --max-rejects N.",
    )
