"""Parquet as a source: pieces of whole row groups. `dray.data.parquet` reads footers and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dray.data.features import as_meant
from dray.data.parquet import Dataset, open_dataset, read_slices
from dray.data.shards import Slice
from dray.data.source import PIECE_BYTES, OnReject, Piece
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
        return self.dataset.schema.remove_metadata()

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

    def read(self, piece: Piece, columns: Sequence[str] | None, _reject: OnReject) -> Iterator[pa.RecordBatch]:
        schema = chosen(columns, self.schema)
        groups: list[Slice] = [
            group
            for group in self.dataset.row_groups
            if group.file == piece.name and piece.start <= group.row_group < piece.stop
        ]
        for _, batch in read_slices(groups, schema.names, (), self.dataset.storage):
            batch = as_meant(batch, schema)
            yield batch if batch.schema.equals(schema) else batch.cast(schema)


def open_parquet(locations: Sequence[str], storage: StorageOptions) -> ParquetSource:
    return ParquetSource(", ".join(locations), open_dataset(locations, storage))
