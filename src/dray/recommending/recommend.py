"""`dray recommend`: the best items of many users, in bounded memory, in this process or on workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dray.batch.engine import Emit
from dray.batch.output import Output
from dray.batch.still_needed import locations_of
from dray.batch.table_files import kind_of_file
from dray.batch.tasks import Count, TaskRun, Workers
from dray.data.parquet import open_dataset
from dray.errors import ConfigError, DataError
from dray.events.format import many
from dray.events.kinds import PhaseStarted, Progress, Warned
from dray.events.telemetry import Sink, Telemetry
from dray.ingesting.cache import PLAIN, Reading, as_parquet
from dray.ingesting.new_data import as_trained, columns_without_rows, trained_on, with_types
from dray.learners.recommender import (
    EventUsers,
    ListQuestion,
    NewUsers,
    Recommender,
    RecommendingModel,
    Users,
    require_some,
)
from dray.learners.stored import open_recommender
from dray.recommending.lists import ListsReport, ListsTask, MakeLists, schema_of
from dray.recommending.wanted_ids import ids_of
from dray.storage import DEFAULT, StorageOptions, absolute, join

ROWS_A_FILE = 2_000_000
TASKS_A_WORKER = 4
"""So that the last ones end at about the same time."""


@dataclass(frozen=True, slots=True)
class RecommendResult:
    """What recommending for many users came to."""

    users: int
    users_unknown: int
    """Users without a training event that the model knows: what is popular was recommended to them."""
    users_folded: int
    """New users whose vectors were made from their events."""
    items_unknown: int
    """Of the items to choose from, those that the model does not know."""
    rows: int
    seconds: float
    users_per_second: float
    peak_memory_bytes: int
    output: str | None
    files: int
    workers: int
    """0: this process."""
    table: pa.Table | None = None
    """The lists themselves, if they were not written."""

    def to_json(self) -> dict[str, Any]:
        document = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "table"}
        return document if self.table is None else document | {"recommendations": self.table.to_pylist()}


def recommend(
    model: str | RecommendingModel,
    *,
    users: Any = None,
    top: int = 10,
    exclude_seen: bool = True,
    items: Any = None,
    events: Any = None,
    out: str | None = None,
    overwrite: bool = False,
    workers: Count = "auto",
    threads: int | None = None,
    cluster: str = "local",
    storage: StorageOptions = DEFAULT,
    reading: Reading = PLAIN,
    sinks: Sequence[Sink] = (),
    most_users: int | None = None,
) -> RecommendResult:
    """Find the `top` best items of `users` (a file, ids, or all that the model knows) and write them to `out`.

    `out` is one file of the kind that its ending says, or a directory of Parquet files. Without it, the result has the
    lists; `most_users` limits them. `items` restricts what is chosen from. `events` are those of new users, which are
    folded in; without `users` the users of these events are answered.
    """
    begin = time.perf_counter()
    require_some(top)
    telemetry = Telemetry(sinks)
    try:
        known = open_recommender(model, storage)
        asked = None if users is None else ids_of(users, known.user_ids, "user", known.user_column, storage)
        among = None if items is None else ids_of(items, known.item_ids, "item", known.item_column, storage)
        unknown = 0 if among is None else known.count_unknown(among)
        found = None if events is None else _read_users(events, model, known, storage, telemetry.emit, reading)
        _warn(telemetry, found)
        groups = _groups(known, asked, found)
        count = sum(group.count for group in groups)
        if most_users is not None and count > most_users:
            raise ConfigError(
                f"The lists of {count:,} users are too many to show: the most is {most_users}.",
                fix="Write them with --out DIR, or name fewer with --users.",
            )
        where = Workers.of(workers, threads, cluster, count)
        _require_reachable(known, out, where)
        tasks = _tasks(groups, count, top, out, where)
        job = MakeLists(known, ListQuestion(top, exclude_seen, among), where.threads or 1, storage)
        tasks_run = TaskRun(where, telemetry.emit)
        single = out is not None and kind_of_file(out) is not None
        reads = locations_of(events, *(ids for ids in (users, items) if isinstance(ids, str)))  # a list has the ids
        wanted = None if out is None else Output(out, storage, is_file=single, overwrite=overwrite, reads=reads)
        with wanted or nullcontext() as place:
            reports = _run(tasks_run, job, _written_at(place, tasks), count, telemetry)
    finally:
        telemetry.close()
    seconds = time.perf_counter() - begin
    tables = [report.table for report in reports if report.table is not None]
    return RecommendResult(
        users=count,
        users_unknown=sum(report.unknown for report in reports),
        users_folded=sum(report.folded for report in reports),
        items_unknown=unknown,
        rows=sum(report.rows for report in reports),
        seconds=round(seconds, 3),
        users_per_second=round(count / seconds, 1),
        peak_memory_bytes=tasks_run.peak_memory_bytes,
        output=None if out is None else absolute(out),
        files=0 if out is None else len(tasks),
        workers=tasks_run.workers,
        table=None if out is not None else _in_order(tables, asked, known),
    )


def _read_users(
    data: Any, model: Any, known: Recommender, storage: StorageOptions, emit: Emit, reading: Reading
) -> EventUsers:
    """Read events as those of the run were, their ids as they are written."""
    before = trained_on(model, storage)
    reading = as_trained(data, (known.user_column, known.item_column), before, reading, storage, emit)
    ids = {known.user_column: pa.string(), known.item_column: pa.string()}  # the recommender makes its own of them
    reading = with_types(data, ids, before.types, reading, storage)
    try:
        parquet = as_parquet(data, storage, reading, emit, known.check_events)
        groups = open_dataset(parquet, storage, may_be_empty=True).row_groups
    except DataError:
        if (columns := columns_without_rows(data, reading, storage)) is None:
            raise
        if len(columns):
            known.check_events(columns)
        groups = ()
    if not groups:
        emit(Warned("The events have no rows: no list is made from them.", fix="Check that they were written whole."))
    return known.read_users(groups, storage)


def _groups(known: Recommender, asked: pa.Array | None, found: EventUsers | None) -> list[_Group]:
    """Return the users to answer: the model's own, others by id, new ones; each group is cut into tasks."""
    if found is None:
        return [_Group(len(known.user_ids) if asked is None else len(asked), asked)]
    if asked is None:
        return [_Group(len(found.known), found.known), _Group(len(found.new.ids), found.new)]
    new = found.new.only(asked)
    others = asked.filter(pc.invert(pc.is_in(asked, new.ids)))
    return [_Group(len(others), others), _Group(len(new.ids), new)]


