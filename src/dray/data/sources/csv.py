"""CSV: compressed or not, with a header or not, one file or many.

| rule           |                                                                                              |
|----------------|----------------------------------------------------------------------------------------------|
| types          | guessed from the start, middle and end of every file, then fixed; `types` overrides          |
| numbers        | of a type that keeps them apart (`numbers.py`): no number becomes another one                |
| pieces         | byte ranges of plain files, at true record starts; a compressed file is one piece             |
| missing        | the empty cell, quoted or not; in columns that are not text also NA, NULL, NaN and others    |
|                | (`NULLS`)                                                                                    |
| rejected       | rows with too many or too few fields, a value that does not fit or that a guessed type would |
|                | change, text that is not UTF-8, and a quote that is never closed                             |
| left out       | empty lines                                                                                  |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pacsv

from dray.data.source import PIECE_BYTES, OnReject, Piece, make_reject
from dray.data.sources.columns import chosen
from dray.data.sources.csv_format import BlockReader, CsvFormat
from dray.data.sources.csv_numbers import Rows, sampled_numbers
from dray.data.sources.csv_split import record_starts
from dray.data.sources.files import DataFile, FileSource, RandomFile, chunks, find_files, head, in_parallel, plain_name
from dray.data.sources.lines import LineNumbers
from dray.data.sources.quotes import first_sure_start, last_end
from dray.data.sources.record_blocks import parse_in_order, whole_records
from dray.data.sources.types import Found, agree, is_number, merged_numbers, text_where_mixed
from dray.errors import ConfigError, DataError
from dray.storage import StorageOptions

HEAD_BYTES = 64 << 10
MOST_HEADER_BYTES = 64 << 20
SAMPLE_BYTES = 256 << 10
"""Of each of the start, the middle and the end of a file; less where there are many files."""
ALL_SAMPLES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A file with what its first bytes show."""

    file: DataFile
    begin: int
    """Where its records begin, after the header."""
    names: tuple[str, ...]
    newline: bytes


@dataclass(frozen=True, slots=True)
class CsvSource(FileSource[CsvFile]):
    """Rows of CSV files."""

    schema: pa.Schema
    form: CsvFormat
    guarded: frozenset[str] = frozenset()
    """Number columns with a guessed type: values that it would change, such as 007, are rejected."""
    format: ClassVar[str] = "csv"

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        found: list[Piece] = []
        for file in self.files:
            for start, stop in self._ranges(file, max(1, target_bytes)):
                found.append(Piece(file.file.location, len(found), start, stop, stop - start))
        return found

    def read(self, piece: Piece, columns: Sequence[str] | None, on_reject: OnReject) -> Iterator[pa.RecordBatch]:
        file = self.file_of(piece)
        quoting = self.form.quoting(file.newline)
        compressed = file.file.compression is not None
        at_end = compressed or piece.stop >= file.file.bytes
        wanted = tuple(chosen(columns, self.schema).names)
        reader = BlockReader(self.form, file.names, self.schema, wanted, at_end, self.guarded)
        read = chunks(file.file, self.storage, file.begin if compressed else piece.start, piece.stop)
        lines = LineNumbers(file.file, file.begin, file.newline, self.storage)
        start = file.begin if compressed else piece.start
        blocks = whole_records(read, partial(last_end, quoting=quoting), start, piece.name)
        for block, parsed in parse_in_order(blocks, reader.parse):
            for bad in parsed.bad:
                on_reject(make_reject(piece.name, lines.number(block, bad.offset), bad.reason, bad.text))
            lines.passed(block)
            yield from parsed.batches

    def _ranges(self, file: CsvFile, target_bytes: int) -> list[tuple[int, int]]:
        if not file.names:
            return []
        if file.file.compression is not None:
            return [(0, file.file.bytes)]
        starts = record_starts(file.file, file.begin, target_bytes, self.form.quoting(file.newline), self.storage)
        return [(start, stop) for start, stop in pairwise([*starts, file.file.bytes]) if start < stop]


