"""What a task reports: its files and counts. Plain values, written to the journal as they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dray.ingesting.recipe import SUBSETS


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file."""

    name: str
    """Relative to the output."""
    rows: int
    bytes: int
    part: str = ""
    """The subset: train, test, or empty without a split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The files and counts of one task."""

    task: int
    rows_read: int
    """Including the rejected rows."""
    rows_rejected: int
    rows_filtered: int
    rows_transformed: int
    """Rows that the transform returned; without a transform, the rows that were read without error."""
    files: tuple[Written, ...]
    rejects: tuple[tuple[str, int, str], ...] = ()
    """Source files with rejected rows, in their order: how many, and the first one as text."""
    extra_fields: dict[str, int] = field(default_factory=dict)
    """Rows by the field that was left out of them."""

    @property
    def rows_written(self) -> int:
        return sum(file.rows for file in self.files)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: dict[str, Any]) -> Report:
        """Return what `to_json` wrote; raises one of DAMAGE for anything else."""
        files = tuple(Written(**file) for file in document["files"])
        rejects = tuple((str(name), rows, str(first)) for name, rows, first in document["rejects"])
        report = Report(**{**document, "files": files, "rejects": rejects})
        own = (report.task, report.rows_read, report.rows_rejected, report.rows_filtered, report.rows_transformed)
        counts = (
            *own,
            *(count for file in files for count in (file.rows, file.bytes)),
            *(rows for _, rows, _ in rejects),
            *report.extra_fields.values(),
        )
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"{counts} are not all counts")
        if not all(_is_name(file.name) and file.part in ("", *SUBSETS) for file in files):
            raise ValueError(f"{files} are not all files of an ingest")
        return report


def _is_name(value: Any) -> bool:
    """Whether a value can be the name of a file; raises UnicodeEncodeError for text that no file system has."""
    return isinstance(value, str) and "\0" not in value and bool(value.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """The counts of all rows. Without a transform, read == kept + rejected + filtered + duplicate."""

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
    extra_fields: dict[str, int]
    """Rows by the field that was left out of them: of JSON, one that the first rows did not have."""
    parts: dict[str, int]
    """Train rows and test rows, if there is a split."""
    resumed: int
    """Tasks that an earlier, unfinished run finished."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
