"""Rows of Parquet files, slice by slice, as record batches.

A row group of some size is read as a stream: memory is that of a page of each column and of a batch. Small row groups
are read whole, some of them ahead, in threads: with thousands of small files, opening them costs more than their rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from dray.data.features import as_meant
from dray.data.fitted import fitted
from dray.data.parquet_footer import PARQUET, Footer, Schemas, open_parquet
from dray.data.partitions import with_constants
from dray.data.shards import Slice
from dray.data.sources.files import reading
from dray.errors import DataError, StorageError
from dray.retry import OnWait, no_report
from dray.storage import StorageOptions, is_s3, open_storage, retrier_for

BATCH_BYTES = 16 * 2**20
"""About the size of a decoded batch: large enough to be fast, small enough that memory stays that of the matrix."""
LEAST_BATCH_ROWS = 1024
SMALL_ROWS = 10_000
"""Below it, what comes with a row group (a file to open, a footer, a call for each column) costs more than its rows."""
WHOLE_FILE_BYTES = 1 << 20
"""A file of so many bytes is read by one request: one for each column would take longer."""
MOST_FILES = 64
_READERS = {"local": 2, "remote": 16}
"""Threads that read small row groups ahead: a store is waited for, a disk hardly."""

Rows = tuple[Slice, pa.RecordBatch]
Part = tuple[Slice, ...]
"""Slices of one row group, in order, read in one go."""


def rows_of_batch(columns: int) -> int:
    """Return the rows of a batch with so many columns."""
    return max(LEAST_BATCH_ROWS, BATCH_BYTES // (4 * max(1, columns)))


def read_slices(
    slices: Sequence[Slice],
    columns: Sequence[str],
    categories: Sequence[str],
    storage: StorageOptions,
    on_wait: OnWait = no_report,
) -> Iterator[Rows]:
    """Yield the rows of the slices in order, in batches, each with its slice.

    `categories` are read as dictionaries, straight from the file's own: no string is built for a row. Transient
    errors of the store are retried: `on_wait` is called before every wait, and may raise to end the reading. Small row
    groups are read in threads, and so `on_wait` is called in any of them.
    """
    batch_rows = rows_of_batch(len(columns))
    job = _Job(tuple(columns), tuple(categories), storage, on_wait, batch_rows)
    small = min(SMALL_ROWS, batch_rows)
    for is_small, parts in groupby(parts_of(slices), lambda part: _rows_in(part) <= small):
        if is_small:
            yield from _ahead(job, _bundles(parts, max(small, batch_rows // 8)))
        else:
            yield from job.read(parts)


def parts_of(slices: Iterable[Slice]) -> Iterator[Part]:
    """Yield neighbouring slices of one row group together: its pages are decoded once for all of them."""
    part: list[Slice] = []
    for slice_ in slices:
        last = part[-1] if part else None
        if last and not ((slice_.file, slice_.row_group) == (last.file, last.row_group) and slice_.start >= last.stop):
            yield tuple(part)
            part = []
        part.append(slice_)
    if part:
        yield tuple(part)


def are_small(slices: Sequence[Slice]) -> bool:
    """Whether most of the time that reading takes goes into row groups, not rows."""
    parts = sum(1 for _ in parts_of(slices))
    return parts > 1 and sum(slice_.rows for slice_ in slices) < parts * SMALL_ROWS


def joined(batches: Iterable[Rows], most_rows: int) -> Iterator[tuple[tuple[Slice, ...], pa.RecordBatch]]:
    """Yield the same rows with small batches joined, each with the slices that it is made of.

    Batches are joined up to half of `most_rows`, as long as their columns have the same types.
    """
    held: list[Rows] = []
    rows = 0
    for slice_, batch in batches:
        if held and (2 * rows >= most_rows or not batch.schema.equals(held[-1][1].schema)):
            yield _join(held)
            held, rows = [], 0
        held.append((slice_, batch))
        rows += batch.num_rows
    if held:
        yield _join(held)


def changed(file: str) -> DataError:
    return DataError(f"{file} was changed while dray read it.", fix="Start again when no process writes the data.")


def _join(held: Sequence[Rows]) -> tuple[tuple[Slice, ...], pa.RecordBatch]:
    batches = [batch for _, batch in held]
    return tuple(slice_ for slice_, _ in held), batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _rows_in(part: Part) -> int:
    return part[-1].stop - part[0].start


def _bundles(parts: Iterable[Part], most_rows: int) -> Iterator[list[Part]]:
    """Yield small parts, as many together as a thread reads at a time."""
    bundle: list[Part] = []
    rows = 0
    for part in parts:
        if bundle and (rows + _rows_in(part) > most_rows or len(bundle) == MOST_FILES):
            yield bundle
            bundle, rows = [], 0
        bundle.append(part)
        rows += _rows_in(part)
    if bundle:
        yield bundle


def _ahead(job: _Job, bundles: Iterator[list[Part]]) -> Iterator[Rows]:
    """Yield the rows of the bundles in order; threads read the next ones meanwhile.

    When the rest is not wanted, no thread is waited for, as in `stream.ahead`: each ends by itself after its bundle.
    """
    first = next(bundles)
    second = next(bundles, None)
    if second is None:
        yield from job.read(first)
        return
    readers = _READERS["remote" if is_s3(first[0][0].file) else "local"]
    pool = ThreadPoolExecutor(readers, thread_name_prefix="dray-read")
    waiting: deque[Future[list[Rows]]] = deque(pool.submit(job.read_whole, bundle) for bundle in (first, second))
    try:
        while waiting:
            while len(waiting) <= 2 * readers and (bundle := next(bundles, None)) is not None:
                waiting.append(pool.submit(job.read_whole, bundle))
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class _Job:
    """What to read of each slice, and what is known of the files. Several threads may use it."""

    columns: tuple[str, ...]
    categories: tuple[str, ...]
    storage: StorageOptions
    on_wait: OnWait
    batch_rows: int
    schemas: Schemas = field(default_factory=Schemas)
    footer: Footer | None = None
    """The one that was read last: threads may read the row groups of one file."""
    plain: pa.Schema | None = None
    """The schema of files that was last seen to have no dictionary: to see it again for each file takes long."""

    def read_whole(self, parts: Iterable[Part]) -> list[Rows]:
        return list(self.read(parts))

    def read(self, parts: Iterable[Part]) -> Iterator[Rows]:
        source = _Source(self)
        try:
            for part in parts:
                yield from self._with_retries(source, part)
        finally:
            source.close()

    def _with_retries(self, source: _Source, part: Part) -> Iterator[Rows]:
        """Yield the rows of one part; after a transient error, open the file again and go on where reading stopped."""
        retrier = retrier_for(part[0].file, self.storage, self.on_wait)
        while True:
            try:
                with reading(part[0].file, PARQUET):
                    for taken, batch in self._rows(source, part):
                        retrier.succeeded()
                        part = _behind(part, taken)
                        yield taken, batch
                return
            except StorageError as error:
                source.close()
                retrier.wait_after(error)

    def _rows(self, source: _Source, part: Part) -> Iterator[Rows]:
        reader = source.open(part)
        first, last = part[0], part[-1]
        if last.row_group >= reader.num_row_groups or reader.metadata.row_group(last.row_group).num_rows < last.stop:
            raise changed(last.file)
        schema = source.schema
        added = {constant.name for constant in first.constants} - set(schema.names)
        own = [name for name in self.columns if name not in added]
        given = first.given
        stored = own if not given else [name for name in own if name in schema.names] or schema.names[:1]
        start = 0
        for batch in self._batches(reader, last.row_group, stored):
            for slice_ in part:
                begin, end = max(start, slice_.start), min(start + batch.num_rows, slice_.stop)
                if begin < end:
                    taken = replace(slice_, start=begin, stop=end, position=slice_.position + begin - slice_.start)
                    rows = self._meant(batch.slice(begin - start, end - begin), schema)
                    rows = fitted(rows, own, given, taken.file) if given else rows
                    constants = taken.constants
                    yield taken, with_constants(rows, self.columns, constants, taken.file) if constants else rows
            start += batch.num_rows
            if start >= last.stop:
                return
        raise DataError(
            f"{last.file} holds fewer rows than its footer says: {start:,} of {last.stop:,} in row group "
            f"{last.row_group}.",
            fix="It is damaged, or was changed while dray read it: write it again, or leave it out.",
        )

    def _batches(self, reader: pq.ParquetFile, row_group: int, columns: list[str]) -> Iterable[pa.RecordBatch]:
        if reader.metadata.row_group(row_group).num_rows > min(SMALL_ROWS, self.batch_rows):
            batches: Iterable[pa.RecordBatch]
            batches = reader.iter_batches(self.batch_rows, row_groups=[row_group], columns=columns)
            return batches
        table = reader.read_row_group(row_group, columns=columns, use_threads=False)
        return table.to_batches() if columns else [_without_columns(table.num_rows)]

    def _meant(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return rows of a file with the dictionary types of its schema."""
        if schema is not self.plain:
            batch = as_meant(batch, schema)
            self.plain = self.plain if any(map(pa.types.is_dictionary, schema.types)) else schema
        return batch


