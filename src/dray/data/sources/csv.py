"""CSV: compressed or not, with a header or not, one file or many.

| rule           |                                                                                              |
|----------------|----------------------------------------------------------------------------------------------|
| types          | guessed from the start, middle and end of every file, then fixed; `types` overrides          |
| numbers        | of a type that keeps them apart (`numbers.py`): no number becomes another one                |
| pieces         | byte ranges of plain files, at true record starts; a file that is compressed or in another    |
|                | encoding than UTF-8 is one piece                                                             |
| missing        | the empty cell, quoted or not; in columns that are not text also NA, NULL, NaN and others    |
|                | (`NULLS`)                                                                                    |
| rejected       | rows with too many or too few fields, a value that does not fit or that a guessed type would |
|                | change, text that is not of the encoding, and a quote that is never closed                   |
| left out       | empty lines, and comments where there are                                                    |
| delimiter      | where it is not given, named by a first line sep=; or found in the first rows                |
|                | (`csv_delimiter.py`), and told in a note                                                     |
| noticed        | what looks like another way of writing is told with its option (`csv_looks.py`)              |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa

from dray.data.common_schema import Columns
from dray.data.fitted import completed, held
from dray.data.source import PIECE_BYTES, Note, OnReject, Piece, make_reject
from dray.data.sources.columns import chosen
from dray.data.sources.csv_blocks import BlockReader
from dray.data.sources.csv_delimiter import delimiter_of, told, told_as_named
from dray.data.sources.csv_format import CsvFormat
from dray.data.sources.csv_looks import CELLS as LOOKED_CELLS
from dray.data.sources.csv_looks import ROWS as LOOKED_ROWS
from dray.data.sources.csv_looks import Looked, notes_on
from dray.data.sources.csv_numbers import Rows, sampled_numbers
from dray.data.sources.csv_separators import as_numbers
from dray.data.sources.csv_split import record_starts
from dray.data.sources.csv_text import encoding_notes, encoding_of, require_text, text_chunks, text_head
from dray.data.sources.files import DataFile, FileSource, RandomFile, find_files, head, in_parallel, members, plain_name
from dray.data.sources.lines import LineNumbers, count
from dray.data.sources.quotes import first_sure_start, last_end
from dray.data.sources.record_blocks import in_their_places, parse_in_order, whole_records
from dray.data.sources.time_forms import forms_in
from dray.data.sources.types import Found, agree, is_number, merged_numbers, text_where_mixed
from dray.errors import DataError
from dray.storage import StorageOptions

ENCODING_BYTES = 4096
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
    encoding: str | None = None
    """None: UTF-8."""

    @property
    def streamed(self) -> bool:
        """It can be read from its start only; offsets are those of its text."""
        return self.file.compression is not None or self.encoding is not None


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
                found.append(Piece(file.file.name, len(found), start, stop, stop - start))
        return found

    def read(
        self, piece: Piece, columns: Sequence[str] | None, on_reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        file = self.file_of(piece)
        quoting = self.form.quoting(file.newline)
        at_end = file.streamed or piece.stop >= file.file.bytes
        wanted = chosen(columns, self.schema)
        stored = held(wanted, self.schema, file.names)
        reader = BlockReader(self.form, file.names, self.schema, tuple(stored.names), at_end, self.guarded)
        start = file.begin if file.streamed else piece.start
        read = text_chunks(file.file, file.encoding, self.storage, start, piece.stop)
        lines = self._line_numbers(file)
        blocks = whole_records(read, partial(last_end, quoting=quoting), start, piece.name)
        for block, parsed in parse_in_order(blocks, reader.parse):
            for bad in parsed.bad:
                on_reject(make_reject(piece.name, lines.number(block, bad.offset), bad.reason, bad.text))
            lines.passed(block)
            batches = in_their_places(parsed, stored) if in_place else parsed.batches
            yield from (completed(batch, wanted) for batch in batches)

    def _line_numbers(self, file: CsvFile) -> LineNumbers:
        before = None
        if file.encoding is not None:
            before = count(text_head(file.file, file.encoding, self.storage, file.begin), file.newline)
        return LineNumbers(file.file, file.begin, file.newline, self.storage, before)

    def _ranges(self, file: CsvFile, target_bytes: int) -> list[tuple[int, int]]:
        if not file.names:
            return []
        if file.streamed:
            return [(0, file.file.bytes)]
        starts = record_starts(file.file, file.begin, target_bytes, self.form.quoting(file.newline), self.storage)
        return [(start, stop) for start, stop in pairwise([*starts, file.file.bytes]) if start < stop]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file, and what its samples show."""

    file: CsvFile
    cells: tuple[str, ...]
    """The values of its first row, which may be the header."""
    samples: list[bytes]


