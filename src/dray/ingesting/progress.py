"""How far an ingest is, in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.data.source import Source
from dray.ingesting.plan import Task
from dray.ingesting.written import Report
from dray.mapping.engine import Emit


class RowsProgress:
    """Rows that were read, of those that there probably are; what an earlier run did is not counted."""

    def __init__(self, emit: Emit, source: Source, todo: Sequence[Task], all_bytes: int) -> None:
        self._emit = emit
        self._bytes = sum(task.bytes for task in todo)
        self._known = None if source.rows is None or not all_bytes else source.rows * self._bytes / all_bytes
        self._rows = self._read_bytes = 0
        self._left = len(todo)
        if self._known:
            emit("progress", done=0, total=round(self._known), unit="rows")

    def add(self, report: Report, task: Task) -> None:
        self._rows += report.rows_read
        self._read_bytes += task.bytes
        self._left -= 1
        total = self._known or (self._rows * self._bytes / self._read_bytes if self._read_bytes else self._rows)
        total = max(total, self._rows) if self._left else self._rows
        self._emit("progress", done=self._rows, total=round(total), unit="rows")


def without_progress(emit: Emit) -> Emit:
    """The map counts tasks; rows say more."""

    def passed(kind: str, /, **data: Any) -> Any:
        return None if kind == "progress" else emit(kind, **data)

    return passed
