"""A source of files, with the columns in the names of their directories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dray.data.parquet import with_fields
from dray.data.partitions import Constant, constants_of, partitions_of, with_constants
from dray.data.source import PIECE_BYTES, REJECTED, Note, OnReject, Piece, Source
from dray.data.sources.columns import chosen
from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class PartitionedSource:
    """Rows of files, with the columns of their directories. A piece has the name of its file."""

    inner: Source
    constants: Mapping[str, tuple[Constant, ...]]
    """By file, or file of an archive."""
    storage: StorageOptions

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def format(self) -> str:
        return self.inner.format

    @property
    def schema(self) -> pa.Schema:
        return with_fields(self.inner.schema, next(iter(self.constants.values())))

    @property
    def rows(self) -> int | None:
        return self.inner.rows

    @property
    def bytes(self) -> int:
        return self.inner.bytes

    @property
    def files(self) -> Sequence[Any]:
        found: Sequence[Any] = self.inner.files  # type: ignore[attr-defined]
        return found

    @property
    def notes(self) -> tuple[Note, ...]:
        return self.inner.notes

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        return self.inner.pieces(target_bytes)

    def read(
        self, piece: Piece, columns: Sequence[str] | None, on_reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        names = chosen(columns, self.schema).names
        inside = set(self.inner.schema.names)
        stored = [name for name in names if name in inside]
        # At least one column is read: it gives the number of rows.
        wanted, held = stored or self.inner.schema.names[:1], [*names, REJECTED] if in_place else names
        for batch in self.inner.read(piece, wanted, on_reject, in_place=in_place):
            yield with_constants(batch, held, self.constants[piece.name], piece.name)


def with_partitions(source: Source, locations: Sequence[str], storage: StorageOptions) -> Source:
    """Return the source with the columns in the names of its directories, if there are any."""
    files = [file.file.location for file in getattr(source, "files", ())]
    parts = partitions_of(locations, files) if files else []
    if not any(parts):
        return source
    types = {key: source.schema.field(key).type for key, _ in parts[0] if key in source.schema.names}
    pieces = [file.file.name for file in source.files]  # type: ignore[attr-defined]
    return PartitionedSource(source, dict(zip(pieces, constants_of(parts, types), strict=True)), storage)