def open_csv(
    locations: Sequence[str],
    storage: StorageOptions,
    *,
    types: Mapping[str, str | pa.DataType] | None = None,
    **how: Any,
) -> CsvSource:
    """Read the header and samples of all files, and choose common types. `how` are the fields of a `CsvFormat`."""
    tabs = all(plain_name(location).endswith((".tsv", ".tab")) for location in locations)
    form = CsvFormat(**{"delimiter": "\t" if tabs else ",", **how})
    if form.delimiter == form.quote:
        raise ConfigError(f"The CSV delimiter and quote are both {form.quote!r}.", fix="Give two characters.")
    files = find_files(locations, storage)
    sample_bytes = min(SAMPLE_BYTES, max(HEAD_BYTES // 4, ALL_SAMPLES_BYTES // (3 * len(files))))
    opened = in_parallel(lambda file: _open(file, form, storage, sample_bytes), files)
    found = [_together(samples) for _, samples in opened if samples]
    if not found:
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name CSV files that hold rows.")
    names = {file.names: file.names for file, _ in opened}  # one object for equal ones: pickled once
    kept = tuple(CsvFile(file.file, file.begin, names[file.names], file.newline) for file, _ in opened)
    schema = agree(found, types)
    guarded = frozenset(field.name for field in schema if is_number(field.type) and field.name not in (types or {}))
    return CsvSource(", ".join(locations), kept, storage, schema, form, guarded)


def _together(samples: Sequence[Found]) -> Found:
    """Return what the samples of one file show."""
    numbers = {name: merged_numbers(samples, name) for sample in samples for name in sample.numbers}
    return Found(samples[0].location, text_where_mixed([sample.schema for sample in samples]), numbers)


def _open(file: DataFile, form: CsvFormat, storage: StorageOptions, sample_bytes: int) -> tuple[CsvFile, list[Found]]:
    size = max(HEAD_BYTES, sample_bytes)
    while True:
        data = head(file, storage, size)
        complete = len(data) < size or (file.compression is None and len(data) >= file.bytes)
        newline = b"\r" if b"\n" not in data and b"\r" in data else b"\n"
        begin = form.header_end(data, complete)
        end = len(data) if complete else 0 if begin is None else begin + last_end(data[begin:], form.quoting(newline))
        if begin is not None and (end > begin or complete):
            break
        if size >= MOST_HEADER_BYTES:
            raise DataError(
                f"The first record of {file.location} does not end within {size >> 20} MB.",
                fix="Check that it is CSV and that its quotes are closed.",
            )
        size *= 8
    names = form.column_names(data, begin, file.location)
    opened = CsvFile(file, begin, names, newline)
    if not names:
        return opened, []
    samples = [data[begin:end]]
    if file.compression is None:
        samples += _further_samples(opened, form, storage, len(data), sample_bytes)
    return opened, [_guess(opened, sample, form) for sample in samples]


def _further_samples(
    file: CsvFile, form: CsvFormat, storage: StorageOptions, seen: int, sample_bytes: int
) -> list[bytes]:
    """Return records from the middle and the end. If they begin inside quotes, they still serve as a sample."""
    size = file.file.bytes
    quoting = form.quoting(file.newline)
    found = []
    with RandomFile(file.file, storage) as opened:
        for start in (max(seen, (size - sample_bytes) // 2), max(seen, size - sample_bytes)):
            data = opened.read(start, min(size, start + sample_bytes))
            data = data[data.find(file.newline) + 1 :]
            data = data[first_sure_start(data, quoting) or 0 :]
            end = len(data) if start + sample_bytes >= size else last_end(data, quoting)
            if end:
                found.append(data[:end])
    return found


def _guess(file: CsvFile, sample: bytes, form: CsvFormat) -> Found:
    """Return what some records of a file show."""
    names = file.names
    if not sample:
        return Found(file.file.location, pa.schema([(name, pa.null()) for name in names]))
    sample = sample.decode(errors="replace").encode()  # text that is not UTF-8 must not be guessed to be bytes

    def read(options: pacsv.ConvertOptions) -> pa.Table:
        return form.read(sample, names, options, lambda _: "skip")

    table = read(form.convert_options(None, names))
    rows = Rows(table, sample, form.quoting(), names, lambda columns, type_: read(form.text_options(columns, type_)))
    schema = pa.schema([(field.name, _with_fractions(field.type)) for field in table.schema])
    return Found(file.file.location, schema, sampled_numbers(rows))


def _with_fractions(type_: pa.DataType) -> pa.DataType:
    """Return a type for times that have whole seconds only in the sample, but may have fractions elsewhere."""
    return pa.timestamp("us", type_.tz) if pa.types.is_timestamp(type_) and type_.unit == "s" else type_