def open_csv(
    locations: Sequence[str],
    storage: StorageOptions,
    *,
    types: Mapping[str, str | pa.DataType] | None = None,
    columns: Columns = "union",
    as_text: Collection[str] = (),
    may_be_empty: bool = False,
    **how: Any,
) -> CsvSource:
    """Read the header and samples of all files, and choose common types. `how` are the fields of a `CsvFormat`.

    `may_be_empty`: files without a row, not even a header, have the columns `as_text`.
    """
    form, opened, notes = _open_all(locations, storage, types, how)
    first = next((one for one in opened if one.cells), None)
    if first is None and may_be_empty:
        schema = pa.schema([(name, pa.string()) for name in dict.fromkeys(as_text)])
        return CsvSource(", ".join(locations), tuple(one.file for one in opened), storage, schema, form)
    if first is None:
        raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name CSV files that hold rows.")
    notes += encoding_notes(first.samples[0], first.file.encoding, form.encoding, first.file.file.name)
    notes += notes_on(_looked_at(first, form, frozenset(how)))
    found = in_parallel(
        lambda one: _together([_guess(one.file, sample, form) for sample in one.samples]),
        [one for one in opened if one.cells],
    )
    names = {one.file.names: one.file.names for one in opened}  # one object for equal ones: pickled once
    kept = tuple(replace(one.file, names=names[one.file.names]) for one in opened)
    common = agree(found, types, columns)
    schema = common.schema
    guarded = frozenset(field.name for field in schema if is_number(field.type) and field.name not in (types or {}))
    return CsvSource(", ".join(locations), kept, storage, schema, form, guarded, notes=(*common.notes, *notes))


def first_rows(locations: Sequence[str], storage: StorageOptions, **how: Any) -> list[tuple[str, ...]]:
    """Return the values of the first row of each file that has one, a header or not. `how` as for `open_csv`."""
    _, opened, _ = _open_all(locations, storage, None, how)
    return [one.cells for one in opened if one.cells]


