"""Parquet as a source: pieces of whole row groups. `dray.data.parquet` reads footers and rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import pyarrow as pa

from dray.data.common_schema import Columns
from dray.data.features import as_meant
from dray.data.parquet import Dataset, open_dataset
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.data.source import PIECE_BYTES, Note, OnReject, Piece, all_kept
from dray.data.sources.columns import chosen
from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Rows of Parquet files. Every row has the types that its footer says."""

    name: str
    dataset: Dataset
    format: str = "parquet"

    @property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    @property
    def notes(self) -> tuple[Note, ...]:
        return self.dataset.notes

    @property
    def rows(self) -> int | None:
        return self.dataset.rows

    @property
    def bytes(self) -> int:
        return sum(size for _, _, size in self.dataset.contents)

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        row_bytes = self.dataset.bytes / max(1, self.dataset.rows)
        found: list[Piece] = []
        for group in self.dataset.row_groups:
            size = int(group.rows * row_bytes)
            last = found[-1] if found else None
            if last and last.name == group.file and last.bytes + size <= target_bytes:
                found[-1] = Piece(last.name, last.index, last.start, group.row_group + 1, last.bytes + size)
            else:
                found.append(Piece(group.file, len(found), group.row_group, group.row_group + 1, size))
        return found

    def read(
        self, piece: Piece, columns: Sequence[str] | None, _reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        schema = chosen(columns, self.schema)
        groups = self._groups_of(piece)
        for _, batch in read_slices(groups, schema.names, (), self.dataset.storage):
            batch = as_meant(batch, schema)
            batch = batch if batch.schema.equals(schema) else batch.cast(schema)
            yield all_kept(batch) if in_place else batch

    def _groups_of(self, piece: Piece) -> list[Slice]:
        groups = self.dataset.row_groups  # by file, which are sorted
        first = bisect_left(groups, piece.name, key=lambda group: group.file)
        own = takewhile(lambda group: group.file == piece.name, islice(groups, first, None))
        return [group for group in own if piece.start <= group.row_group < piece.stop]


def open_parquet(
    locations: Sequence[str], storage: StorageOptions, *, columns: Columns = "union", may_be_empty: bool = False
) -> ParquetSource:
    return ParquetSource(", ".join(locations), open_dataset(locations, storage, columns, may_be_empty=may_be_empty))
