"""Files of an ingest that was ended, and of copies in the cache."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dray.data.parquet import open_dataset
from dray.data.parquet_rows import read_slices
from dray.data.source import Source
from dray.data.sources.sql import SqlSource
from dray.data.sources.sql_database import Database
from dray.data.sources.sql_ranges import KeyRange
from dray.ingesting import copy_files
from dray.ingesting.cache import _tell
from dray.ingesting.finishing import collect_rejects, footers, warn
from dray.ingesting.ingest import _files, _written
from dray.ingesting.journal import BusyError, Journal, sealed
from dray.ingesting.plan import make_tasks
from dray.ingesting.recipe import Recipe
from dray.ingesting.resuming import as_planned, describe, require_same, require_same_schema
from dray.ingesting.written import IngestResult, Report
from dray.runs.files import RunFiles
from dray.storage import DEFAULT
from security.attack import Parser
from security.ingested import RECIPE, ROWS, TASKS, copy_in_cache, ended_ingest, source_with_a_reject
from security.real import run_of


def _silent(*_: Any, **__: Any) -> None:
    pass


def _seal(content: bytes) -> bytes:
    """Return a changed document with the digest that belongs to it; what is not a document stays as it is."""
    try:
        return json.dumps(sealed(json.loads(content))).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content


class _Ended:
    """An ingest that was ended, one of whose files is changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source: Source
        self.journal: Journal

    def inputs(self) -> Sequence[bytes]:
        self.source = source_with_a_reject()
        self.journal = Journal(str(ended_ingest(self.source)), DEFAULT)
        return [self.journal.read_bytes(self.name)]

    def put(self, content: bytes) -> None:
        Path(self.journal.path(self.name)).write_bytes(content)


def _report() -> Parser:
    ended = _Ended("task-00000.json")

    def parse(content: bytes) -> list[Report]:
        """Do with a report what the rest of an ingest does with it."""
        ended.put(content)
        reports = list(ended.journal.reports(TASKS).values())
        collect_rejects(ended.journal, reports)
        footers(_files(reports), ended.journal.out.location, DEFAULT)
        warn(_silent, reports, _result(reports))
        return reports

    def right(reports: list[Report]) -> bool:
        (report,) = reports
        return report.rows_rejected == 1 and report.rows_read == report.rows_written + 1 > 1

    return Parser(ended.inputs, parse, right, structured=True, seal=_seal)


def _result(reports: Sequence[Report]) -> IngestResult:
    return IngestResult(
        rows_read=sum(report.rows_read for report in reports),
        rows_kept=_written(reports),
        rows_rejected=sum(report.rows_rejected for report in reports),
        rows_filtered=0,
        rows_duplicate=0,
        files=0,
        bytes=sum(file.bytes for file in _files(reports)),
        seconds=0.0,
        output="",
        rejects=None,
        extra_fields={},
        parts={},
        resumed=0,
    )


def _owner() -> Parser:
    journals: list[Journal] = []

    def inputs() -> list[bytes]:
        journals.append(Journal(tempfile.mkdtemp(), DEFAULT))
        with journals[0].claimed():
            return [journals[0].read_bytes("owner.json")]

    def parse(content: bytes) -> str:
        """Claim an output; return the words about the process that has it already."""
        Path(journals[0].path("owner.json")).write_bytes(content)
        try:
            with journals[0]._owned():
                return ""
        except BusyError as error:
            return error.what

    return Parser(inputs, parse, lambda words: "(process " in words, structured=True, seal=_seal)


def _go_on(source: Source, journal: Journal, recipe: Recipe, target_bytes: int) -> Source | None:
    """Read the plan as an ingest does that goes on; return the source that it goes on with."""
    unfinished = journal.plan()
    if unfinished is None:
        return None
    out = journal.out.location
    planned = as_planned(source, unfinished, out)
    plan = describe(planned, recipe, make_tasks(planned.pieces(target_bytes), target_bytes), DEFAULT)
    require_same(unfinished, plan, out)
    require_same_schema(unfinished, {**plan, "schema": [[one.name, str(one.type)] for one in source.schema]}, out)
    return planned


