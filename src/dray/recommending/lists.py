"""One task of a batch: the lists of some users, as rows of user, rank, item, score, by; in memory or in a file."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dray.learners.factorization.factors import Seen
from dray.learners.factorization.model import FactorModel
from dray.storage import StorageOptions, write_atomically

ROWS_AT_ONCE = 1 << 17
"""Rows of a row group: what is held before it is written."""


@dataclass(frozen=True)
class ListsJob:
    """What to do, the same for every task."""

    model: str | FactorModel
    """Where it is; a model itself where everything happens in this process."""
    top: int
    exclude_seen: bool
    items: pa.Array | None
    """To choose from; None are all."""
    threads: int
    storage: StorageOptions


@dataclass(frozen=True)
class ListsTask:
    """Some users: a range of the model's own, others by their ids, or new ones with their events."""

    destination: str | None
    """The file; None keeps the rows."""
    begin: int = 0
    end: int = 0
    users: pa.Array | None = None
    events: Seen | None = None

    @property
    def count(self) -> int:
        return self.end - self.begin if self.users is None else len(self.users)


@dataclass(frozen=True)
class ListsReport:
    users: int
    rows: int
    unknown: int
    """Users who were answered by popularity."""
    folded: int
    table: pa.Table | None = None


def schema_of(model: FactorModel) -> pa.Schema:
    """Return the columns of a list."""
    return pa.schema(
        [
            ("user", model.user_ids.type),
            ("rank", pa.int32()),
            ("item", model.item_ids.type),
            ("score", pa.float32()),
            ("by", pa.dictionary(pa.int32(), pa.string())),
        ]
    )


def make_lists(job: ListsJob, task: ListsTask) -> ListsReport:
    """Do a task. A file appears whole or not at all."""
    model = job.model if isinstance(job.model, FactorModel) else loaded(job.model, job.storage)
    counts = _Counts()
    tables = counts.watch(_tables(model, job, task))
    schema = schema_of(model)
    if task.destination is None:
        kept = list(tables)
        table = pa.concat_tables(kept).unify_dictionaries() if kept else schema.empty_table()
        return ListsReport(task.count, counts.rows, counts.users["popularity"], counts.users["fold-in"], table)

    def write(stream: pa.NativeFile) -> None:
        with pq.ParquetWriter(stream, schema) as writer:
            for table in _gathered(tables):
                writer.write_table(table, row_group_size=max(1, table.num_rows))

    write_atomically(task.destination, job.storage, write)
    return ListsReport(task.count, counts.rows, counts.users["popularity"], counts.users["fold-in"])


@functools.lru_cache(maxsize=1)
def loaded(location: str, storage: StorageOptions) -> FactorModel:
    """Load a model once for all the tasks of a process; local files are mapped, and shared by all processes."""
    return FactorModel.load(location, storage)


def _tables(model: FactorModel, job: ListsJob, task: ListsTask) -> Iterator[pa.Table]:
    n, seen, items, threads = job.top, job.exclude_seen, job.items, job.threads
    if task.events is not None:
        return model.recommend_new(task.users, task.events, n, exclude_seen=seen, items=items, threads=threads)
    if task.users is not None:
        return model.recommend_many(task.users, n, exclude_seen=seen, items=items, threads=threads)
    return model.recommend_between(task.begin, task.end, n, exclude_seen=seen, items=items, threads=threads)


class _Counts:
    def __init__(self) -> None:
        self.rows = 0
        self.users = {"factors": 0, "popularity": 0, "fold-in": 0}

    def watch(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.rows += table.num_rows
            if table.num_rows:  # all of a table are answered alike
                firsts = pc.sum(pc.equal(table["rank"], 1)).as_py()
                self.users[table["by"][0].as_py()] += firsts
            yield table


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of a row group's size."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= ROWS_AT_ONCE:
            yield pa.concat_tables(held).unify_dictionaries()
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held).unify_dictionaries()
