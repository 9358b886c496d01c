"""Rows that cannot be read, while a task runs: counted by file, and kept as JSON lines in an unnamed file.

Fields that were left out are counted by their names.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from typing import IO

import pyarrow as pa

from dray.data.source import ExtraField, Reject


class Rejects:
    """The rejected rows of a task, until it is done."""

    def __init__(self) -> None:
        self.count = 0
        self.extra: Counter[str] = Counter()
        """Rows by the field that was left out of them."""
        self._rows: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._file: IO[bytes] | None = None

    def add(self, reject: Reject | ExtraField) -> None:
        if isinstance(reject, ExtraField):
            self.extra[reject.field] += reject.rows
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  (closed at the end of the task)
        self.count += 1
        self._rows[reject.name] += 1
        if reject.name not in self._first:
            self._first[reject.name] = words(reject)
        line = {"file": reject.name, "line": reject.line, "reason": reject.reason, "text": reject.text}
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    @property
    def first(self) -> str:
        """The first row that was rejected."""
        return next(iter(self._first.values()))

    def by_file(self) -> tuple[tuple[str, int, str], ...]:
        """Return the rows of each file, and its first one in words."""
        return tuple((name, self._rows[name], first) for name, first in self._first.items())

    def copy_to(self, sink: pa.NativeFile) -> None:
        assert self._file is not None
        self._file.seek(0)
        shutil.copyfileobj(self._file, sink, 1 << 20)

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def words(reject: Reject) -> str:
    """Return a reject as one line."""
    line = f", line {reject.line:,}" if reject.line is not None else ""
    return f"{reject.name}{line}: {reject.reason}: {reject.text[:200]!r}"