def _plan() -> Parser:
    ended = _Ended("plan.json")

    def parse(content: bytes) -> Source | None:
        ended.put(content)
        return _go_on(ended.source, ended.journal, RECIPE, ended.source.bytes // TASKS + 1)

    return Parser(ended.inputs, parse, lambda source: source is not None, structured=True, seal=_seal)


_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
_QUERY = SqlSource("db", Database("postgresql://h/db"), "SELECT 1", _SCHEMA, 100, 5_000, KeyRange("id", 1, 100))
_MOVED = replace(_QUERY, rows=150, bytes=7_500, key=KeyRange("id", 1, 150))
"""The same query when the ingest goes on: rows were added meanwhile."""


def _query_plan() -> Parser:
    journals: list[Journal] = []

    def inputs() -> list[bytes]:
        journals.append(Journal(tempfile.mkdtemp(), DEFAULT))
        plan = describe(_QUERY, Recipe(), make_tasks(_QUERY.pieces(1_000), 1_000), DEFAULT)
        journals[0].begin({**plan, "schema": [[one.name, str(one.type)] for one in _SCHEMA]})
        return [journals[0].read_bytes("plan.json")]

    def parse(content: bytes) -> Source | None:
        Path(journals[0].path("plan.json")).write_bytes(content)
        return _go_on(_MOVED, journals[0], Recipe(), 1_000)

    return Parser(inputs, parse, lambda source: source == _QUERY, structured=True, seal=_seal)


def _rejects() -> Parser:
    ended = _Ended("rejects-00000")

    def parse(content: bytes) -> str:
        ended.put(content)
        location = collect_rejects(ended.journal, list(ended.journal.reports(TASKS).values()))
        assert location is not None
        collected = Path(location).read_bytes()
        assert collected == content, "rejects are passed on as they are"
        return collected.decode("utf-8", "replace")

    return Parser(ended.inputs, parse, lambda text: json.loads(text)["text"] == "1,2", structured=True)


def _of_copy(name: str, parse: Callable[[Path], Any], right: Callable[[Any], bool], **how: Any) -> Parser:
    """Return a parser of one file of a copy, among its other files."""
    copies: list[Path] = []

    def inputs() -> list[bytes]:
        copies.append(copy_in_cache())
        copy_files.keep_for(str(copies[0]), run_of("binary"), DEFAULT)
        return [(copies[0] / name).read_bytes()]

    def read(content: bytes) -> Any:
        (copies[0] / name).unlink()  # a new file: the old one may still be mapped
        (copies[0] / name).write_bytes(content)
        return parse(copies[0])

    return Parser(inputs, read, right, **how)


def _copy_result(copy: Path) -> Any:
    document = copy_files.result_of(RunFiles(str(copy), DEFAULT))
    if document is not None:
        _tell(_silent, document, "a.csv", "csv", str(copy), made=False)
    return document


def _copy_rows(copy: Path) -> list[int] | None:
    """Return the rows of a copy; None if it would be made anew. Other rows than were written never come of it."""
    if copy_files.result_of(RunFiles(str(copy), DEFAULT)) is None:
        return None
    slices = open_dataset([str(copy)], DEFAULT).row_groups
    rows = [x for _, batch in read_slices(slices, ["x"], [], DEFAULT) for x in batch["x"].to_pylist()]
    assert rows == ROWS
    return rows


PARSERS = {
    "report": _report(),
    "owner": _owner(),
    "plan": _plan(),
    "query_plan": _query_plan(),
    "rejects": _rejects(),
    "cache_result": _of_copy(
        "_ingest.json",
        _copy_result,
        lambda document: document is not None and document["result"]["rows_kept"] == len(ROWS),
        structured=True,
        seal=_seal,
    ),
    "cache_parquet": _of_copy("part-00000.parquet", _copy_rows, lambda rows: rows == ROWS),
    "kept_for": _of_copy(
        "_kept_for.json",
        lambda copy: copy_files.unfinished_run(str(copy), DEFAULT),
        lambda needed_by: needed_by is None,  # its run is finished; what cannot be read counts as needed
        structured=True,
    ),
}
