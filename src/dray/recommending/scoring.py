"""`dray predict` for a recommender: a score for each given pair of user and item, one file for each input file."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.features import require_column
from dray.data.parquet import read_slices
from dray.data.shards import Unit
from dray.learners.factorization.events import RowRule, require_id
from dray.learners.factorization.ids import as_ids
from dray.learners.factorization.model import FactorModel
from dray.recommending.lists import loaded
from dray.recommending.running import Runner
from dray.recommending.wanted_ids import as_model_has
from dray.storage import StorageOptions, write_atomically
from dray.telemetry.events import Telemetry

SCORE = "score"


@dataclass(frozen=True)
class ScoreJob:
    """What to score, the same for every file."""

    model: str | FactorModel
    user: str
    item: str
    keep: tuple[str, ...]
    schema: pa.Schema
    """Of the output."""
    storage: StorageOptions


@dataclass(frozen=True, slots=True)
class ScoreReport:
    rows: int
    unknown_users: int
    unknown_items: int


def require_pairs(schema: pa.Schema, rule: RowRule) -> None:
    """Refuse data without the columns of the pairs, or with others than ids in them."""
    for side, name in (("user", rule.user), ("item", rule.item)):
        require_id(name, require_column(schema, name, role=side), side)


def score_all(
    runner: Runner, job: ScoreJob, files: Sequence[tuple[Unit, str]], rows: int, telemetry: Telemetry
) -> list[ScoreReport]:
    """Score every file, each a task."""
    reports: list[ScoreReport] = []
    for report in runner.run(functools.partial(score_file, job), files):
        reports.append(report)
        telemetry.emit("progress", done=sum(report.rows for report in reports), total=rows, unit="rows")
    return reports


def score_file(job: ScoreJob, file: tuple[Unit, str]) -> ScoreReport:
    """Write the scores of a (file, destination), in the order of its rows; it appears whole or not at all."""
    slices, destination = file
    counts = [0, 0, 0]

    def write(stream: pa.NativeFile) -> None:
        with pq.ParquetWriter(stream, job.schema) as writer:
            for table in _row_groups(job, slices, counts):
                writer.write_table(table, row_group_size=table.num_rows)

    write_atomically(destination, job.storage, write)
    return ScoreReport(*counts)


def _row_groups(job: ScoreJob, slices: Unit, counts: list[int]) -> Iterator[pa.Table]:
    """Yield a table for each row group of the input."""
    model = job.model if isinstance(job.model, FactorModel) else loaded(job.model, job.storage)
    columns = list(dict.fromkeys([job.user, job.item, *job.keep]))
    batches = read_slices(slices, columns, (), job.storage)
    for _, parts in groupby(batches, key=lambda part: part[0].row_group):
        tables = []
        for _, batch in parts:
            users = as_model_has(as_ids(batch.column(job.user), "user id"), model.user_ids, "user")
            items = as_model_has(as_ids(batch.column(job.item), "item id"), model.item_ids, "item")
            scores = model.score(users, items)
            for at, count in enumerate((len(batch), scores.unknown_users, scores.unknown_items)):
                counts[at] += count
            arrays = [*(batch.column(name) for name in job.keep), pa.array(scores.values)]
            casted = [array.cast(field.type) for array, field in zip(arrays, job.schema, strict=True)]
            tables.append(pa.Table.from_arrays(casted, schema=job.schema))
        yield pa.concat_tables(tables)
