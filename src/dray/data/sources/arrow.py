"""Arrow IPC: files (Feather is one) by their record batches; streams from beginning to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dray.data.features import as_meant, dictionary_type, is_text
from dray.data.source import PIECE_BYTES, OnReject, Piece
from dray.data.sources.columns import chosen
from dray.data.sources.files import DataFile, FileSource, RandomFile, as_stream, find_files, in_parallel, reading
from dray.data.sources.types import require_same
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

    def read(self, piece: Piece, columns: Sequence[str] | None, _reject: OnReject) -> Iterator[pa.RecordBatch]:
        file = self.file_of(piece)
        schema = chosen(columns, self.schema)
        with _opened(file.file, self.storage) as (reader, stream):
            batches = reader if stream else (reader.get_batch(index) for index in range(piece.start, piece.stop))
            for batch in batches:
                if batch.num_rows:
                    batch = as_meant(batch.select(schema.names), schema)
                    yield batch.replace_schema_metadata() if batch.schema.equals(schema) else batch.cast(schema)


def open_arrow(locations: Sequence[str], storage: StorageOptions) -> ArrowSource:
    """Read the schemas of all files; refuse files whose columns differ."""
    files = find_files(locations, storage)
    opened = in_parallel(lambda file: _open(file, storage), files)
    schema = _with_categories(
        require_same([(file.file.location, schema) for file, schema in opened]), [schema for _, schema in opened]
    )
    if not any(file.batches for file, _ in opened):
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name Arrow files that hold rows.")
    return ArrowSource(", ".join(locations), tuple(file for file, _ in opened), storage, schema)


def _with_categories(common: pa.Schema, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the schema with a dictionary where any file has one: a category in one of them is one in all."""
    for index, field in enumerate(common):
        if any(pa.types.is_dictionary(schema.field(field.name).type) for schema in schemas):
            values = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if not is_text(values):  # text is a category as it is
                common = common.set(index, field.with_type(dictionary_type(values)))
    return common


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