def _open_all(
    locations: Sequence[str],
    storage: StorageOptions,
    types: Mapping[str, str | pa.DataType] | None,
    how: Mapping[str, Any],
) -> tuple[CsvFormat, list[_Opened], list[Note]]:
    """Return all files as they begin, how they are read, and what was noticed."""
    tabs = all(plain_name(location).endswith((".tsv", ".tab")) for location in locations)
    form = CsvFormat(**{"delimiter": "\t" if tabs else ",", "times": forms_in(types), **how})
    stored = find_files(locations, storage)
    files = [member for members_ in in_parallel(lambda file: members(file, storage), stored) for member in members_]
    form, notes = _with_delimiter(form, files, storage, given="delimiter" in how, by_name=tabs)
    sample_bytes = min(SAMPLE_BYTES, max(HEAD_BYTES // 4, ALL_SAMPLES_BYTES // (3 * len(files))))
    opened = in_parallel(lambda file: _open(file, form, storage, sample_bytes), files)
    return form, opened, notes


def _with_delimiter(
    form: CsvFormat, files: Sequence[DataFile], storage: StorageOptions, *, given: bool, by_name: bool
) -> tuple[CsvFormat, list[Note]]:
    """Return the format with the delimiter that the first file with text names or shows, and what to say about it.

    One that is given stays. Of a name such as a.tsv the delimiter is known, unless the file names another.
    """
    for file in files:
        data = text_head(file, _encoding(file, form, storage), storage, HEAD_BYTES)
        if data.strip():
            if (named := form.named_delimiter(data)) is not None:
                form = form if given else replace(form, delimiter=named)
                return form, [told_as_named(named, form.delimiter, file.name)]
            if given or by_name:
                break
            found = delimiter_of(data, form, complete=len(data) < HEAD_BYTES)
            if found in (None, form.delimiter):
                break
            return replace(form, delimiter=found), [told(found, file.name)]
    return form, []


def _looked_at(opened: _Opened, form: CsvFormat, stated: frozenset[str]) -> Looked:
    """Return the start of a file, for what it looks like."""
    data = bytes(_sample(opened.samples[0], form))
    names = opened.file.names
    table = (
        form.read(data, names, form.as_written(names), lambda _: "skip")
        if data
        else pa.table({name: [] for name in names})
    )
    table = table.slice(0, max(1, min(LOOKED_ROWS, LOOKED_CELLS // len(names))))
    columns = {name: [value for value in table[name].to_pylist() if value] for name in names}
    return Looked(opened.file.file.name, opened.cells, columns, form, stated)


def _encoding(file: DataFile, form: CsvFormat, storage: StorageOptions) -> str | None:
    first = head(file, storage, ENCODING_BYTES)
    require_text(first, file.name)
    return encoding_of(first, form.encoding, file.name)


def _together(samples: Sequence[Found]) -> Found:
    """Return what the samples of one file show."""
    numbers = {name: merged_numbers(samples, name) for sample in samples for name in sample.numbers}
    return Found(samples[0].location, text_where_mixed([sample.schema for sample in samples]), numbers)


def _open(file: DataFile, form: CsvFormat, storage: StorageOptions, sample_bytes: int) -> _Opened:
    size = max(HEAD_BYTES, sample_bytes)
    encoding = _encoding(file, form, storage)
    while True:
        data = text_head(file, encoding, storage, size)
        streamed = file.compression is not None or encoding is not None
        complete = len(data) < size or (not streamed and len(data) >= file.bytes)
        newline = b"\r" if b"\n" not in data and b"\r" in data else b"\n"
        begin = form.header_end(data, complete)
        end = len(data) if complete else 0 if begin is None else begin + last_end(data[begin:], form.quoting(newline))
        if begin is not None and (end > begin or complete):
            break
        if size >= MOST_HEADER_BYTES:
            raise DataError(
                f"The first record of {file.name} does not end within {size >> 20} MB.",
                fix="Check that it is CSV and that its quotes are closed.",
            )
        size *= 8
    cells = form.first_cells(data, file.name)
    opened = CsvFile(file, begin, form.column_names(cells, file.name), newline, encoding)
    if not cells:
        return _Opened(opened, cells, [])
    samples = [data[begin:end]]
    if not streamed:
        samples += _further_samples(opened, form, storage, len(data), sample_bytes)
    return _Opened(opened, cells, samples)


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
    data = _sample(sample, form)
    if not len(data):
        return Found(file.file.name, pa.schema([(name, pa.null()) for name in names]))

    def read_as(columns: Sequence[str], type_: pa.DataType) -> pa.Table:
        return form.read_as(data, names, columns, type_, lambda _: "skip")

    table = form.read(data, names, form.convert_options(None, names), lambda _: "skip")
    if form.thousands is not None:
        table = _with_numbers(table, data, form)
    rows = Rows(table, data, form.prepared_quoting, names, read_as)
    schema = pa.schema([(field.name, _with_fractions(field.type)) for field in table.schema])
    return Found(file.file.name, schema, sampled_numbers(rows))


def _sample(sample: bytes, form: CsvFormat) -> bytes | pa.Buffer:
    """Return some records as pyarrow reads them."""
    text = sample.decode(errors="replace").encode()  # text that is not UTF-8 must not be guessed to be bytes
    if form.comment is not None:
        starts, ends = form.records(text)
        rows = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        text = b"".join(row for row in rows if not form.begins_comment(row))
    return form.prepared(text)


def _with_numbers(table: pa.Table, data: bytes | pa.Buffer, form: CsvFormat) -> pa.Table:
    """Return the table with numbers for texts that are numbers with their thousands apart."""
    names = [field.name for field in table.schema if pa.types.is_string(field.type)]
    texts = form.read(data, table.column_names, form.text_options(names), lambda _: "skip")
    for name in names:
        rewritten = form.separators.rewritten(texts[name])
        if form.separators.first_other(texts[name], rewritten) is None:
            numbers = as_numbers(rewritten)
            if numbers is not None:
                table = table.set_column(table.column_names.index(name), name, numbers)
    return table


def _with_fractions(type_: pa.DataType) -> pa.DataType:
    """Return a type for times that have whole seconds only in the sample, but may have fractions elsewhere."""
    return pa.timestamp("us", type_.tz) if pa.types.is_timestamp(type_) and type_.unit == "s" else type_
