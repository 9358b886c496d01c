"""Parquet: footers for the driver, record batches for whoever holds a shard."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.features import as_meant, column_of, dictionary_type, is_text
from dray.data.partitions import Constant, constants_of, kept_types, partitions_of, with_constants
from dray.data.shards import Slice
from dray.errors import DataError, DrayError, StorageError
from dray.retry import OnWait, Patience, no_word
from dray.storage import StorageOptions, expand, open_storage, patience_with, patiently, translate_errors

BATCH_BYTES = 16 * 2**20
"""About the size of a decoded batch: large enough to be quick, small enough that memory follows the matrix."""
LEAST_BATCH_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the footers say."""

    schema: pa.Schema
    row_groups: tuple[Slice, ...]
    """Every row group as a slice, in the order of the files."""
    bytes: int
    storage: StorageOptions
    contents: tuple[tuple[str, int, int], ...] = ()
    """Name, rows and bytes of every file: enough to see later whether the data is still the same."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(group.file for group in self.row_groups))


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Name the file when it turns out to be damaged or unreadable."""
    try:
        with translate_errors(file):
            yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        first_line = (str(error).splitlines() or ["no reason given"])[0]
        raise DataError(
            f"Cannot read {file} as Parquet: {first_line}",
            fix="Check that the file is complete (it may still be written, or was cut off), or leave it out.",
        ) from error


def open_dataset(locations: Sequence[str], storage: StorageOptions) -> Dataset:
    """Read the footers of all files, in parallel; refuse files that do not fit together."""
    files = expand(locations, storage)
    with ThreadPoolExecutor(max_workers=16) as pool:
        footers = list(pool.map(lambda file: read_footer(file, storage), files))
    schemas = [schema_of(footer) for footer in footers]
    constants = _constants(locations, files, footers, schemas)
    schemas = [with_fields(found, own) for found, own in zip(schemas, constants, strict=True)]
    schema, typed_by = _common_schema(schemas, files)
    groups: list[Slice] = []
    position = 0
    for file, footer, found, own in zip(files, footers, schemas, constants, strict=True):
        _require_same(schema, found, typed_by, files[0], file)
        for index in range(footer.num_row_groups):
            rows = footer.row_group(index).num_rows
            if rows:
                groups.append(Slice(file, index, 0, rows, position, own))
            position += rows
    if not groups:
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name Parquet files that hold rows.")
    size = sum(f.row_group(i).total_byte_size for f in footers for i in range(f.num_row_groups))
    contents = [(file, footer.num_rows, _stored_bytes(footer)) for file, footer in zip(files, footers, strict=True)]
    return Dataset(schema, tuple(groups), size, storage, tuple(contents))


def _constants(
    locations: Sequence[str], files: Sequence[str], footers: Sequence[pq.FileMetaData], schemas: Sequence[pa.Schema]
) -> list[tuple[Constant, ...]]:
    """Return the columns in the names of each file's directories; a type that any file says is the type."""
    parts = partitions_of(locations, files)
    types: dict[str, pa.DataType] = {}
    for footer, schema in zip(footers, schemas, strict=True):
        held = {key: schema.field(key).type for key, _ in parts[0] if key in schema.names}
        types = {**held, **kept_types(footer.metadata), **types}
    return constants_of(parts, types)


def with_fields(schema: pa.Schema, constants: Sequence[Constant]) -> pa.Schema:
    """Return a file's schema with the columns that stand in the names of its directories."""
    for constant in constants:
        if constant.name not in schema.names:
            schema = schema.append(pa.field(constant.name, constant.type))
    return schema


def _stored_bytes(footer: pq.FileMetaData) -> int:
    """Bytes of a file as far as its footer tells: no other request to the store is needed."""
    groups = (footer.row_group(index) for index in range(footer.num_row_groups))
    columns = (group.column(index) for group in groups for index in range(group.num_columns))
    return int(footer.serialized_size + sum(column.total_compressed_size for column in columns))


