"""The rows of one input file, in order: of Parquet by slices, of any other source by its pieces.

Every row of the file is there, also one that cannot be read: such a row is all nulls, and marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dray.data.parquet import Dataset
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice, Unit
from dray.data.source import REJECTED, OnReject, Piece, Source
from dray.retry import OnWait
from dray.storage import StorageOptions

PIECE_BYTES = 16 << 20
"""Of a source that is not Parquet: small enough that progress is seen."""
GROUP_ROWS = 1 << 17
"""Rows of a row group of the output, where the input has no row groups."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file, or what has no files: a table, a query. Either slices or pieces, none if it has no rows."""

    name: str
    slices: Unit = ()
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of a file."""

    batch: pa.RecordBatch
    rejected: pa.Array | None
    """True for a row that cannot be read; None if all can."""
    group: int
    """Number of the row group in which they are written."""
    bytes: int
    """Of the pieces before these rows."""


def input_files(data: Dataset | Source) -> list[InputFile]:
    """Return the files of some data in order, also those without rows."""
    if isinstance(data, Dataset):
        slices: dict[str, list[Slice]] = {file: [] for file, _, _ in data.contents}
        for slice_ in data.row_groups:
            slices[slice_.file].append(slice_)
        return [InputFile(name, tuple(found)) for name, found in slices.items()]
    pieces: dict[str, list[Piece]] = {file.file.name: [] for file in getattr(data, "files", ())}
    for piece in data.pieces(PIECE_BYTES):
        pieces.setdefault(piece.name, []).append(piece)
    pieces = pieces or {data.name: []}
    return [InputFile(name, pieces=tuple(found)) for name, found in pieces.items()]


def rows_of_slices(
    slices: Sequence[Slice], columns: Sequence[str], categories: Sequence[str], storage: StorageOptions, on_wait: OnWait
) -> Iterator[Rows]:
    """Yield rows of Parquet, in the row groups that they have there."""
    for slice_, batch in read_slices(slices, columns, categories, storage, on_wait):
        yield Rows(batch, None, slice_.row_group, 0)


def rows_of_pieces(
    source: Source, pieces: Sequence[Piece], columns: Sequence[str], on_reject: OnReject
) -> Iterator[Rows]:
    """Yield rows of a source, in row groups of about `GROUP_ROWS`."""
    rows = done = 0
    for piece in pieces:
        for batch in source.read(piece, columns, on_reject, in_place=True):
            rejected = batch.column(REJECTED)
            yield Rows(batch.select(columns), rejected if rejected.true_count else None, rows // GROUP_ROWS, done)
            rows += batch.num_rows
        done += piece.bytes
