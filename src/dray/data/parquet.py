"""Parquet: footers for the driver, record batches for the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.features import as_meant, column_of, is_text
from dray.data.parquet_footer import PARQUET, footer_of, read_footer, schema_of, stored_bytes
from dray.data.partitions import Constant, constants_of, kept_types, partitions_of, with_constants
from dray.data.shards import Slice
from dray.data.sources.columns import require_distinct
from dray.data.sources.files import in_parallel, reading
from dray.errors import DataError, DrayError, StorageError
from dray.retry import OnWait, Retrier, no_report
from dray.storage import StorageOptions, expand, open_storage, retrier_for

BATCH_BYTES = 16 * 2**20
"""About the size of a decoded batch: large enough to be fast, small enough that memory stays that of the matrix."""
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
    """Name, rows and bytes of every file."""
    footers: tuple[str, ...] = ()
    """Digest of every file's footer."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(group.file for group in self.row_groups))


def open_dataset(locations: Sequence[str], storage: StorageOptions) -> Dataset:
    """Read the footers of all files, in parallel; refuse files whose columns differ."""
    files = expand(locations, storage)
    read = in_parallel(lambda file: read_footer(file, storage), files)
    footers = [footer.metadata for footer in read]
    schemas = [schema_of(footer) for footer in footers]
    constants = _constants(locations, files, footers, schemas)
    schemas = [with_fields(found, own) for found, own in zip(schemas, constants, strict=True)]
    schema, typed_by = _common_schema(schemas, files)
    groups: list[Slice] = []
    position = 0
    for file, footer, found, own in zip(files, read, schemas, constants, strict=True):
        _require_same(schema, found, typed_by, files[0], file)
        for index in range(footer.metadata.num_row_groups):
            rows = footer.metadata.row_group(index).num_rows
            if rows:
                groups.append(Slice(file, index, 0, rows, position, own, footer.digest))
            position += rows
    if not groups:
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name Parquet files that hold rows.")
    size = sum(f.row_group(i).total_byte_size for f in footers for i in range(f.num_row_groups))
    contents = [(file, footer.num_rows, stored_bytes(footer)) for file, footer in zip(files, footers, strict=True)]
    return Dataset(schema, tuple(groups), size, storage, tuple(contents), tuple(footer.digest for footer in read))


def _constants(
    locations: Sequence[str], files: Sequence[str], footers: Sequence[pq.FileMetaData], schemas: Sequence[pa.Schema]
) -> list[tuple[Constant, ...]]:
    """Return the columns in the names of each file's directories; if a file holds the column, its type counts."""
    parts = partitions_of(locations, files)
    types: dict[str, pa.DataType] = {}
    for footer, schema in zip(footers, schemas, strict=True):
        held = {key: schema.field(key).type for key, _ in parts[0] if key in schema.names}
        types = {**held, **kept_types(footer.metadata), **types}
    return constants_of(parts, types)


def with_fields(schema: pa.Schema, constants: Sequence[Constant]) -> pa.Schema:
    """Return a file's schema with the columns in the names of its directories."""
    for constant in constants:
        if constant.name not in schema.names:
            schema = schema.append(pa.field(constant.name, constant.type))
    return schema


