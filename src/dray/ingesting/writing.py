"""Rows into Parquet files: in row groups of an even size, into parts and directories if asked, each file whole or not
there at all."""

from __future__ import annotations

import os
import resource
import secrets
import shutil
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
from dray.errors import ConfigError, DataError
from dray.ingesting.recipe import PARTS, Recipe
from dray.ingesting.split import for_test
from dray.ingesting.written import Written
from dray.storage import StorageOptions, is_s3, join, open_storage, patiently, translate_errors

MOST_GROUP_ROWS = 1 << 20
MOST_PARTITIONS = 1000
BUFFER_BYTES = 96 << 20
"""Of all files of a task together, until row groups are written before they have their size."""
_SAMPLE_ROWS = 2000
_FEW, _SOME = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class Layout:
    """Where rows go and how: known before the first one is read. Picklable."""

    out: str
    storage: StorageOptions
    scratch: str
    """A directory beside the output, for files that are not whole yet; nothing on S3."""
    recipe: Recipe
    columns: tuple[str, ...]
    """What is written, in this order; what stands in the names of directories is not in the files again."""
    group_bytes: int

    @contextmanager
    def open(self, name: str) -> Iterator[Parts]:
        """Give what takes the rows of a file (of each part and directory); what is not finished goes away."""
        parts = Parts(self, name)
        try:
            yield parts
        finally:
            parts.discard()

    def write(self, name: str, table: pa.Table) -> list[Written]:
        """Write a table at once."""
        with self.open(name) as parts:
            for batch in table.to_batches():
                parts.add(batch)
            return parts.finish()


