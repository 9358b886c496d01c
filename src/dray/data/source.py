"""The contract of a source of rows: a schema, pieces that can be read alone, and their batches.

A source is opened once (`open_source`), pickled to the processes that read it, and read piece by piece in any
order, again if need be: the same piece gives the same rows. It holds no connection, no open file and no secret;
those are made where a piece is read.

Rows that do not fit the schema are reported one by one (`Reject`) and left out; the other rows are kept. So are fields
that the schema does not have, by their number of rows (`ExtraField`): of JSON, whose first rows need not have all. A
file that is missing, damaged or was changed meanwhile raises a `DataError` or `StorageError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

REJECT_CHARACTERS = 1000
PIECE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a source that can be read alone. Small, picklable."""

    name: str
    """File, table or query: for messages."""
    index: int
    """Order in the source."""
    start: int = 0
    """In bytes, rows, row groups or ranges of a key, as the source defines."""
    stop: int = 0
    bytes: int = 0
    """Estimate, for sharing the work."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that was left out, and why."""

    name: str
    """File, table or query."""
    line: int | None
    """Line of the file in which the row begins, from 1; None where there are no lines."""
    reason: str
    text: str
    """The row as written, cut to 1,000 characters."""


@dataclass(frozen=True, slots=True)
class ExtraField:
    """A field of some rows that is no column of the source: it was left out, and the rows were kept."""

    name: str
    """File."""
    field: str
    rows: int
    """In which it has a value."""


OnReject = Callable[[Reject | ExtraField], None]

REJECTED = "__dray_rejected__"
"""The column that marks rejected rows where they are read in their place."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the data that its user should hear once: what was seen, and what to do."""

    what: str
    fix: str = ""


@runtime_checkable
class Source(Protocol):
    """Rows from somewhere. Picklable; any process and thread may read.

    `on_reject` is called in the thread that takes the batches, before the batch that follows the rejected row, and
    for extra fields before the batch that lacks them.
    """

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def rows(self) -> int | None:
        """Rows, where they are known without reading: from footers or a count."""

    @property
    def bytes(self) -> int:
        """Bytes as stored; an estimate where the store does not report them."""

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        """Return the pieces, in order, each of about `target_bytes`. The same for the same source and target."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was seen when the source was opened."""

    def read(
        self, piece: Piece, columns: Sequence[str] | None, on_reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece with these columns, in this order (None: all).

        With `in_place`, a rejected row keeps its place, as a row of nulls, and every batch ends with the column
        `REJECTED`: true for such a row.
        """


def all_kept(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of which no row was rejected, as it is read with `in_place`."""
    return batch.append_column(REJECTED, pa.repeat(pa.scalar(False), batch.num_rows))


def make_reject(name: str, line: int | None, reason: str, text: str | bytes) -> Reject:
    """Return a reject with its text cut; any bytes are taken."""
    if isinstance(text, bytes):
        text = text[: 4 * REJECT_CHARACTERS].decode("utf-8", errors="replace")
    return Reject(name, line, reason, text.rstrip("\r\n")[:REJECT_CHARACTERS])
