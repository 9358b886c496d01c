"""Finish an ingest after all rows are written: collect rejects, remove stray files, warn."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import fs as pafs

from dray.batch.engine import Emit
from dray.data.parquet_footer import footer_digest
from dray.data.source import Source
from dray.data.sources.files import in_parallel
from dray.errors import DataError
from dray.events.kinds import Warned
from dray.ingesting.journal import REJECTS, Journal
from dray.ingesting.noticed import of_extra_fields, tell
from dray.ingesting.written import IngestResult, Report, Written
from dray.storage import StorageOptions, join, open_storage, translate_errors, write_atomically

WARNED_FILES = 5


def require_all_rows(source: Source, read: int, emit: Emit) -> None:
    """Refuse files that gave another number of rows than planned; warn about a table that changed meanwhile."""
    if source.rows is None or source.rows == read:
        return
    counted = f"{source.rows:,} rows were counted when the ingest began, {read:,} were read"
    if source.format != "sql":
        raise DataError(
            f"{source.name} was changed while dray read it: {counted}.",
            fix="Remove the output and start again when no process writes the data.",
        )
    emit(
        Warned(
            f"{source.name} was changed while dray read it: {counted}. Each range of the key is as it was when it "
            "was read.",
            fix="If all rows must be of one state, name a snapshot in the query, or read when no process writes.",
        )
    )


def footers(files: Sequence[Written], out: str, storage: StorageOptions) -> dict[str, str]:
    """Return the digests of the written footers: a damaged file is found before it is read."""
    names = [file.name for file in files]
    return dict(zip(names, in_parallel(lambda name: footer_digest(join(out, name), storage), names), strict=True))


def collect_rejects(journal: Journal, reports: Sequence[Report]) -> str | None:
    """Write the rejected rows of all tasks to one file, in the order of the source."""
    having = [report.task for report in reports if report.rows_rejected]
    if not having:
        return None
    location = journal.out.path(REJECTS)

    def write(sink: pa.NativeFile) -> None:
        for task in having:
            name = journal.path(journal.rejects_name(task))
            filesystem, path = open_storage(name, journal.options)
            with translate_errors(name), filesystem.open_input_stream(path) as stream:
                shutil.copyfileobj(stream, sink, 1 << 20)

    write_atomically(location, journal.options, write)
    return location


def remove_strays(out: str, storage: StorageOptions, names: set[str]) -> None:
    """Remove files that a killed task left and no task reports: a corrected transform may write to other files.

    Directories that are empty afterwards stay; readers ignore them.
    """
    filesystem, path = open_storage(out, storage)
    with translate_errors(out):
        found = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
        for entry in found:
            name = entry.path.removeprefix(path).lstrip("/")
            ours = entry.base_name.startswith("part-") and not name.startswith(("_", "."))
            if entry.type == pafs.FileType.File and ours and name not in names:
                filesystem.delete_file(entry.path)


def warn(emit: Emit, reports: Sequence[Report], result: IngestResult) -> None:
    by_file: Counter[str] = Counter()
    first: dict[str, str] = {}
    for name, rows, words in (found for report in reports for found in report.rejects):
        by_file[name] += rows
        first.setdefault(name, words)
    for name, rows in by_file.most_common(WARNED_FILES):
        emit(Warned(f"Rejected rows of {name}: {rows:,}. The first: {first[name]}"))
    if len(by_file) > WARNED_FILES:
        emit(Warned(f"{len(by_file) - WARNED_FILES:,} more files had rows rejected."))
    tell(of_extra_fields(result.extra_fields), emit)
    if not result.rows_kept:
        why = "the filter kept none" if result.rows_filtered else "there were none"
        emit(Warned(f"No row was written: {why}."))