def _without_columns(rows: int) -> pa.RecordBatch:
    """Return rows without columns: those of a table would be gone."""
    return pa.record_batch([pa.nulls(rows)], names=["nothing"]).select([])


def _behind(part: Part, taken: Slice) -> Part:
    """Return what is left of a part when it was read up to the end of `taken`."""
    left = [slice_ for slice_ in part if slice_.stop > taken.stop]
    if left and left[0].start < taken.stop:
        skipped = taken.stop - left[0].start
        left[0] = replace(left[0], start=taken.stop, position=left[0].position + skipped)
    return tuple(left)


class _Source:
    """The file that is being read: one at a time. Its footer must be the one that the rows were planned with."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._file: str | None = None
        self._reader: pq.ParquetFile | None = None
        self._footer: Footer | None = None
        self.schema: pa.Schema
        """Of the file."""

    def open(self, part: Part) -> pq.ParquetFile:
        file = part[0].file
        if self._reader is None or file != self._file:
            self.close()
            # Perhaps not in the file.
            elsewhere = {constant.name for constant in part[0].constants} | {field.name for field in part[0].given}
            self._open(file, [name for name in self._job.categories if name not in elsewhere])
        assert self._reader is not None
        assert self._footer is not None
        if any(slice_.footer and slice_.footer != self._footer.digest for slice_ in part):
            raise changed(file)
        return self._reader

    def _open(self, file: str, categories: Sequence[str]) -> None:
        filesystem, path = open_storage(file, self._job.storage)
        stream = filesystem.open_input_file(path)
        if stream.size() <= WHOLE_FILE_BYTES:
            with stream:
                stream = pa.BufferReader(stream.read_buffer())
        # Buffered reading keeps one page of a column in memory instead of the whole column of a row group.
        reader, footer = open_parquet(
            stream,
            self._job.footer,
            read_dictionary=categories,
            buffer_size=2**20,
            pre_buffer=False,
            page_checksum_verification=True,  # where files have checksums: ingest writes them
        )
        if file == self._file and self._footer is not None and footer.digest != self._footer.digest:  # opened again
            reader.close(force=True)
            raise changed(file)
        self._reader, self._file, self._footer = reader, file, footer
        self._job.footer, self.schema = footer, self._job.schemas.of(footer.metadata)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close(force=True)
            self._reader = None
