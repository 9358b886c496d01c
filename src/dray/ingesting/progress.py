"""Progress of an ingest, in rows."""

from __future__ import annotations

from collections.abc import Sequence

from dray.batch.engine import Emit
from dray.data.source import Source
from dray.events.kinds import Progress
from dray.ingesting.plan import Task
from dray.ingesting.written import Report


class RowsProgress:
    """Rows read, of the estimated total; without the rows of an earlier, unfinished run."""

    def __init__(self, emit: Emit, source: Source, todo: Sequence[Task], all_bytes: int) -> None:
        self._emit = emit
        self._bytes = sum(task.bytes for task in todo)
        self._known = None if source.rows is None or not all_bytes else source.rows * self._bytes / all_bytes
        self._rows = self._read_bytes = 0
        self._left = len(todo)
        if self._known:
            emit(Progress(done=0, total=round(self._known), unit="rows"))

    def add(self, report: Report, task: Task) -> None:
        self._rows += report.rows_read
        self._read_bytes += task.bytes
        self._left -= 1
        total = self._known or (self._rows * self._bytes / self._read_bytes if self._read_bytes else self._rows)
        total = max(total, self._rows) if self._left else self._rows
        self._emit(Progress(done=self._rows, total=round(total), unit="rows"))