@dataclass(frozen=True)
class _Group:
    count: int
    users: pa.Array | NewUsers | None
    """None are the model's own."""

    def between(self, begin: int, end: int) -> Users:
        if self.users is None:
            return range(begin, end)
        if isinstance(self.users, pa.Array):
            return self.users.slice(begin, end - begin)
        return self.users.between(begin, end)


def _tasks(groups: Iterable[_Group], count: int, top: int, out: str | None, where: Workers) -> list[ListsTask]:
    """Cut the users into tasks, a file each; one file is one task, with all of them."""
    groups = [group for group in groups if group.count]
    if out is not None and kind_of_file(out) is not None:
        return [ListsTask(tuple(group.between(0, group.count) for group in groups), count, absolute(out))]
    size = max(1, ROWS_A_FILE // top)
    if isinstance(where.count, int) and where.count > 0:
        size = min(size, max(1, -(-count // (where.count * TASKS_A_WORKER))))
    elif where.count == "auto":  # a cluster of unknown size
        size = min(size, max(1024, -(-count // 64)))
    ranges = [
        (group, begin, min(begin + size, group.count)) for group in groups for begin in range(0, group.count, size)
    ] or [(_Group(0, None), 0, 0)]  # a file without lists
    names = [None if out is None else join(absolute(out), f"part-{at:05}.parquet") for at in range(len(ranges))]
    return [
        ListsTask((group.between(begin, end),), end - begin, name)
        for (group, begin, end), name in zip(ranges, names, strict=True)
    ]


def _run(
    tasks_run: TaskRun, job: MakeLists, tasks: Sequence[ListsTask], count: int, telemetry: Telemetry
) -> list[ListsReport]:
    telemetry.emit(PhaseStarted("recommend"))
    reports, done = [], 0
    for report in tasks_run.run(job, tasks):
        reports.append(report)
        done += report.users
        telemetry.emit(Progress(done=done, total=count, unit="users"))
    return reports


def _written_at(place: Output | None, tasks: Sequence[ListsTask]) -> Sequence[ListsTask]:
    """Return the tasks with where their files are written for now."""
    if place is None:
        return tasks
    return [replace(task, destination=place.writing(str(task.destination))) for task in tasks]


def _require_reachable(known: Recommender, out: str | None, where: Workers) -> None:
    """Refuse workers for what only this process has."""
    if where.count == 0:
        return
    if known.location is None:
        raise ConfigError(
            "The model is in memory only, and workers are other processes.", fix="Give its run directory, or workers=0."
        )
    if out is not None and kind_of_file(out) is not None:
        raise ConfigError(
            f"--out {out} is one file, and workers write a file each.", fix="Name a directory with --out."
        )


def _warn(telemetry: Telemetry, found: EventUsers | None) -> None:
    if found is None:
        return
    if len(found.known):
        telemetry.emit(
            Warned(
                f"The model knows {many(len(found.known), 'users')} of the events: these new events are not used.",
                fix="Train on them: dray train EVENTS --continue-from RUN.",
            )
        )
    if found.without_ids:
        telemetry.emit(
            Warned(f"{many(found.without_ids, 'events')} without a user or an item that can be an id: left out.")
        )
    if found.unknown_items:
        telemetry.emit(
            Warned(f"{many(found.unknown_items, 'events')} with an item that the model does not know: left out.")
        )


def _in_order(tables: Sequence[pa.Table], asked: pa.Array | None, known: Recommender) -> pa.Table:
    """Return all lists as one table, users in the order in which they were asked for."""
    if not tables:
        return schema_of(known).empty_table()
    table = pa.concat_tables(tables).unify_dictionaries()
    if asked is None:
        return table
    place = pc.index_in(table["user"], asked)
    order = pc.sort_indices(
        pa.table({"place": place, "rank": table["rank"]}), [("place", "ascending"), ("rank", "ascending")]
    )
    return table.take(order)
