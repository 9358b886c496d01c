"""Write rows to Parquet files: in row groups of even size, by subset and partition if asked. A file appears complete
or not at all."""

from __future__ import annotations

import os
import resource
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from dray.data.features import is_text
from dray.data.partitions import NO_VALUE, keep_types
from dray.durable import put_in_place
from dray.errors import ConfigError, DataError
from dray.ingesting.plan import group_rows
from dray.ingesting.recipe import SUBSETS, Recipe
from dray.ingesting.split import for_test
from dray.ingesting.written import Written
from dray.storage import StorageOptions, is_s3, join, translate_errors, upload

MOST_PARTITIONS = 1000
BUFFER_BYTES = 96 << 20
"""Of all open files of a task together; beyond it, row groups are written before they are full."""
_SAMPLE_ROWS = 2000
_FEW, _SOME = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class Layout:
    """Where and how rows are written: known before the first one is read. Picklable."""

    out: str
    storage: StorageOptions
    scratch: str
    """A directory beside the output, for unfinished files; not used on S3."""
    recipe: Recipe
    columns: tuple[str, ...]
    """Columns to write, in this order; partition columns are in the names of directories, not in the files."""
    group_bytes: int

    @contextmanager
    def open(self, name: str) -> Iterator[TaskFiles]:
        """Yield the writer of a task's files; unfinished files are removed."""
        files = TaskFiles(self, name)
        try:
            yield files
        finally:
            files.discard()

    def write(self, name: str, table: pa.Table) -> list[Written]:
        """Write a whole table."""
        with self.open(name) as files:
            for batch in table.to_batches():
                files.add(batch)
            return files.finish()


class TaskFiles:
    """The files of one task: one, or one for each subset and each value of the partition columns."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._layout = layout
        self._name = name
        self._files: dict[tuple[str, str], OutputFile] = {}
        if layout.recipe.partition_by:
            _allow_many_files()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if not batch.num_rows:
            return
        recipe = self._layout.recipe
        if recipe.split is None:
            self._add_to("", batch)
            return
        chosen = for_test(batch, recipe.split, self._layout.columns)
        for subset, mask in zip(SUBSETS, (pc.invert(chosen), chosen), strict=True):
            self._add_to(subset, batch.filter(mask))

    def finish(self) -> list[Written]:
        """Move all files to their final names."""
        return [self._files[key].finish(key[0]) for key in sorted(self._files)]

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()

    def _add_to(self, subset: str, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        columns = [name for name in self._layout.columns if name not in self._layout.recipe.partition_by]
        for folder, rows in divide(batch, self._layout.recipe.partition_by):
            key = (subset, folder)
            if key not in self._files:
                if len({folder, *(known for _, known in self._files)}) > MOST_PARTITIONS:
                    raise too_many_partitions(self._layout.recipe.partition_by)
                location = join(self._layout.out, *(text for text in (subset, folder, self._name) if text))
                self._files[key] = OutputFile(self._layout, location)
            self._files[key].add(self._typed(rows.select(columns), batch.schema))
        self._relieve()

    def _typed(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Store the types of the partition columns in the file: the names of directories are only text."""
        by = self._layout.recipe.partition_by
        return rows.replace_schema_metadata(keep_types(schema, by)) if by else rows

    def _relieve(self) -> None:
        """When too many rows are buffered, write the largest buffer: many directories share the memory of one."""
        if len(self._files) < 2:
            return
        while sum(file.waiting_bytes for file in self._files.values()) > BUFFER_BYTES:
            max(self._files.values(), key=lambda file: file.waiting_bytes).flush()


class OutputFile:
    """One unfinished Parquet file."""

    def __init__(self, layout: Layout, location: str) -> None:
        self._layout = layout
        self._location = location
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self.waiting_bytes = 0
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._path: Path | None = None
        self._spool: IO[bytes] | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; write full row groups. The last one may have half as many rows more."""
        if self._writer is None:
            self._open(batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting_bytes += _bytes_of(batch)
        # By what waits, not by the first rows: they may be of another width than most.
        while self._waiting_rows >= 1.5 * (rows := self._group_rows()):
            self._write(rows)

    def flush(self) -> None:
        """Write the buffered rows."""
        if self._waiting_rows:
            self._write(self._waiting_rows)

    def finish(self, subset: str) -> Written:
        """Write the rest and move the file to its final name: a reader sees all of it or nothing."""
        self.flush()
        assert self._writer is not None
        with translate_errors(self._location):
            self._writer.close()
            size = self._publish()
        self.discard()
        name = self._location.removeprefix(self._layout.out).lstrip("/")
        return Written(name, self._rows, size, subset)

    def discard(self) -> None:
        """Remove everything but the finished file."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):  # a full disk also fails when the file is closed
                self._writer.close()
            self._writer = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None
        self._waiting.clear()
        self._waiting_rows, self.waiting_bytes = 0, 0

    def _group_rows(self) -> int:
        return group_rows(self._layout.group_bytes, max(1.0, self.waiting_bytes / max(1, self._waiting_rows)))

    def _open(self, first: pa.RecordBatch) -> None:
        with translate_errors(self._location):
            if is_s3(self._location):
                self._spool = tempfile.TemporaryFile()  # noqa: SIM115  (unnamed: it is gone when this process ends)
                sink: Any = pa.PythonFile(self._spool, mode="w")
            else:
                Path(self._layout.scratch).mkdir(parents=True, exist_ok=True)
                self._path = Path(self._layout.scratch) / f"{os.getpid()}-{secrets.token_hex(6)}"
                sink = str(self._path)
            self._writer = pq.ParquetWriter(
                sink, first.schema, use_dictionary=repeating(first), write_page_checksum=True
            )

    def _write(self, rows: int) -> None:
        taken: list[pa.RecordBatch] = []
        missing = rows
        while missing:
            batch = self._waiting[0]
            if batch.num_rows <= missing:
                taken.append(self._waiting.pop(0))
            else:
                taken.append(batch.slice(0, missing))
                self._waiting[0] = batch.slice(missing)
            missing -= taken[-1].num_rows
        self._waiting_rows -= rows
        self.waiting_bytes = sum(map(_bytes_of, self._waiting))
        assert self._writer is not None
        with translate_errors(self._location):
            self._writer.write_table(pa.Table.from_batches(taken), row_group_size=rows)
        self._rows += rows

    def _publish(self) -> int:
        if self._path is not None:
            size = self._path.stat().st_size
            put_in_place(self._path, Path(self._location))
            self._path = None
            return size
        assert self._spool is not None
        size = self._spool.tell()
        upload(self._location, self._layout.storage, self._spool)
        return size


