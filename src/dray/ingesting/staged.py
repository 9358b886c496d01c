"""Staged files, whose rows are to be sorted or compared: divided into pieces of about the same size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.parquet_footer import footers_of, schema_of
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.errors import DataError
from dray.ingesting.moving_rows import POSITION
from dray.storage import StorageOptions, absolute

PIECES = 64
LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 16 << 20, 256 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """Parquet files with a position for each row, in the order of the source."""

    schema: pa.Schema
    pieces: tuple[tuple[Slice, ...], ...]
    """Whole row groups each, and together all rows in order."""
    storage: StorageOptions

    @property
    def columns(self) -> list[str]:
        """The data's columns, without the position that dray added."""
        return [name for name in self.schema.names if name != POSITION]

    @property
    def rows(self) -> int:
        return sum(self.rows_of(piece) for piece in range(len(self.pieces)))

    def rows_of(self, piece: int) -> int:
        return sum(group.rows for group in self.pieces[piece])

    def read(self, piece: int, columns: Sequence[str], kept: bytes | None = None) -> pa.Table:
        """Return the rows of a piece; with `kept` (a bit for each row) only those whose bit is set."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        batches = [batch.select(columns) for _, batch in read_slices(self.pieces[piece], columns, (), self.storage)]
        table = pa.Table.from_batches(batches).cast(schema)
        return table if kept is None else table.filter(pa.array(from_bits(kept, table.num_rows)))


def to_bits(kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bytes:
    return np.packbits(kept).tobytes()


def from_bits(bits: bytes, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=rows).view(np.bool_)


def open_staged(files: Sequence[str], storage: StorageOptions) -> Staged | None:
    """Read the footers and cut the rows into pieces; None when there are no rows."""
    places = [absolute(file) for file in files]
    footers = [footer.metadata for footer in footers_of(places, storage)]
    found = [
        (*_positions(footer, file), file, footer)
        for file, footer in zip(places, footers, strict=True)
        if footer.num_rows
    ]
    found.sort(key=lambda entry: entry[0])
    for (_, last, file, _), (first, _, other, _) in pairwise(found):
        if first <= last:
            raise DataError(
                f"{file} and {other} hold rows of the same position in the source.",
                fix="Remove the output and start again.",
            )
    if not found:
        return None
    sizes = [
        (Slice(file, index, 0, group.num_rows, 0), group.total_byte_size)
        for _, _, file, footer in found
        for index, group in _row_groups(footer)
    ]
    target = min(max(sum(size for _, size in sizes) // PIECES, LEAST_PIECE_BYTES), MOST_PIECE_BYTES)
    return Staged(schema_of(found[0][3]).remove_metadata(), _pieces(sizes, target), storage)


def _pieces(groups: Sequence[tuple[Slice, int]], target: int) -> tuple[tuple[Slice, ...], ...]:
    pieces: list[list[Slice]] = []
    filled = target
    for group, size in groups:
        if filled + size > target:
            pieces.append([])
            filled = 0
        pieces[-1].append(group)
        filled += size
    return tuple(tuple(piece) for piece in pieces)


def _row_groups(footer: pq.FileMetaData) -> list[tuple[int, pq.RowGroupMetaData]]:
    groups = [(index, footer.row_group(index)) for index in range(footer.num_row_groups)]
    return [(index, group) for index, group in groups if group.num_rows]


def _positions(footer: pq.FileMetaData, file: str) -> tuple[int, int]:
    """Return the first and the last position in a file, from its footer."""
    names = [footer.schema.column(index).path for index in range(len(footer.schema))]
    if POSITION not in names:
        raise DataError(
            f"{file} has no column {POSITION}: it was not staged.", fix="Remove the output and start again."
        )
    found = [group.column(names.index(POSITION)).statistics for _, group in _row_groups(footer)]
    if not all(statistics is not None and statistics.has_min_max for statistics in found):
        raise DataError(
            f"The footer of {file} lacks the positions of its rows.", fix="Remove the output and start again."
        )
    return int(found[0].min), int(found[-1].max)