def read_slices(
    slices: Sequence[Slice],
    columns: Sequence[str],
    categories: Sequence[str],
    storage: StorageOptions,
    on_wait: OnWait = no_report,
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    """Yield the rows of the slices in order, in batches, each with its slice.

    `categories` are read as dictionaries, straight from the file's own: no string is built for a row. Transient
    errors of the store are retried: `on_wait` is called before every wait, and may raise to end the reading.
    """
    batch_rows = max(LEAST_BATCH_ROWS, BATCH_BYTES // (4 * max(1, len(columns))))
    source = _Source(categories, storage)
    try:
        for slice_ in slices:
            retrier = retrier_for(slice_.file, storage, on_wait)
            yield from _read_with_retries(source, slice_, columns, batch_rows, retrier)
    finally:
        source.close()


class _Source:
    """The file that is being read: one at a time. Its footer must be the one that the rows were planned with."""

    def __init__(self, categories: Sequence[str], storage: StorageOptions) -> None:
        self._categories = categories
        self._storage = storage
        self._file: str | None = None
        self._reader: pq.ParquetFile | None = None
        self._digest = ""

    def open(self, slice_: Slice) -> pq.ParquetFile:
        file = slice_.file
        if self._reader is None or file != self._file:
            self.close()
            elsewhere = {constant.name for constant in slice_.constants}  # perhaps not in the file
            self._open(file, [name for name in self._categories if name not in elsewhere])
        if slice_.footer and slice_.footer != self._digest:
            raise changed(file)
        assert self._reader is not None
        return self._reader

    def _open(self, file: str, categories: Sequence[str]) -> None:
        filesystem, path = open_storage(file, self._storage)
        stream = filesystem.open_input_file(path)
        footer = footer_of(stream)
        if file == self._file and footer.digest != self._digest:  # opened again
            stream.close()
            raise changed(file)
        # Buffered reading keeps one page of a column in memory instead of the whole column of a row group.
        self._reader = pq.ParquetFile(
            stream,
            metadata=footer.metadata,
            read_dictionary=list(categories),
            buffer_size=2**20,
            pre_buffer=False,
            page_checksum_verification=True,  # where files have checksums: ingest writes them
        )
        self._file, self._digest = file, footer.digest

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close(force=True)
            self._reader = None


def changed(file: str) -> DataError:
    return DataError(f"{file} was changed while dray read it.", fix="Start again when no process writes the data.")


def _read_with_retries(
    source: _Source, slice_: Slice, columns: Sequence[str], batch_rows: int, retrier: Retrier
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    """Yield the rows of one slice; after a transient error, open the file again and go on where reading stopped."""
    while True:
        try:
            with reading(slice_.file, PARQUET):
                for taken, batch in _read_slice(source.open(slice_), slice_, columns, batch_rows):
                    retrier.succeeded()
                    slice_ = replace(slice_, start=taken.stop, position=taken.position + taken.rows)
                    yield taken, batch
            return
        except StorageError as error:
            source.close()
            retrier.wait_after(error)


def _read_slice(
    reader: pq.ParquetFile, slice_: Slice, columns: Sequence[str], batch_rows: int
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    start = 0
    if slice_.row_group >= reader.num_row_groups or reader.metadata.row_group(slice_.row_group).num_rows < slice_.stop:
        raise changed(slice_.file)
    schema = schema_of(reader.metadata)
    added = {constant.name for constant in slice_.constants} - set(schema.names)
    stored = [name for name in columns if name not in added]
    for batch in reader.iter_batches(batch_rows, row_groups=[slice_.row_group], columns=stored):
        first, last = max(start, slice_.start), min(start + batch.num_rows, slice_.stop)
        if first < last:
            taken = replace(slice_, start=first, stop=last, position=slice_.position + first - slice_.start)
            rows = as_meant(batch.slice(first - start, last - first), schema)
            yield taken, with_constants(rows, columns, slice_.constants, slice_.file) if slice_.constants else rows
        start += batch.num_rows
        if start >= slice_.stop:
            return
    raise DataError(
        f"{slice_.file} holds fewer rows than its footer says: {start:,} of {slice_.stop:,} in row group "
        f"{slice_.row_group}.",
        fix="It is damaged, or was changed while dray read it: write it again, or leave it out.",
    )


def _common_schema(schemas: Sequence[pa.Schema], files: Sequence[str]) -> tuple[pa.Schema, dict[str, str]]:
    """Return the first file's schema, and which file gives a column its type: the first where it is not all null.

    A dictionary in one file is a dictionary in all: a category, as text is.
    """
    for file, schema in zip(files, schemas, strict=True):
        require_distinct(schema.names, file, fix="Write the file with distinct names.")
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
    """Whether a type is more specific: any type than a column of nulls, a dictionary than its values."""
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
    """A dictionary and its plain values mean the same, and a column of nulls fits any type."""
    if pa.types.is_null(one) or pa.types.is_null(other) or _says_more(one, other):
        return True
    try:
        first, second = column_of(name, one), column_of(name, other)
    except DrayError:
        return False
    return first.kind == "category" and first == second