def read_slices(
    slices: Sequence[Slice],
    columns: Sequence[str],
    categories: Sequence[str],
    storage: StorageOptions,
    on_wait: OnWait = no_word,
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    """Yield the rows of the slices in order, in batches, each with the slice that it is.

    `categories` are read as dictionaries, straight from the file's own: no string is built for a row. A store that
    fails for a moment is waited for: `on_wait` hears of it, and may raise to end the reading.
    """
    batch_rows = max(LEAST_BATCH_ROWS, BATCH_BYTES // (4 * max(1, len(columns))))
    source = _Source(categories, storage)
    try:
        for piece in slices:
            patience = patience_with(piece.file, storage, on_wait)
            yield from _read_patiently(source, piece, columns, batch_rows, patience)
    finally:
        source.close()


class _Source:
    """The file that is being read: one at a time."""

    def __init__(self, categories: Sequence[str], storage: StorageOptions) -> None:
        self._categories = categories
        self._storage = storage
        self._file: str | None = None
        self._reader: pq.ParquetFile | None = None
        self._footer: pq.FileMetaData | None = None

    def open(self, piece: Slice) -> pq.ParquetFile:
        file = piece.file
        if self._reader is not None and file == self._file:
            return self._reader
        self.close()
        elsewhere = {constant.name for constant in piece.constants}  # perhaps not in the file
        reader = _open(file, [name for name in self._categories if name not in elsewhere], self._storage)
        if file == self._file and self._footer is not None and not reader.metadata.equals(self._footer):
            reader.close(force=True)
            raise DataError(f"{file} was changed while it was read.", fix="Start again when nobody writes the data.")
        self._file, self._reader, self._footer = file, reader, reader.metadata
        return reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close(force=True)
            self._reader = None


def _read_patiently(
    source: _Source, piece: Slice, columns: Sequence[str], batch_rows: int, patience: Patience
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    """Yield the rows of one slice; after an error that passes, open the file again and go on where it stopped."""
    while True:
        try:
            with reading(piece.file):
                for part, batch in _read_slice(source.open(piece), piece, columns, batch_rows):
                    patience.succeeded()
                    piece = replace(piece, start=part.stop, position=part.position + part.rows)
                    yield part, batch
            return
        except StorageError as error:
            source.close()
            patience.wait_after(error)


def schema_of(footer: pq.FileMetaData) -> pa.Schema:
    """Return the types of a file's columns, dictionaries included.

    pyarrow gives back dictionaries of text only. That others were dictionaries as well (pandas' Categorical of
    integers) stands in the schema that the writer left in the footer.
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
    """Return the schema as the writer had it; an empty one if it did not say."""
    written = (footer.metadata or {}).get(b"ARROW:schema", b"")
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))
    except (pa.ArrowException, ValueError, OSError, EOFError):  # pyarrow reads the file without it, too
        return pa.schema([])


def _read_slice(
    reader: pq.ParquetFile, piece: Slice, columns: Sequence[str], batch_rows: int
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    start = 0
    schema = schema_of(reader.metadata)
    added = {constant.name for constant in piece.constants} - set(schema.names)
    stored = [name for name in columns if name not in added]
    for batch in reader.iter_batches(batch_rows, row_groups=[piece.row_group], columns=stored):
        first, last = max(start, piece.start), min(start + batch.num_rows, piece.stop)
        if first < last:
            part = replace(piece, start=first, stop=last, position=piece.position + first - piece.start)
            rows = as_meant(batch.slice(first - start, last - first), schema)
            yield part, with_constants(rows, columns, piece.constants, piece.file) if piece.constants else rows
        start += batch.num_rows
        if start >= piece.stop:
            return


def _open(file: str, categories: Sequence[str], storage: StorageOptions) -> pq.ParquetFile:
    filesystem, path = open_storage(file, storage)
    # Buffered reading keeps one page of a column in memory instead of the whole column of a row group.
    return pq.ParquetFile(
        filesystem.open_input_file(path), read_dictionary=list(categories), buffer_size=2**20, pre_buffer=False
    )


def read_footer(file: str, storage: StorageOptions) -> pq.FileMetaData:
    """Return the footer of a file, patiently."""

    def read() -> pq.FileMetaData:
        filesystem, path = open_storage(file, storage)
        with filesystem.open_input_file(path) as stream:
            return pq.read_metadata(stream)

    with reading(file):
        return patiently(file, storage, read)


def _common_schema(schemas: Sequence[pa.Schema], files: Sequence[str]) -> tuple[pa.Schema, dict[str, str]]:
    """Return the first file's schema, and which file gives a column its type: the first where it is not all null.

    What is a dictionary in one file is one in all: a category, as text is.
    """
    for file, schema in zip(files, schemas, strict=True):
        names = Counter(schema.names)
        if len(names) < len(schema):
            raise DataError(
                f'{file} has two columns "{names.most_common(1)[0][0]}".', fix="Write the file with distinct names."
            )
    common = schemas[0]
    typed_by = dict.fromkeys(common.names, files[0])
    others = [(file, schema) for file, schema in zip(files, schemas, strict=True) if not schema.equals(common)]
    for index, field in enumerate(common):
        if pa.types.is_dictionary(field.type) or is_text(field.type):
            continue
        for file, schema in others:
            position = schema.get_field_index(field.name)
            if position >= 0 and _says_more(schema.field(position).type, common.field(index).type):
                common = common.set(index, schema.field(position))
                typed_by[field.name] = file
    return common, typed_by


def _says_more(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a type tells what the other leaves open: any type of a column of nulls, a dictionary of its values."""
    if pa.types.is_null(other):
        return not pa.types.is_null(one)
    return bool(pa.types.is_dictionary(one) and one.value_type == other)


def _require_same(
    expected: pa.Schema, found: pa.Schema, typed_by: Mapping[str, str], first_file: str, file: str
) -> None:
    if found.equals(expected):
        return
    expected_names, found_names = expected.names, found.names
    missing = sorted(set(expected_names) - set(found_names), key=expected_names.index)
    extra = sorted(set(found_names) - set(expected_names), key=found_names.index)
    if missing or extra:
        name, lacking = (missing[0], file) if missing else (extra[0], first_file)
        having = first_file if missing else file
        raise DataError(
            f'The files differ: column "{name}" is in {having} but not in {lacking}.',
            fix="Write all files with the same columns, or leave the file out.",
        )
    for name in expected_names:
        one, other = expected.field(name).type, found.field(name).type
        if one != other and not _same_meaning(name, one, other):
            raise DataError(
                f'The files differ: column "{name}" is {one} in {typed_by[name]} but {other} in {file}.',
                fix="Write the column with one type in all files, or leave the file out.",
            )


def _same_meaning(name: str, one: pa.DataType, other: pa.DataType) -> bool:
    """A dictionary and its plain values are one thing, and a column of nulls fits any."""
    if pa.types.is_null(one) or pa.types.is_null(other) or _says_more(one, other):
        return True
    try:
        first, second = column_of(name, one), column_of(name, other)
    except DrayError:
        return False
    return first.kind == "category" and first == second
