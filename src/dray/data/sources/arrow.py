"""Arrow IPC: files (Feather is one) by their record batches; streams from beginning to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dray.data.common_schema import Columns, common_schema, differing
from dray.data.features import as_meant
from dray.data.fitted import fitted
from dray.data.source import PIECE_BYTES, OnReject, Piece, all_kept
from dray.data.sources.columns import chosen, require_distinct
from dray.data.sources.files import DataFile, FileSource, RandomFile, as_stream, find_files, in_parallel, reading
from dray.errors import DataError
from dray.storage import StorageOptions

_MAGIC = b"ARROW1"
_WHAT = "Arrow data"


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """A file with what its footer says; a stream counts as one batch."""

    file: DataFile
    batches: int
    stream: bool


@dataclass(frozen=True, slots=True)
class ArrowSource(FileSource[ArrowFile]):
    """Rows of Arrow IPC files. Every row has the types that its file says."""

    schema: pa.Schema
    format: ClassVar[str] = "arrow"

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        found: list[Piece] = []
        for file in self.files:
            batch_bytes = file.file.bytes // max(1, file.batches)
            step = max(1, target_bytes // max(1, batch_bytes))
            for start in range(0, file.batches, step):
                stop = min(start + step, file.batches)
                found.append(Piece(file.file.location, len(found), start, stop, (stop - start) * batch_bytes))
        return found

    def read(
        self, piece: Piece, columns: Sequence[str] | None, _reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        file = self.file_of(piece)
        schema = chosen(columns, self.schema)
        with _opened(file.file, self.storage) as (reader, stream):
            batches = reader if stream else (reader.get_batch(index) for index in range(piece.start, piece.stop))
            for batch in batches:
                if batch.num_rows:
                    own = batch.replace_schema_metadata()
                    batch = fitted(own, schema.names, differing(own.schema, schema), piece.name)
                    batch = as_meant(batch, schema)
                    batch = batch if batch.schema.equals(schema) else batch.cast(schema)
                    yield all_kept(batch) if in_place else batch


def open_arrow(
    locations: Sequence[str], storage: StorageOptions, *, columns: Columns = "union", may_be_empty: bool = False
) -> ArrowSource:
    """Read the schemas of all files, and find one for them."""
    files = find_files(locations, storage)
    opened = in_parallel(lambda file: _open(file, storage), files)
    for file, schema in opened:
        require_distinct(schema.names, file.file.location, fix="Write the file with distinct names.")
    common = common_schema([(file.file.location, schema) for file, schema in opened], columns)
    if not any(file.batches for file, _ in opened) and not may_be_empty:
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name Arrow files that hold rows.")
    return ArrowSource(
        ", ".join(locations), tuple(file for file, _ in opened), storage, common.schema, notes=common.notes
    )


def _open(file: DataFile, storage: StorageOptions) -> tuple[ArrowFile, pa.Schema]:
    with _opened(file, storage) as (reader, stream):
        return ArrowFile(file, 1 if stream else reader.num_record_batches, stream), reader.schema.remove_metadata()


@contextmanager
def _opened(file: DataFile, storage: StorageOptions) -> Iterator[tuple[Any, bool]]:
    """Yield a reader of a file or of a stream, and which of them it is."""
    with reading(file.location, _WHAT), RandomFile(file, storage) as opened, as_stream(opened, file) as source:
        stream = source.read(len(_MAGIC)) != _MAGIC
        source.seek(0)
        with pa.ipc.open_stream(source) if stream else pa.ipc.open_file(source) as reader:
            yield reader, stream
