"""The figures of a description, each with its basis: exact, sample or estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Basis = Literal["exact", "sample", "estimate"]
Kind = Literal["number", "boolean", "date", "timestamp", "seconds", "text", "other"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A value: `exact` for all the rows, true of the `sample` alone, or an `estimate` from it for all the rows.

    A share of a sample estimates that of all rows; a range of a sample may be exceeded elsewhere.
    """

    value: Any
    basis: Basis


@dataclass(frozen=True, slots=True)
class ValueShare:
    """A value, and the share of the rows that have it (missing ones count among the rows)."""

    value: Any
    share: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Rows of the sample by bins: of equal width from `low` to `high`, or one for each of the `values`.

    `low` and `high` are the 1 % and 99 % quantiles, rows beyond them are in the outer bins.
    """

    counts: tuple[int, ...]
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnProfile:
    """One column."""

    name: str
    type: str
    kind: Kind
    nulls: Figure
    """Share of the rows that are null."""
    nan: Figure | None = None
    """Share of the rows that are NaN; of floats only."""
    missing: Figure
    """Share of the rows that are null or NaN. Exact where the nulls are and no NaN was met."""
    low: Figure | None = None
    high: Figure | None = None
    """The range of numbers and times; days and times as text. Of text it is the length in characters."""
    distinct: Figure | None = None
    """Number of different values. An estimate from the sample (Chao) or from hashes: docs/guides/describing.md."""
    values: tuple[ValueShare, ...] = ()
    """The most frequent values, of text, booleans and whatever has few values."""
    values_basis: Basis = "sample"
    infinite: Figure | None = None
    """Share of the rows that are infinite; of floats only."""
    histogram: Histogram | None = None
    seen: int = 0
    """Values of the sample that are not missing."""
    distinct_seen: int = 0
    """Different ones among them."""

    def to_json(self) -> dict[str, Any]:
        document = _json(self)
        document["values"] = {"basis": document.pop("values_basis"), "top": document["values"]}
        del document["seen"], document["distinct_seen"]
        return document


@dataclass(frozen=True, slots=True)
class Assignment:
    """How evenly row groups can be assigned to a number of workers."""

    workers: int
    largest: int
    """Rows of the worker with the most."""
    smallest: int
    even: bool
    """Every worker has rows, and the largest shard has at most 5 % more rows than the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the data is stored, and to how many workers it can be assigned evenly."""

    files: int | None
    row_groups: int | None
    """None where there are none: everything but Parquet."""
    rows_per_group: tuple[int, int, int] | None = None
    """Least, median and most."""
    largest_group_bytes: int | None = None
    """Before compression."""
    dealings: tuple[Assignment, ...] = ()
    advice: str | None = None
    """What to do about it; None when nothing needs to be done."""

    def to_json(self) -> dict[str, Any]:
        spread = self.rows_per_group and dict(zip(("least", "median", "most"), self.rows_per_group, strict=True))
        return _json(self) | {"rows_per_group": spread}


Concerning = Literal[
    "empty", "constant", "mostly-missing", "id", "many-values", "numbers-as-text", "text-times", "infinite", "leak",
    "leak-unchecked", "label-missing", "label-rare-class", "rejects", "looks",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Concern:
    """A warning about a column (or, without one, about the data) before training on it."""

    kind: Concerning
    column: str | None
    message: str
    figure: float | None = None
    """The measure behind it, where there is one."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read."""

    file: str
    line: int | None
    reason: str
    text: str

    @property
    def place(self) -> str:
        return self.file if self.line is None else f"{self.file}, line {self.line:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `describe` found."""

    name: str
    format: str
    rows: Figure
    """Without the rows that cannot be read; the value is None where it is unknown."""
    bytes: int
    """As stored."""
    sample_rows: int
    """Rows that figures of the basis `sample` and the estimates come from."""
    complete: bool
    """Every row was read."""
    columns: tuple[ColumnProfile, ...]
    layout: Layout
    label: str | None = None
    warnings: tuple[Concern, ...] = ()
    rejected: Figure = field(default=Figure(0, "exact"))
    """Rows that cannot be read, among those that were tried; exact when all were."""
    rejects: tuple[BadRow, ...] = ()
    """The first of them."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        document = _json(self)
        document["rejected"]["first"] = document.pop("rejects")
        columns = [column.to_json() for column in self.columns]
        return document | {"columns": columns, "layout": self.layout.to_json(), "seconds": round(self.seconds, 3)}


def _json(value: Any) -> dict[str, Any]:
    """Return the fields by their names, as JSON has them: with lists for tuples."""
    return asdict(value, dict_factory=lambda fields: {k: list(v) if isinstance(v, tuple) else v for k, v in fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of all rows of a column, from footers or because all were read; None where it is unknown."""

    nulls: int | None = None
    nan: int | None = None
    infinite: int | None = None
    low: Any = None
    high: Any = None
    distinct: Figure | None = None
    counts: Mapping[Any, int] | None = None
    """How often every value occurs, where they are few."""


NOTHING_KNOWN = Known()
