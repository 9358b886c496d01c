"""One task of a batch: the lists of some users, as rows of user, rank, item, score, by; in memory or in a file."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dray.batch.function import BatchFunction, Context
from dray.batch.table_files import table_file
from dray.learners.recommender import FOLD_IN, POPULARITY, ListQuestion, Recommender, Users
from dray.storage import StorageOptions, write_atomically

ROWS_AT_ONCE = 1 << 17
"""Rows of a row group: what is held before it is written."""


@dataclass(frozen=True)
class ListsTask:
    """Some users, known ones and new ones apart, and the file for their lists; None keeps the rows."""

    users: tuple[Users, ...]
    count: int
    destination: str | None


@dataclass(frozen=True)
class ListsReport:
    users: int
    rows: int
    unknown: int
    """Users that were answered by popularity."""
    folded: int
    table: pa.Table | None = None


@dataclass(frozen=True)
class MakeLists(BatchFunction[ListsTask, ListsReport]):
    """What to do, the same for every task."""

    recommender: Recommender
    question: ListQuestion
    threads: int
    storage: StorageOptions

    def open(self, context: Context) -> Callable[[ListsTask], ListsReport]:  # noqa: ARG002
        return functools.partial(make_lists, self)


def schema_of(recommender: Recommender) -> pa.Schema:
    """Return the columns of a list."""
    return pa.schema(
        [
            ("user", recommender.user_ids.type),
            ("rank", pa.int32()),
            ("item", recommender.item_ids.type),
            ("score", pa.float32()),
            ("by", pa.dictionary(pa.int32(), pa.string())),
        ]
    )


def make_lists(job: MakeLists, task: ListsTask) -> ListsReport:
    """Do a task. A file appears whole or not at all."""
    counts = _Counts()
    tables = counts.watch(
        table for users in task.users for table in job.recommender.lists(users, job.question, job.threads)
    )
    schema = schema_of(job.recommender)
    table, destination = None, task.destination
    if destination is None:
        kept = list(tables)
        table = pa.concat_tables(kept).unify_dictionaries() if kept else schema.empty_table()
    else:

        def write(stream: pa.NativeFile) -> None:
            with table_file(stream, destination, schema) as add:
                for table in _gathered(tables):
                    add(table)

        write_atomically(destination, job.storage, write)
    return ListsReport(task.count, counts.rows, counts.users[POPULARITY], counts.users[FOLD_IN], table)


class _Counts:
    def __init__(self) -> None:
        self.rows = 0
        self.users: Counter[str] = Counter()
        """By how their lists were made."""

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
