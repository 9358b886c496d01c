"""Blocks of a CSV file's records read by pyarrow: the good rows, and why the bad ones are bad."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.types as pt

from dray.data.sources.csv_format import NULLS, OPEN_COMMENT, CsvFormat
from dray.data.sources.csv_numbers import Rows, first_changed
from dray.data.sources.quotes import Positions, ends_inside, records, torn_values
from dray.data.sources.record_blocks import BadRow, Parsed, RecordBlock, keep_good
from dray.data.sources.time_forms import UnfitTimeError, as_written, with_times
from dray.data.sources.types import is_number

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", re.DOTALL)
_TELLING_COLUMNS = 3
"""From so many on, lines of a text that is cut off do not look like rows."""
_LINE = re.compile(rb"[^\r\n]*(\r\n?|\n)")
_ROW = re.compile(r"Row #(\d+)")
_MISCOUNTED = re.compile(r"Expected (\d+) columns, got (\d+)")


class RefusedError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """A row that pyarrow would take. Names it as pyarrow's own errors do."""


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks of one file's records: the good rows, and why the bad ones are bad."""

    form: CsvFormat
    names: tuple[str, ...]
    """The columns in the order of the file."""
    schema: pa.Schema
    columns: tuple[str, ...]
    at_end: bool = True
    """Whether the last block ends where the file does: a quote may be left open only there."""
    guarded: frozenset[str] = frozenset()
    """Number columns whose type was guessed: what the type would change is rejected."""

    def parse(self, block: RecordBlock) -> Parsed:
        quoting = self.form.quoting()
        if block.last and self.at_end and ends_inside(block.data, quoting):
            return self._parse_open(block.data)
        with suppress(pa.ArrowInvalid):
            parsed = Parsed(self._read(self.form.without_comments(block.buffer)))
            # As many rows as lines: no value is of several lines, and so none is torn.
            if parsed.rows >= block.count(quoting.newline) or not len(torn_values(block.data, quoting)):
                return parsed
        return self._parse_carefully(block.data)

    def _parse_open(self, data: bytes) -> Parsed:
        """Parse records of which the last opens a quote that is never closed."""
        starts, _ = records(data, self.form.quoting())
        last = int(starts[-1])
        before, text = data[:last], data[last:]
        parsed = self._parse_carefully(before) if last else Parsed()
        if self.form.is_comment(text):
            return parsed
        end = self._opening_line(text) or len(text)
        parsed = parsed.followed_by(Parsed(bad=[_never_closed(text[:end], 0, 0)]), last)
        return parsed.followed_by(self._parse_carefully(text[end:]), last + end) if end < len(text) else parsed

    def _parse_carefully(self, data: bytes) -> Parsed:
        """Parse records of which some are bad. The lines that a quote without an end made part of one are rows."""
        starts, ends = self.form.records(data)
        torn = torn_values(data, self.form.quoting())
        opening: dict[int, int] = {}
        while True:
            parsed = self._parse_records(data, starts, ends, opening)
            doubtful = np.unique([*(bad.offset for bad in parsed.bad), *torn])
            numbers = np.unique(np.searchsorted(starts, doubtful.astype(np.int64), "right") - 1)
            found = {int(starts[n]): self._opening_line(data[starts[n] : ends[n]]) for n in numbers}
            lines = {start: length for start, length in found.items() if length is not None and start not in opening}
            if not lines:
                return parsed
            opening |= lines
            starts, ends, torn = self._divided(data, starts, ends, lines)

    def _opening_line(self, record: bytes) -> int | None:
        """Return how long the first line of a doubtful record is, if it opens a quote that is never closed.

        So it does if the lines after it are rows by themselves: only it is bad then, else a quote would cost them all.
        """
        line = _LINE.match(record)
        if line is None or len(self.names) < _TELLING_COLUMNS or self.form.begins_comment(record):
            return None
        rest = record[line.end() :]
        if not rest or ends_inside(rest, self.form.quoting()):
            return None
        after = self._parse_records(rest, *self.form.records(rest), {})
        return line.end() if after.rows > 2 * len(after.bad) else None

    def _divided(
        self, data: bytes, starts: Positions, ends: Positions, lines: Mapping[int, int]
    ) -> tuple[Positions, Positions, Positions]:
        """Return where records begin and end if those that begin with these lines (start: length) end with them.

        With them where values are torn in the records after these lines.
        """
        whole = np.isin(starts, list(lines))
        new_starts, new_ends, torn = [starts[~whole]], [ends[~whole]], [np.empty(0, np.int64)]
        for start, stop in zip(starts[whole].tolist(), ends[whole].tolist(), strict=True):
            after = start + lines[start]
            more_starts, more_ends = self.form.records(data[after:stop])
            new_starts += [np.array([start]), after + more_starts]
            new_ends += [np.array([after]), after + more_ends]
            torn.append(after + torn_values(data[after:stop], self.form.quoting()))
        return np.sort(np.concatenate(new_starts)), np.sort(np.concatenate(new_ends)), np.concatenate(torn)

    def _parse_records(self, data: bytes, starts: Positions, ends: Positions, opening: Mapping[int, int]) -> Parsed:
        """Parse these records of `data`. Those that begin at a place in `opening` are bad."""

        def record(index: int) -> bytes:
            return data[starts[index] : ends[index]]

        def parse(indices: Sequence[int]) -> Parsed:
            for place, index in enumerate(indices if self.form.comment is not None else ()):
                if self.form.begins_comment(record(index)):
                    raise RefusedError(f"Row #{place + 1}: {OPEN_COMMENT}")
            text = b"".join(map(record, indices))
            if len(indices) == 1:
                return Parsed(self._read(text))
            text.decode()  # pyarrow reports a miscounted row only if it is UTF-8
            invalid: list[pacsv.InvalidRow] = []
            batches = self._read(text, invalid)
            return Parsed(batches, [miscounted(indices[row.number - 1], row) for row in invalid])

        def miscounted(index: int, row: pacsv.InvalidRow) -> BadRow:
            reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
            return BadRow(int(starts[index]), reason, record(index), index)

        def refuse(index: int, error: Exception) -> BadRow:
            return BadRow(int(starts[index]), self._reason(error, record(index)), record(index))

        never_closed = [index for index, start in enumerate(starts.tolist()) if start in opening]
        indices = np.delete(np.arange(len(starts)), never_closed).tolist()
        parsed = keep_good(indices, parse, refuse, _row_named)
        parsed.bad += [_never_closed(record(index), int(starts[index]), index) for index in never_closed]
        parsed.bad.sort(key=lambda bad: bad.offset)
        return parsed

    def _read(self, data: bytes | pa.Buffer, invalid: list[pacsv.InvalidRow] | None = None) -> list[pa.RecordBatch]:
        def skip(row: pacsv.InvalidRow) -> str:
            if invalid is not None:
                invalid.append(row)
            return "skip"

        data = self.form.prepared(data)
        table = self._table(data, invalid, None if invalid is None else skip)
        if not table.num_rows:
            return []
        if self._has_numbers:
            self._require_unchanged(table, data, invalid)
        table = self._with_times(empty_text_to_null(table), invalid)
        return list(table.select(list(self.columns)).combine_chunks().to_batches())

    def _with_times(self, table: pa.Table, invalid: list[pacsv.InvalidRow] | None) -> pa.Table:
        nulls = NULLS if self.form.nulls is None else self.form.nulls
        try:
            return with_times(table, self.form.times, nulls)
        except UnfitTimeError as error:
            raise _refused(error.row, invalid, error.reason) from None

    def _table(
        self,
        data: bytes | pa.Buffer,
        invalid: list[pacsv.InvalidRow] | None,
        handler: Callable[[pacsv.InvalidRow], str] | None,
    ) -> pa.Table:
        if not self._separated:
            return self._as_typed(data, self.columns, handler)
        texts = self.form.read(data, self.names, self.form.text_options(self._separated), handler)
        found = {name: self._without_separators(name, texts[name], invalid) for name in self._separated}
        others = [name for name in self.columns if name not in found]
        if others:
            table = self._as_typed(data, others, None if handler is None else _pass_over)
            found |= {name: table[name] for name in others}
        return pa.table({name: found[name] for name in self.columns})

    def _as_typed(
        self, data: bytes | pa.Buffer, columns: Sequence[str], handler: Callable[[pacsv.InvalidRow], str] | None
    ) -> pa.Table:
        text = [name for name in columns if _is_text(self._written.field(name).type)]
        other = [name for name in columns if name not in text]
        if self.form.nulls is None or not text or not other or not _holds(data, self.form.quote):
            options = self.form.convert_options(self._written, columns or self.names[:1], text=bool(text) and not other)
            return self.form.read(data, self.names, options, handler)
        # pyarrow makes quoted values null in all columns or in none: NA in quotes is missing as a number, not as text.
        one = self.form.read(data, self.names, self.form.convert_options(self._written, text, text=True), handler)
        pass_over = None if handler is None else _pass_over
        rest = self.form.read(data, self.names, self.form.convert_options(self._written, other, text=False), pass_over)
        return pa.table({name: (one if name in text else rest)[name] for name in columns})

    def _without_separators(
        self, name: str, texts: pa.ChunkedArray, invalid: list[pacsv.InvalidRow] | None
    ) -> pa.ChunkedArray:
        type_ = self.schema.field(name).type
        numbers = self.form.separators.rewritten(texts)
        row = self.form.separators.first_other(texts, numbers)
        if row is not None:
            raise _refused(row, invalid, f'column "{name}": {texts[row].as_py()[:100]!r} is not {type_}')
        return numbers.cast(type_)

    def _require_unchanged(
        self, table: pa.Table, data: bytes | pa.Buffer, invalid: list[pacsv.InvalidRow] | None
    ) -> None:
        def read_as(columns: Sequence[str], type_: pa.DataType) -> pa.Table:
            return self.form.read_as(data, self.names, columns, type_, None if invalid is None else _pass_over)

        rows = Rows(table, data, self.form.prepared_quoting, self.names, read_as)
        changed = first_changed(rows, self.columns, self.guarded)
        if changed is None:
            return
        raise _refused(changed.row, invalid, f'column "{changed.column}": {changed.literal[:100]!r} {changed.why}')

    @cached_property
    def _written(self) -> pa.Schema:
        """The columns as pyarrow is to read them: times of a form are text."""
        return as_written(self.schema, self.form.times)

    @cached_property
    def _has_numbers(self) -> bool:
        return any(name in self.guarded or pt.is_decimal(self.schema.field(name).type) for name in self.columns)

    @cached_property
    def _separated(self) -> list[str]:
        """The columns of numbers whose thousands are apart: pyarrow cannot read them."""
        if self.form.thousands is None:
            return []
        return [name for name in self.columns if is_number(self.schema.field(name).type)]

    def _reason(self, error: Exception, record: bytes) -> str:
        if isinstance(error, RefusedError):
            return str(error).partition(": ")[2]
        if counted := _MISCOUNTED.search(str(error)):
            return f"{counted[2]} fields instead of {counted[1]}"
        found = _CONVERSION.match(str(error))
        if found is None:
            return str(error).splitlines()[0]
        name = self.names[int(found[1])]
        if "UTF8" in found[2]:
            return f'column "{name}": not {self.form.encoding or "UTF-8"} text'
        as_bytes = self.form.text_options([name], pa.binary())
        value = (
            self.form.read(self.form.prepared(record), self.names, as_bytes)[name][0].as_py().decode(errors="replace")
        )
        return f'column "{name}": {value[:100]!r} is not {self.schema.field(name).type}'


def _never_closed(text: bytes, offset: int, row: int) -> BadRow:
    return BadRow(offset, "a quote is opened and never closed", text, row)


def _refused(row: int, invalid: list[pacsv.InvalidRow] | None, why: str) -> RefusedError:
    """Return the error about a row of a table from which the invalid rows are gone."""
    for number in sorted(other.number - 1 for other in invalid or ()):
        row += number <= row
    return RefusedError(f"Row #{row + 1}: {why}")


def _row_named(error: str) -> int | None:
    found = _ROW.search(error)
    return None if found is None else int(found[1]) - 1


def _holds(data: bytes | pa.Buffer, mark: str | None) -> bool:
    return mark is not None and bool((np.frombuffer(data, np.uint8) == ord(mark)).any())


def _pass_over(_row: pacsv.InvalidRow) -> str:
    return "skip"


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def empty_text_to_null(table: pa.Table) -> pa.Table:
    """Return the table with nulls for empty text."""
    for index, field in enumerate(table.schema):
        if not _is_text(field.type):
            continue
        column = table.column(index)
        empty = pc.equal(pc.binary_length(column), 0)
        if pc.any(empty).as_py():
            table = table.set_column(index, field, pc.if_else(empty, pa.scalar(None, field.type), column))
    return table
