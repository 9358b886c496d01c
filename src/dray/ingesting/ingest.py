"""Rows from any source to well-laid-out Parquet: `dray data ingest`.

The driver plans, assigns tasks, counts rows and writes the journal. The processes that run the tasks read the source
and write the files. See journal.py for the files beside the output meanwhile.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from dray.batch.engine import Emit, silence
from dray.batch.options import Options
from dray.batch.packing import name_of
from dray.batch.processes import Printed
from dray.batch.run import run
from dray.batch.tasks import without_progress
from dray.data.conflicts import refuse_conflicts
from dray.data.source import Source
from dray.errors import DataError, DrayError, ItemError
from dray.events.kinds import PhaseStarted, Warned
from dray.ingesting.apart import locations_in, require_apart
from dray.ingesting.expression import columns_of, compile_filter
from dray.ingesting.finishing import collect_rejects, footers, remove_strays, require_all_rows, warn
from dray.ingesting.journal import FOLDER, REJECTS, Journal
from dray.ingesting.moving_rows import POSITION
from dray.ingesting.plan import group_bytes, make_tasks, part_name, task_bytes
from dray.ingesting.progress import RowsProgress
from dray.ingesting.recipe import SUBSETS, Recipe, require_columns
from dray.ingesting.replacing import foreign_in_ingest, require_only_remains, require_replaceable
from dray.ingesting.resuming import (
    as_planned,
    describe,
    require_same,
    require_same_schema,
    require_untouched,
    still_done,
)
from dray.ingesting.split import require_splittable
from dray.ingesting.task import TaskRunner, too_many_rejects
from dray.ingesting.transform import Function, Transform, find_schema
from dray.ingesting.writing import MOST_PARTITIONS, Layout, require_partitions, require_storable, too_many_partitions
from dray.ingesting.written import IngestResult, Report, Written
from dray.runs.replacing import beside, refuse_links, take_the_place
from dray.storage import DEFAULT, StorageOptions, absolute, is_s3, join

STAGED = "staged"
SCRATCH = "scratch"


def ingest(
    source: Source,
    out: str,
    recipe: Recipe | None = None,
    *,
    function: Function | None = None,
    overwrite: bool = False,
    storage: StorageOptions = DEFAULT,
    options: Options | None = None,
    emit: Emit = silence,
    output: Printed | None = None,
) -> IngestResult:
    """Write the rows of a source to `out` as the recipe says; continue an unfinished ingest that is the same.

    With `overwrite`, one that is not the same begins anew; without, it is refused.
    `function` is the transform: a record batch in, a table out. `emit` gets the progress, `output` what the
    transform prints. After an error or Ctrl-C, finished tasks are kept, and the same call continues.
    """
    recipe = recipe or Recipe()
    if function is not None and recipe.transform is None:
        recipe = replace(recipe, transform=name_of(function))
    place = absolute(out).rstrip("/")
    work = (recipe, function, storage, options or Options(), emit, output, overwrite)
    if not overwrite or not require_replaceable(place, storage):
        return _Ingest(source, place, place, *work).run()
    if is_s3(place):  # a store cannot rename
        return _Ingest(source, place, place, *work, removes=True).run()
    refuse_links(beside(place))
    result = _Ingest(source, beside(place), place, *work).run()
    take_the_place(place, foreign_in_ingest)
    return result


@dataclass
class _Ingest:
    source: Source
    out: str
    final: str
    """Where the output is in the end."""
    recipe: Recipe
    function: Function | None
    storage: StorageOptions
    options: Options
    emit: Emit
    output: Printed | None
    overwrites: bool = False
    """Whether an unfinished ingest that is not the same goes."""
    removes: bool = False
    """Whether what is there goes: when all that can be checked before is right."""

    def __post_init__(self) -> None:
        self.begun = time.perf_counter()
        self.journal = Journal(self.out, self.storage)
        self.transform = None if self.function is None else Transform(self.recipe.transform or "", self.function)
        self.resumed = 0

    def run(self) -> IngestResult:
        for out in {self.out, self.final}:
            require_apart(locations_in(self.source.name), out)
        self.emit(PhaseStarted("plan"))
        filter_columns = columns_of(self.recipe.filter) if self.recipe.filter else ()
        every = self.transform is not None or not self.recipe.columns
        carried = self.recipe.carried(self.source.schema.names)
        refuse_conflicts(
            self.source.schema,
            None if every else [*carried, *filter_columns],
            or_else=lambda _names: (
                "" if self.transform or self.recipe.columns else "Or name columns to keep: --columns."
            ),
        )
        if self.transform is None:
            require_columns(self.recipe, filter_columns, self.source.schema.names)
        plan = self._plan()
        require_columns(self.recipe, filter_columns, self.schema.names)
        if self.recipe.filter:
            compile_filter(self.recipe.filter, self.schema)
        require_splittable(self.recipe.split, self.schema)
        require_storable(self.recipe, self.schema)
        require_partitions(self.recipe, self.schema)
        if self.removes:
            self.journal.clear()
        with self.journal.claimed():
            if (meanwhile := self.journal.plan()) is None:
                self.journal.begin(plan)
            else:
                require_same(meanwhile, plan, self.out)
            reports = self._do_tasks(filter_columns)
            files, kept = self._move(reports) if self.recipe.moves else (_files(reports), _written(reports))
            return self._end(reports, files, kept, plan)

    def _plan(self) -> dict[str, Any]:
        """Return the plan: that of an unfinished ingest if it is the same."""
        unfinished = None if self.removes else self.journal.plan()
        if unfinished is not None:
            return self._same_plan(unfinished)
        if self.out != self.final:  # an earlier one was killed before it took the place
            self.removes = True
        if not self.removes:
            self.journal.require_free()
        return self._new_plan()

    def _same_plan(self, unfinished: dict[str, Any]) -> dict[str, Any]:
        source = self.source
        try:
            return self._new_plan(unfinished)
        except DrayError as error:
            if not self.overwrites:
                raise
            why = error.what
        self.source, self.removes = source, True
        plan = self._new_plan()  # another mistake is raised once more
        if self.out == self.final:
            require_only_remains(self.out, self.storage)
        self.emit(Warned(f"{why} It begins anew."))
        return plan

    def _new_plan(self, unfinished: dict[str, Any] | None = None) -> dict[str, Any]:
        if unfinished is not None:
            self.source = as_planned(self.source, unfinished, self.out)
        target = task_bytes(self.source.bytes)
        self.tasks = make_tasks(self.source.pieces(target), target)
        if not self.tasks:
            raise DataError(f"There are no rows in {self.source.name}.", fix="Name data that holds rows.")
        plan = describe(self.source, self.recipe, self.tasks, self.storage)
        if unfinished is not None:
            require_same(unfinished, plan, self.out)
        self.schema = self._schema()
        plan["schema"] = [[field.name, str(field.type)] for field in self.schema]
        if unfinished is not None:
            require_same_schema(unfinished, plan, self.out)
        return plan

    def _schema(self) -> pa.Schema:
        """Return the schema of the rows after the transform, which runs in another process for this."""
        if self.transform is None:
            return self.source.schema
        look = functools.partial(find_schema, self.source, self.transform)
        found = [outcome for outcome in self._map(look, [self.tasks]) if outcome.value is not None]
        if not found:
            raise DataError(f"There are no rows in {self.source.name}.", fix="Name data that holds rows.")
        schema: pa.Schema = found[0].value
        return schema

    def _do_tasks(self, filter_columns: Sequence[str]) -> list[Report]:
        """Run the unfinished tasks; return the reports of all tasks, in order."""
        done = still_done(self.source, self.tasks, self.journal.reports(len(self.tasks)), self.emit)
        self.resumed = len(done)
        if done:
            self.emit(Warned(f"Continuing: {len(done):,} of {len(self.tasks):,} tasks are already done."))
        todo = [task for task in self.tasks if task.index not in done]
        runner = TaskRunner(
            self.source,
            self.transform,
            self.schema,
            self._columns_to_read(filter_columns),
            self.recipe,
            self._layout(staged=self.recipe.moves),
            self.out,
            self.storage,
            len(self.tasks),
        )
        self.emit(PhaseStarted("ingest"))
        progress = RowsProgress(self.emit, self.source, todo, sum(task.bytes for task in self.tasks))
        self._check_rejects(done.values())
        for outcome in self._map(runner, todo):
            report: Report = outcome.value
            done[report.task] = report
            progress.add(report, self.tasks[report.task])
            self._check_rejects(done.values())
            self._check_partitions(done.values())
        return [done[index] for index in sorted(done)]

    def _map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Yield the outcomes of items as they finish; an error of dray is raised as itself."""
        if not items:
            return
        options = replace(self.options, batch=1, ordered=False, on_error="raise")
        with closing(run(function, items, options, without_progress(self.emit), self.output)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    cause = outcome.error.__cause__
                    raise cause if isinstance(cause, DrayError) else _failed(outcome.error)
                yield outcome

    def _columns_to_read(self, filter_columns: Sequence[str]) -> tuple[str, ...] | None:
        """Return the columns to read; None for all, since a transform may use any."""
        if self.transform is not None:
            return None
        names = self.source.schema.names
        needed = {*self.recipe.carried(names), *filter_columns}
        return None if needed == set(names) else tuple(name for name in names if name in needed)

    def _layout(self, staged: bool) -> Layout:
        groups = group_bytes(self.source.bytes)
        scratch = join(self.out, FOLDER, SCRATCH)
        if not staged:
            return Layout(self.out, self.storage, scratch, self.recipe, self.recipe.output(self.schema.names), groups)
        columns = (*self.recipe.carried(self.schema.names), POSITION)
        return Layout(join(self.out, FOLDER, STAGED), self.storage, scratch, Recipe(), columns, groups)

    def _check_rejects(self, reports: Iterable[Report]) -> None:
        """End the run as soon as the rejects must exceed the limit; a share is one of all rows expected."""
        reports = list(reports)
        rejected = sum(report.rows_rejected for report in reports)
        if not rejected:
            return
        read = sum(report.rows_read for report in reports)
        total: float = read
        if len(reports) < len(self.tasks):
            seen = sum(self.tasks[report.task].bytes for report in reports)
            everything = sum(task.bytes for task in self.tasks)
            total = self.source.rows or (read * everything / seen if seen else read * len(self.tasks))
        if self.recipe.max_rejects.exceeded(rejected, total):
            first = min((report for report in reports if report.rejects), key=lambda report: report.task)
            raise too_many_rejects(f"{rejected:,} of {read:,}", self.recipe.max_rejects, first.rejects[0][2])

    def _check_partitions(self, reports: Iterable[Report]) -> None:
        if self.recipe.partition_by and not self.recipe.moves:
            _require_few(self.recipe, [file for report in reports for file in report.files])

    def _move(self, reports: Sequence[Report]) -> tuple[list[Written], int]:
        """Let Ray Data sort the rows and remove duplicates."""
        staged = [join(self.out, FOLDER, STAGED, file.name) for file in _files(reports)]
        rows = _written(reports)
        if not staged:
            return [], 0
        from dray.ingesting.moving import move

        wanted = max(1, round(len(self.tasks) * rows / max(1, sum(report.rows_transformed for report in reports))))
        dedup = None if self.recipe.dedup is None else self.recipe.dedup or self.recipe.output(self.schema.names)
        moved = move(
            staged,
            dedup=dedup,
            sort=self.recipe.sort,
            files=wanted,
            write=FileWriter(self._layout(staged=False), wanted),
            cluster=self.options.cluster,
            storage=self.storage,
            emit=self.emit,
        )
        files = [file for written in moved.written for file in written]
        _require_few(self.recipe, files)
        return files, moved.rows_out

    def _end(self, reports: Sequence[Report], files: list[Written], kept: int, plan: dict[str, Any]) -> IngestResult:
        self._check_rejects(reports)
        require_all_rows(self.source, sum(report.rows_read for report in reports), self.emit)
        require_untouched(plan, describe(self.source, self.recipe, self.tasks, self.storage))
        rejects = collect_rejects(self.journal, reports)
        remove_strays(self.out, self.storage, {file.name for file in files})
        written = _written(reports)
        result = IngestResult(
            rows_read=sum(report.rows_read for report in reports),
            rows_kept=kept,
            rows_rejected=sum(report.rows_rejected for report in reports),
            rows_filtered=sum(report.rows_filtered for report in reports),
            rows_duplicate=written - kept,
            files=len(files),
            bytes=sum(file.bytes for file in files),
            seconds=round(time.perf_counter() - self.begun, 3),
            output=self.final,
            rejects=None if rejects is None else join(self.final, REJECTS),
            extra_fields=dict(sum((Counter(report.extra_fields) for report in reports), Counter())),
            parts=_rows_by_subset(files) if self.recipe.split is not None else {},
            resumed=self.resumed,
        )
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        told = {name: plan[name] for name in ("recipe", "source")} | {"footers": footers(files, self.out, self.storage)}
        self.journal.end({"result": result.to_json(), "at": ended, **told})
        warn(self.emit, reports, result)
        return result


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes the rows of one output file, on the worker that received them."""

    layout: Layout
    files: int

    def __call__(self, index: int, table: pa.Table) -> list[Written]:
        return self.layout.write(part_name(index, self.files), table)


def _require_few(recipe: Recipe, files: Sequence[Written]) -> None:
    folders = {file.name.removeprefix(f"{file.part}/").rpartition("/")[0] for file in files}
    if len(folders) > MOST_PARTITIONS:
        raise too_many_partitions(recipe.partition_by)


def _failed(error: ItemError) -> ItemError:
    what = error.what.partition(" failed: ")[2] or error.what
    return ItemError(
        f"The task of {error.item} failed: {what}",
        "Run the same command again: it continues after the finished tasks. If memory was short, use fewer --workers.",
        *error.args[2:],
    )


def _files(reports: Iterable[Report]) -> list[Written]:
    return [file for report in reports for file in report.files]


def _written(reports: Iterable[Report]) -> int:
    return sum(report.rows_written for report in reports)


def _rows_by_subset(files: Iterable[Written]) -> dict[str, int]:
    rows = dict.fromkeys(SUBSETS, 0)
    for file in files:
        rows[file.part] += file.rows
    return rows
