"""What is left to do when all rows are written: rejects in one place, no strays, words about what is odd."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import fs as pafs

from dray.ingesting.journal import REJECTS, Journal
from dray.ingesting.written import IngestResult, Report
from dray.mapping.engine import Emit
from dray.storage import StorageOptions, open_storage, translate_errors, write_atomically

WARNED_FILES = 5


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
    """Remove files that a killed task left and that no task tells of: a mended transform may write elsewhere.

    Directories that are empty afterwards hurt nobody.
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
        emit("warning", message=f"Rejected rows of {name}: {rows:,}. The first: {first[name]}")
    if len(by_file) > WARNED_FILES:
        emit("warning", message=f"{len(by_file) - WARNED_FILES:,} more files had rows rejected.")
    if not result.rows_kept:
        why = "the filter kept none" if result.rows_filtered else "there were none"
        emit("warning", message=f"No row was written: {why}.")