class Parts:
    """The files of one task: one, or one for each part and each value of the partition columns."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._layout = layout
        self._name = name
        self._files: dict[tuple[str, str], PartFile] = {}
        if layout.recipe.partition_by:
            _allow_many_files()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows."""
        if not batch.num_rows:
            return
        recipe = self._layout.recipe
        if recipe.split is None:
            self._add_to("", batch)
            return
        chosen = for_test(batch, recipe.split, self._layout.columns)
        for part, mask in zip(PARTS, (pc.invert(chosen), chosen), strict=True):
            self._add_to(part, batch.filter(mask))

    def finish(self) -> list[Written]:
        """Put all files where they belong."""
        return [self._files[key].finish(key[0]) for key in sorted(self._files)]

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()

    def _add_to(self, part: str, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        columns = [name for name in self._layout.columns if name not in self._layout.recipe.partition_by]
        for folder, rows in divide(batch, self._layout.recipe.partition_by):
            key = (part, folder)
            if key not in self._files:
                if len({folder, *(known for _, known in self._files)}) > MOST_PARTITIONS:
                    raise too_many_partitions(self._layout.recipe.partition_by)
                location = join(self._layout.out, *(text for text in (part, folder, self._name) if text))
                self._files[key] = PartFile(self._layout, location)
            self._files[key].add(self._said(rows.select(columns), batch.schema))
        self._relieve()

    def _said(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Have the file say what the columns in the names of its directories are: text alone does not tell."""
        by = self._layout.recipe.partition_by
        return rows.replace_schema_metadata(keep_types(schema, by)) if by else rows

    def _relieve(self) -> None:
        """Write the largest of what waits, when it is too much: many directories share the memory of one."""
        if len(self._files) < 2:
            return
        while sum(file.waiting_bytes for file in self._files.values()) > BUFFER_BYTES:
            max(self._files.values(), key=lambda file: file.waiting_bytes).flush()


class PartFile:
    """One Parquet file on its way."""

    def __init__(self, layout: Layout, location: str) -> None:
        self._layout = layout
        self._location = location
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._group_rows = 0
        self._row_bytes = 0.0
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._path: Path | None = None
        self._spool: IO[bytes] | None = None

    @property
    def waiting_bytes(self) -> int:
        return int(self._waiting_rows * self._row_bytes)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; write row groups as they have their size. The last one may have half as many more."""
        if self._writer is None:
            self._open(batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        while self._waiting_rows >= 1.5 * self._group_rows:
            self._write(self._group_rows)

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting_rows:
            self._write(self._waiting_rows)

    def finish(self, part: str) -> Written:
        """Write the rest and put the file where it belongs; who looks there sees all of it or nothing."""
        self.flush()
        assert self._writer is not None
        with translate_errors(self._location):
            self._writer.close()
            size = self._publish()
        self.discard()
        name = self._location.removeprefix(self._layout.out).lstrip("/")
        return Written(name, self._rows, size, part)

    def discard(self) -> None:
        """Leave nothing but the finished file."""
        if self._writer is not None:
            with suppress(OSError, pa.ArrowException):  # a disk that is full is full when it is closed, too
                self._writer.close()
            self._writer = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None
        self._waiting.clear()
        self._waiting_rows = 0

    def _open(self, first: pa.RecordBatch) -> None:
        self._row_bytes = max(1.0, first.nbytes / first.num_rows)
        self._group_rows = max(1, min(MOST_GROUP_ROWS, round(self._layout.group_bytes / self._row_bytes)))
        with translate_errors(self._location):
            if is_s3(self._location):
                self._spool = tempfile.TemporaryFile()  # noqa: SIM115  (nameless: it goes when this process does)
                sink: Any = pa.PythonFile(self._spool, mode="w")
            else:
                Path(self._layout.scratch).mkdir(parents=True, exist_ok=True)
                self._path = Path(self._layout.scratch) / f"{os.getpid()}-{secrets.token_hex(6)}"
                sink = str(self._path)
            self._writer = pq.ParquetWriter(sink, first.schema, use_dictionary=repeating(first))

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
        assert self._writer is not None
        with translate_errors(self._location):
            self._writer.write_table(pa.Table.from_batches(taken), row_group_size=rows)
        self._rows += rows

    def _publish(self) -> int:
        if self._path is not None:
            size = self._path.stat().st_size
            Path(self._location).parent.mkdir(parents=True, exist_ok=True)
            self._path.replace(self._location)
            self._path = None
            return size
        assert self._spool is not None
        spool, size = self._spool, self._spool.tell()
        filesystem, path = open_storage(self._location, self._layout.storage)

        def upload() -> None:
            spool.seek(0)
            with filesystem.open_output_stream(path) as stream:
                shutil.copyfileobj(spool, stream, 8 << 20)

        patiently(self._location, self._layout.storage, upload)
        return size


def repeating(batch: pa.RecordBatch) -> list[str]:
    """Return the columns whose values come again and again: only these are worth a dictionary.

    Building one that is given up in the end is most of what writing numbers costs (measured: 4 times as long in all).
    """
    sample = batch.slice(0, _SAMPLE_ROWS)
    found = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pt.is_nested(field.type) or pt.is_boolean(field.type) or pt.is_null(field.type):
            continue
        # Text is long: there a dictionary pays even if most values are new in a sample.
        few = _FEW if pt.is_primitive(field.type) else _SOME
        if pt.is_dictionary(field.type) or len(column.unique()) <= max(1, few * len(column)):
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
        # Copied, not cut out: a few rows that wait would keep the memory of all.
        yield folder, batch.take(pa.array(np.sort(order[bounds[index] : bounds[index + 1]])))


def require_partitions(recipe: Recipe, schema: pa.Schema) -> None:
    """Refuse to partition by what the name of a directory cannot tell, or by all there is."""
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
            "All columns stand in the names of directories (--partition-by): none is left for the files.",
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
    return text if text != NO_VALUE else text.replace("_", "%5F")  # a text that is spelled like that is not missing


def _allow_many_files() -> None:
    """A file for each directory may be open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST_PARTITIONS
    if soft < wanted and soft != resource.RLIM_INFINITY:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
