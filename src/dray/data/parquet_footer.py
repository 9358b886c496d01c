"""The footer of a Parquet file, and its digest, which shows that a file was replaced."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.features import dictionary_type
from dray.data.sources.files import LOCAL_READERS, PARALLEL_REQUESTS, in_parallel, reading
from dray.storage import StorageOptions, is_s3, open_storage, with_retries

_TAIL_BYTES = 64 << 10
"""Read at once from the end of a file: enough for the footers of most."""
_ENDING = b"PAR1"
PARQUET = "Parquet"
"""What a damaged file was read as, for messages."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself."""

    metadata: pq.FileMetaData
    digest: str
    """Of the footer's bytes: offset, size, least and greatest value of every column."""


def footers_of(files: Sequence[str], storage: StorageOptions) -> list[Footer]:
    """Return the footers of many files, in parallel; retries."""
    threads = PARALLEL_REQUESTS if any(map(is_s3, files)) else LOCAL_READERS
    return in_parallel(lambda file: read_footer(file, storage), files, threads)


def read_footer(file: str, storage: StorageOptions) -> Footer:
    """Return the footer of a file; retries."""

    def read() -> Footer:
        filesystem, path = open_storage(file, storage)
        with filesystem.open_input_file(path) as stream:
            return footer_of(stream)

    with reading(file, PARQUET):
        return with_retries(file, storage, read)


def footer_digest(file: str, storage: StorageOptions) -> str:
    """Return the digest of a file's footer without parsing it; retries. "" if there is none."""

    def read() -> str:
        filesystem, path = open_storage(file, storage)
        with filesystem.open_input_file(path) as stream:
            found = _footer_bytes(stream)
            return "" if found is None else _digest(found)

    return with_retries(file, storage, read)


def footer_of(stream: pa.NativeFile, known: Footer | None = None) -> Footer:
    """Return the footer of an open file, by one request or two; it is not parsed again if it is the `known` one."""
    found = _footer_bytes(stream)
    if found is None:
        return Footer(pq.read_metadata(stream), "")  # raises pyarrow's own error
    digest = _digest(found)
    if known is not None and digest == known.digest:
        return known
    return Footer(pq.read_metadata(pa.BufferReader(found)), digest)


def open_parquet(stream: pa.NativeFile, known: Footer | None, **how: Any) -> tuple[pq.ParquetFile, Footer]:
    """Return a reader of an open file, and its footer. Of a file in memory, the reader itself parses the footer."""
    if not isinstance(stream, pa.BufferReader):
        footer = footer_of(stream, known)
        return pq.ParquetFile(stream, metadata=footer.metadata, **how), footer
    found = _footer_bytes(stream)
    digest = "" if found is None else _digest(found)
    if known is not None and digest == known.digest:
        return pq.ParquetFile(stream, metadata=known.metadata, **how), known
    reader = pq.ParquetFile(stream, **how)
    return reader, Footer(reader.metadata, digest)


def _footer_bytes(stream: pa.NativeFile) -> bytes | None:
    size = stream.size()
    tail: bytes = stream.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != _ENDING or length > size:
        return None
    return tail[-length:] if length <= len(tail) else stream.read_at(length, size - length)


def _digest(footer: bytes) -> str:
    return hashlib.blake2b(footer, digest_size=16).hexdigest()


def stored_bytes(footer: pq.FileMetaData) -> int:
    """Bytes of a file by its footer, without another request to the store."""
    groups = (footer.row_group(index) for index in range(footer.num_row_groups))
    columns = (group.column(index) for group in groups for index in range(group.num_columns))
    return int(footer.serialized_size + sum(column.total_compressed_size for column in columns))


class Schemas:
    """Gives the schemas of many files. Most have that of the file before, and comparing costs less than making one.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._last: tuple[pq.FileMetaData, pa.Schema] | None = None

    def of(self, footer: pq.FileMetaData) -> pa.Schema:
        last = self._last
        if last is not None and footer.schema.equals(last[0].schema) and footer.metadata == last[0].metadata:
            return last[1]
        found = schema_of(footer)
        self._last = footer, found
        return found


def schema_of(footer: pq.FileMetaData) -> pa.Schema:
    """Return the types of a file's columns, dictionaries included.

    pyarrow restores dictionaries of text only. Other dictionaries (pandas' Categorical of integers) are recorded in
    the schema that the writer left in the footer.
    """
    found = footer.schema.to_arrow_schema()
    meant = _written_schema(footer)
    for index, field in enumerate(found):
        position = meant.get_field_index(field.name)
        type_ = field.type if position < 0 else meant.field(position).type
        if pa.types.is_dictionary(field.type):
            found = found.set(index, field.with_type(dictionary_type(field.type.value_type)))
        elif pa.types.is_dictionary(type_) and not pa.types.is_nested(field.type):
            found = found.set(index, field.with_type(dictionary_type(field.type)))
    return found


def _written_schema(footer: pq.FileMetaData) -> pa.Schema:
    """Return the writer's schema; an empty one if the footer has none."""
    written = (footer.metadata or {}).get(b"ARROW:schema", b"")
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))
    except (pa.ArrowException, ValueError, OSError, EOFError):  # pyarrow reads the file without it, too
        return pa.schema([])