def _bytes_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of the rows; a dictionary does not count, since many batches share it."""
    columns = (column.indices if pt.is_dictionary(column.type) else column for column in batch.columns)
    return sum(column.nbytes for column in columns)


def repeating(batch: pa.RecordBatch) -> list[str]:
    """Return the columns whose values repeat often: only for these a dictionary pays.

    A dictionary that is built and then discarded makes writing numbers 4 times as slow (measured).
    """
    sample = batch.slice(0, _SAMPLE_ROWS)
    found = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        column = column.storage if isinstance(column, pa.ExtensionArray) else column  # UUIDs: their bytes
        if pt.is_nested(column.type) or pt.is_boolean(column.type) or pt.is_null(column.type):
            continue
        # Text is long: there a dictionary pays even if most values of a sample occur once.
        few = _FEW if pt.is_primitive(column.type) else _SOME
        if pt.is_dictionary(column.type) or len(column.unique()) <= max(1, few * len(column)):
            found.append(field.name)
    return found


def divide(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each directory, a=1/b=x, in the order of the rows; all of them without partition columns."""
    if not columns:
        yield "", batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    values: list[list[Any]] = []
    for name in columns:
        encoded = batch.column(name)
        if not pt.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode(null_encoding="encode")
        known = encoded.dictionary.to_pylist()
        indices = pc.fill_null(encoded.indices, len(known)).to_numpy(zero_copy_only=False)
        values.append([*known, None])
        codes = codes * (len(known) + 1) + indices
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    bounds = [*np.searchsorted(codes[order], np.arange(len(first))), batch.num_rows]
    for index, row in enumerate(first):
        folder = "/".join(
            f"{quote(name, safe=' ')}={_folder(batch.column(name)[int(row)].as_py())}" for name in columns
        )
        # Copied, not sliced: a few buffered rows would keep the memory of the whole batch.
        yield folder, batch.take(pa.array(np.sort(order[bounds[index] : bounds[index + 1]])))


def require_storable(recipe: Recipe, schema: pa.Schema) -> None:
    """Refuse columns of a type that Parquet does not have, such as the intervals of a database."""
    for name in recipe.output(schema.names):
        try:
            pq.write_table(pa.schema([schema.field(name)]).empty_table(), pa.BufferOutputStream())
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            type_ = schema.field(name).type
            raise DataError(
                f'The column "{name}" is of a type that Parquet does not have: {type_}.',
                fix="Leave it out: --columns names those to write. Or make it a number or text in the query.",
            ) from error


def require_partitions(recipe: Recipe, schema: pa.Schema) -> None:
    """Refuse partition columns that a directory's name cannot express, or that leave no column for the files."""
    for name in recipe.partition_by:
        type_ = schema.field(name).type
        plain = type_.value_type if pt.is_dictionary(type_) else type_
        exact = pt.is_integer(plain) or pt.is_boolean(plain) or pt.is_decimal(plain) or pt.is_null(plain)
        moment = pt.is_date(plain) or pt.is_timestamp(plain)
        number = pt.is_floating(plain) and not pt.is_float16(plain)
        if not (exact or moment or number or is_text(plain)):
            raise DataError(
                f'The column "{name}" ({type_}) cannot be the name of a directory (--partition-by).',
                fix="Partition by a column of text, numbers or dates, or make one in a transform.",
            )
    if recipe.partition_by and not set(recipe.output(schema.names)) - set(recipe.partition_by):
        raise ConfigError(
            "--partition-by names all columns: none is left for the files.",
            fix="Partition by fewer columns, or write more with --columns.",
        )


def too_many_partitions(columns: Sequence[str]) -> DataError:
    return DataError(
        f"{', '.join(columns)} has more than {MOST_PARTITIONS:,} values, and each would be a directory.",
        fix="Partition by a column with fewer values, or sort by this one: --sort.",
    )


def _folder(value: Any) -> str:
    """Return a value as the name of a directory, as Hive and Spark write it."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return str(value).lower()
    text = quote(str(value), safe=" ")
    return text if text != NO_VALUE else text.replace("_", "%5F")  # text that is spelled like the mark of a missing one


def _allow_many_files() -> None:
    """Each directory may have an open file at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_PARTITIONS
    if soft < wanted and soft != resource.RLIM_INFINITY:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
