"""JSON: an object on each line, or one array of objects; compressed or not.

Nested objects become columns named `a.b` (see `json_types.py`). Lines are divided by byte ranges; an array and a
compressed file are one piece, read as a stream. Rejected are lines and items that are not JSON objects (such as
one that is cut off), and objects with a value that does not fit its column or that its guessed type would change
(`json_numbers.py`). A field that the sample did not have is left out and counted (`json_extra.py`);
`extra_fields="reject"` rejects its rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

import pyarrow as pa

from dray.data.source import PIECE_BYTES, ExtraField, Note, OnReject, Piece, make_reject
from dray.data.sources.columns import chosen
from dray.data.sources.files import DataFile, FileSource, RandomFile, chunks, find_files, head, in_parallel
from dray.data.sources.json_extra import count_extra
from dray.data.sources.json_numbers import Guard, Rows, make_guard
from dray.data.sources.json_records import Records, items, last_item_end, last_line_end, lines
from dray.data.sources.json_samples import look
from dray.data.sources.json_texts import make_quoting, quoted, quoted_record
from dray.data.sources.json_types import (
    Demands,
    ExtraFields,
    Seen,
    flat_schema,
    flatten,
    misfit,
    read_objects,
    shape_of,
    with_unseen,
)
from dray.data.sources.lines import LineNumbers
from dray.data.sources.record_blocks import (
    MOST_RECORD_BYTES,
    BadRow,
    Parsed,
    RecordBlock,
    in_their_places,
    keep_good,
    parse_in_order,
    whole_records,
)
from dray.data.sources.time_forms import as_asked, forms_in, with_times, written_type
from dray.data.sources.types import asked_types
from dray.errors import ConfigError, DataError, nearest
from dray.storage import StorageOptions

BOM = b"\xef\xbb\xbf"
SAMPLE_BYTES = 256 << 10
"""Of each of the start, the middle and the end of a file; less where there are many files."""
ALL_SAMPLES_BYTES = 64 << 20
WINDOW_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class JsonFile:
    """A file with what its first bytes show."""

    file: DataFile
    layout: Literal["lines", "array", "empty"]
    begin: int
    """Where the first record begins."""

    @property
    def divisible(self) -> bool:
        return self.layout == "lines" and self.file.compression is None


@dataclass(frozen=True, slots=True)
class JsonSource(FileSource[JsonFile]):
    """Objects of JSON files."""

    shape: pa.Schema
    """The objects as they are, nested."""
    extra_fields: ExtraFields = "ignore"
    asked: frozenset[str] = frozenset()
    """The columns whose type the user gave; in the others, values that the guessed type would change are rejected."""
    times: Mapping[str, str] = field(default_factory=dict)
    """The columns that hold times of a form that the user gave."""
    format: ClassVar[str] = "json"

    @property
    def schema(self) -> pa.Schema:
        return as_asked(flat_schema(self.shape), self.times)

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        found: list[Piece] = []
        for file in self.files:
            starts = self._starts(file, max(1, target_bytes))
            for start, stop in pairwise([*starts, file.file.bytes]):
                found.append(Piece(file.file.location, len(found), start, stop, stop - start))
        return found

    def read(
        self, piece: Piece, columns: Sequence[str] | None, on_reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        file = self.file_of(piece)
        start = piece.start if file.divisible else file.begin
        read = chunks(file.file, self.storage, start, piece.stop)
        wanted = chosen(columns, self.schema)
        demands = Demands(self.shape, self.extra_fields, self.asked)
        reader = _BlockReader(demands, tuple(wanted.names), file.layout == "array", self.times)
        numbers = LineNumbers(file.file, file.begin, b"\n", self.storage)
        blocks = whole_records(read, last_item_end if reader.array else last_line_end, start, piece.name)
        for block, parsed in parse_in_order(blocks, reader.parse):
            for bad in parsed.bad:
                on_reject(make_reject(piece.name, numbers.number(block, bad.offset), bad.reason, bad.text))
            for name, rows in parsed.extra.items():
                on_reject(ExtraField(piece.name, name, rows))
            numbers.passed(block)
            yield from in_their_places(parsed, wanted) if in_place else parsed.batches

    def _starts(self, file: JsonFile, target_bytes: int) -> list[int]:
        if file.layout == "empty":
            return []
        starts = [file.begin]
        if file.divisible:
            wished = range(file.begin + target_bytes, file.file.bytes - target_bytes // 2, target_bytes)
            for start in in_parallel(lambda offset: self._next_line(file.file, offset), wished):
                if starts[-1] < start < file.file.bytes:
                    starts.append(start)
        return starts

    def _next_line(self, file: DataFile, offset: int) -> int:
        with RandomFile(file, self.storage) as opened:
            for position in range(offset - 1, file.bytes, WINDOW_BYTES):
                found = opened.read(position, min(file.bytes, position + WINDOW_BYTES)).find(b"\n")
                if found >= 0:
                    return position + found + 1
        return file.bytes


@dataclass(frozen=True)
class _BlockReader:
    demands: Demands
    columns: tuple[str, ...]
    array: bool
    times: Mapping[str, str]

    def parse(self, block: RecordBlock) -> Parsed:
        if not self.array:
            try:
                return self._read(block.data, lambda: _texts(lines(block.data)))
            except (pa.ArrowInvalid, UnicodeDecodeError):
                return self._parse_carefully(lines(block.data))
        records = items(block.data)
        try:
            whole = records.text(0, len(records)) if len(records) else b""
            parsed = self._read(whole, lambda: _texts(records)) if len(records) else Parsed()
        except (pa.ArrowInvalid, UnicodeDecodeError):
            parsed = self._parse_carefully(records)
        if block.last:
            parsed.bad += _unfinished(records)
        return parsed

    def _parse_carefully(self, records: Records) -> Parsed:
        def refuse(index: int, error: Exception) -> BadRow:
            text = records.text(index, index + 1)
            offset = int(records.starts[index]) + len(text) - len(text.lstrip())
            return BadRow(offset, misfit(text, self.demands, error), text.strip())

        further: dict[int, int] = {}  # objects after the first on the same line

        def parse(indices: Sequence[int]) -> Parsed:
            texts = [records.text(index, index + 1) for index in indices]
            alone = len(texts) == 1
            parsed = self._read_alone(texts[0]) if alone else self._read(b"\n".join(texts), lambda: texts)
            rows = sum(batch.num_rows for batch in parsed.batches)
            if rows != len(indices):
                if len(indices) > 1:
                    raise pa.ArrowInvalid("Some line holds several objects.")  # divided until it is alone
                further[indices[0]] = rows - 1
            return parsed

        # pyarrow names a row too, but two bad lines can make one good object: then the count is wrong.
        parsed = keep_good(range(len(records)), parse, refuse, lambda _: None)
        parsed.bad = [replace(bad, row=_row_of(bad, further)) for bad in parsed.bad]
        return parsed

    def _read_alone(self, text: bytes) -> Parsed:
        """Return the object of a text, which may have the name of a text column elsewhere."""
        with suppress(ValueError, RecursionError):  # which pyarrow's own error tells
            text = quoted_record(text, self.demands.shape)
        return self._read(text, lambda: [text])

    def _read(self, data: bytes, texts: Callable[[], Sequence[bytes]]) -> Parsed:
        """Return the objects of a text; `texts` has each of them alone."""
        shape, extra = self.demands.shape, Counter[str]()
        try:
            table = read_objects(data, shape, "error")
        except pa.ArrowInvalid:
            data = quoted(data, self._quoting)
            if self.demands.extra_fields == "reject":
                table = read_objects(data, shape, "error")
            else:
                table = read_objects(data, shape, "ignore")
                extra = count_extra(data, shape)
        if not table.num_rows:
            return Parsed()
        flat = flatten(table)
        if self._guard is not None and len(rows := self._guard.suspicious(flat, data)):
            self._require_unchanged(texts(), rows if len(rows) < table.num_rows else None)
        flat = with_times(flat.select(list(self.columns)), self.times)
        return Parsed(list(flat.combine_chunks().to_batches()), extra=extra)

    @cached_property
    def _quoting(self) -> re.Pattern[bytes] | None:
        return make_quoting(self.demands.shape)

    @cached_property
    def _guard(self) -> Guard | None:
        return make_guard(flat_schema(self.demands.shape), self.demands.asked)

    def _require_unchanged(self, texts: Sequence[bytes], rows: Rows | None) -> None:
        for text in texts if rows is None or max(rows) >= len(texts) else (texts[row] for row in rows):
            if reason := self.demands.changed(text):
                raise pa.ArrowInvalid(reason)


def _texts(records: Records) -> list[bytes]:
    return [records.text(index, index + 1) for index in range(len(records))]


def _row_of(bad: BadRow, further: Mapping[int, int]) -> int | None:
    return bad.row and bad.row + sum(more for line, more in further.items() if line < bad.row)


def _unfinished(records: Records) -> list[BadRow]:
    if records.open_end:
        return [BadRow(len(records.data), "the array is not closed: the file was cut off", b"")]
    if records.behind is not None:
        return [BadRow(records.behind, "text after the end of the array", records.data[records.behind :])]
    return []


def open_json(
    locations: Sequence[str],
    storage: StorageOptions,
    *,
    types: Mapping[str, str | pa.DataType] | None = None,
    extra_fields: ExtraFields = "ignore",
    as_text: Collection[str] = (),
    may_be_empty: bool = False,
) -> JsonSource:
    """Read samples of all files, and choose one shape.

    `as_text`: columns that are text where they hold single values, as if `types` said so; they need not be there.
    `may_be_empty`: files without a record, which name no columns, have those of `as_text`.
    """
    if extra_fields not in ("reject", "ignore"):
        raise ConfigError(f'extra_fields is "{extra_fields}".', fix="Use reject or ignore.")
    files = find_files(locations, storage)
    size = min(SAMPLE_BYTES, max(SAMPLE_BYTES // 16, ALL_SAMPLES_BYTES // (3 * len(files))))
    sampled = in_parallel(lambda file: _open(file, storage, size), files)
    seen, times = Seen(), forms_in(types)
    asked = asked_types(types) | {name: written_type(form) for name, form in times.items()}
    text = {name: pa.string() for name in as_text if name not in asked}
    for file, samples in sampled:
        split = items if file.layout == "array" else lines
        for sample in samples:
            look(split(sample), file.file.location, seen, asked | text, numbered=sample is samples[0])
    text = {name: type_ for name, type_ in text.items() if seen.has_values(name)}
    shape = shape_of(seen, asked | text)
    if not len(flat_schema(shape)):
        if may_be_empty and not any(_has_records(file, samples) for file, samples in sampled):
            shape, _ = with_unseen(shape, {name: pa.string() for name in as_text})
            return JsonSource(
                ", ".join(locations), tuple(replace(file, layout="empty") for file, _ in sampled), storage, shape
            )
        if all(file.layout == "empty" for file, _ in sampled):
            raise DataError(f"There are no rows in {', '.join(locations)}.", fix="Name JSON files that hold rows.")
        raise DataError(
            f"No JSON object with a field was found at the start of {sampled[0][0].file.location}.",
            fix="Write an object on each line, or one array of objects.",
        )
    known = flat_schema(shape).names
    shape, unseen = with_unseen(shape, asked)
    notes = tuple(
        Note(
            f'types has a column "{name}", which the first rows do not have: '
            f"it is missing there.{nearest(name, known)}",
            fix="Correct the name, unless later rows have that field.",
        )
        for name in unseen
    )
    opened = tuple(file for file, _ in sampled)
    return JsonSource(
        ", ".join(locations), opened, storage, shape, extra_fields, frozenset(asked | text), times, notes=notes
    )


def _has_records(file: JsonFile, samples: Sequence[bytes]) -> bool:
    return any(len(items(sample) if file.layout == "array" else lines(sample)) for sample in samples)


def _open(file: DataFile, storage: StorageOptions, size: int) -> tuple[JsonFile, list[bytes]]:
    wished = size
    while True:
        data = head(file, storage, wished)
        complete = len(data) < wished
        text = data.removeprefix(BOM).lstrip()
        begin = len(data) - len(text)
        if complete and not text:
            return JsonFile(file, "empty", begin), []
        array = text.startswith(b"[")
        end = len(text) if complete else last_item_end(text[1:]) + 1 if array else last_line_end(text)
        if complete or end > 1:
            break
        if wished >= MOST_RECORD_BYTES:
            raise DataError(
                f"The first record of {file.location} does not end within {wished >> 20} MB.",
                fix="Write an object on each line, or one array of objects.",
            )
        wished *= 8
    if array:
        return JsonFile(file, "array", begin + 1), [text[1:end]]
    opened = JsonFile(file, "lines", begin)
    samples = [text[:end]]
    if file.compression is None and not complete:
        with RandomFile(file, storage) as random:
            for start in (max(wished, (file.bytes - size) // 2), max(wished, file.bytes - size)):
                window = random.read(start, min(file.bytes, start + size))
                samples.append(window[window.find(b"\n") + 1 : last_line_end(window)])
    return opened, samples
