"""What a task tells of: its files and its counts. Plain values, as they stand in the journal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is where it belongs."""

    name: str
    """Below the output."""
    rows: int
    bytes: int
    part: str = ""
    """train, test or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the rows of a task."""

    task: int
    rows_read: int
    """The rejected ones included."""
    rows_rejected: int
    rows_filtered: int
    rows_transformed: int
    """What the transform has made of those that were read; without one, they themselves."""
    files: tuple[Written, ...]
    rejects: tuple[tuple[str, int, str], ...] = ()
    """Files with rejected rows, in the order of these: how many, and the first one in words."""

    @property
    def rows_written(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: dict[str, Any]) -> Report:
        files = tuple(Written(**file) for file in document["files"])
        rejects = tuple((str(name), int(rows), str(first)) for name, rows, first in document["rejects"])
        return Report(**{**document, "files": files, "rejects": rejects})


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What became of all rows. Without a transform, read == kept + rejected + filtered + duplicate."""

    rows_read: int
    rows_kept: int
    rows_rejected: int
    rows_filtered: int
    rows_duplicate: int
    files: int
    bytes: int
    seconds: float
    output: str
    rejects: str | None
    """The file with the rejected rows, if there are any."""
    parts: dict[str, int]
    """Rows for training and for the test, if they were split."""
    resumed: int
    """Tasks that an earlier, unfinished run had done."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
