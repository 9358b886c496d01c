"""How CSV text is written: the options, the header, and one block of records read by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dray.data.sources.columns import require_distinct
from dray.data.sources.csv_numbers import Rows, first_changed
from dray.data.sources.numbers import may_wrap
from dray.data.sources.quotes import Quoting, ends_inside, records
from dray.data.sources.record_blocks import BadRow, Parsed, RecordBlock, keep_good
from dray.errors import DataError

BOM = b"\xef\xbb\xbf"
NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA",
         "NULL", "NaN", "None", "n/a", "nan", "null")  # fmt: skip
"""What means a missing value in columns that are not text. In text only the empty cell does: NA is Namibia."""

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", re.DOTALL)

_TEXT = pa.string()
_ROW = re.compile(r"Row #(\d+)")
_MISCOUNTED = re.compile(r"Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How the files are written."""

    delimiter: str = ","
    quote: str | None = '"'
    """None: quotes are characters like any other."""
    header: bool = True
    """Whether the first line of every file names the columns."""
    names: tuple[str, ...] | None = None
    """The columns; instead of those of the header, if there is one. Default without a header: f0, f1, ..."""
    nulls: tuple[str, ...] | None = None
    """What means a missing value, besides the empty cell: in text unless it is quoted, in other columns quoted or
    not. Default: see `NULLS`."""

    def quoting(self, newline: bytes = b"\n") -> Quoting:
        return Quoting(ord(self.delimiter), ord(self.quote) if self.quote is not None else None, newline)

    def header_end(self, data: bytes, complete: bool) -> int | None:
        """Return where the header's line ends, or None if more bytes are needed."""
        skip = len(BOM) if data.startswith(BOM) else 0
        if not self.header:
            return skip
        starts, ends = records(data[skip:], self.quoting())
        # A line end at the very end of the bytes may be half of one, and the last record may go on after them.
        if not complete and (not len(ends) or ends[0] + skip >= len(data)):
            return None
        return skip + int(ends[0]) if len(starts) else len(data)

    def column_names(self, data: bytes, end: int, location: str) -> tuple[str, ...]:
        """Return the columns of a file whose header ends at `end`; of a file without one, by its first record."""
        skip = len(BOM) if data.startswith(BOM) else 0
        first = data[skip:end]
        if not self.header:
            starts, ends = records(data[skip:], self.quoting())
            first = data[skip + int(starts[0]) : skip + int(ends[0])] if len(starts) else b""
        if not first.strip(b"\r\n"):
            return ()
        try:
            row = pacsv.read_csv(
                pa.BufferReader(first),
                pacsv.ReadOptions(autogenerate_column_names=True, use_threads=False, block_size=len(first) + 64),
                self.parse_options(),
            )
            cells = [column.cast(pa.string())[0].as_py() for column in _as_text(first, row.num_columns, self).columns]
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise DataError(
                f"The header of {location} is not UTF-8 text.", fix="Save the file as UTF-8, or leave it out."
            ) from error
        if self.names is not None:
            if len(self.names) != len(cells):
                raise DataError(
                    f"{location} has {len(cells)} columns, but {len(self.names)} names were given.",
                    fix="Give one name for each column, in order.",
                )
            return self.names
        names = tuple(f"f{i}" if not self.header or not cell else cell for i, cell in enumerate(cells))
        fix = "Give distinct names with names=..., or header=False if the first line is not a header."
        require_distinct(names, location, fix)
        return names

    def parse_options(self, handler: object = None) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote or False, invalid_row_handler=handler)

    def convert_options(
        self, types: pa.Schema | None, columns: Sequence[str], *, text: bool | None = None
    ) -> pacsv.ConvertOptions:
        """Return the options for some columns; without types they are guessed.

        `text`: the columns are all text, or none is; where that is not known, quoted text may become null.
        """
        return self._options(types, columns, strings=self.nulls is not None, quoted=not text)

    def text_options(self, columns: Sequence[str], type_: pa.DataType = _TEXT) -> pacsv.ConvertOptions:
        """Return the options to read columns that are not text as they are written, or as another type."""
        return self._options(dict.fromkeys(columns, type_), columns, strings=True, quoted=True)

    def _options(self, types: Any, columns: Sequence[str], *, strings: bool, quoted: bool) -> pacsv.ConvertOptions:
        return pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(columns),
            null_values=list(NULLS if self.nulls is None else {"", *self.nulls}),
            strings_can_be_null=strings,
            quoted_strings_can_be_null=quoted,
        )

    def read(
        self,
        data: bytes | pa.Buffer,
        names: Sequence[str],
        options: pacsv.ConvertOptions,
        handler: Callable[[pacsv.InvalidRow], str] | None = None,
    ) -> pa.Table:
        """Return the rows of a text without a header. `handler` may skip rows with too many or too few fields."""
        return pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 64),
            self.parse_options(handler),
            options,
        )


def _as_text(first: bytes, columns: int, form: CsvFormat) -> pa.Table:
    names = [f"f{i}" for i in range(columns)]
    return form.read(first, names, pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())))


class ChangedError(pa.ArrowInvalid):  # type: ignore[misc]  # pyarrow has no types
    """pyarrow reads a number as another one. Names its row as pyarrow's own errors do."""


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
        if not (block.last and self.at_end and ends_inside(block.data, quoting)):
            try:
                return Parsed(self._read(block.buffer))
            except pa.ArrowInvalid:
                return self._parse_carefully(block.data)
        data = block.data
        starts, _ = records(data, quoting)
        last = int(starts[-1])
        parsed = self._parse_carefully(data[:last]) if last else Parsed()
        parsed.bad.append(BadRow(last, "a quote is opened and never closed", data[last:]))
        return parsed

    def _parse_carefully(self, data: bytes) -> Parsed:
        starts, ends = records(data, self.form.quoting())

        def record(index: int) -> bytes:
            return data[starts[index] : ends[index]]

        def parse(indices: Sequence[int]) -> Parsed:
            text = b"".join(map(record, indices))
            if len(indices) == 1:
                return Parsed(self._read(text))
            text.decode()  # pyarrow reports a miscounted row only if it is UTF-8
            invalid: list[pacsv.InvalidRow] = []
            batches = self._read(text, invalid)
            return Parsed(batches, [miscounted(indices[row.number - 1], row) for row in invalid])

        def miscounted(index: int, row: pacsv.InvalidRow) -> BadRow:
            reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
            return BadRow(int(starts[index]), reason, record(index))

        def refuse(index: int, error: Exception) -> BadRow:
            return BadRow(int(starts[index]), self._reason(error, record(index)), record(index))

        return keep_good(len(starts), parse, refuse, _row_named)

    def _read(self, data: bytes | pa.Buffer, invalid: list[pacsv.InvalidRow] | None = None) -> list[pa.RecordBatch]:
        def skip(row: pacsv.InvalidRow) -> str:
            if invalid is not None:
                invalid.append(row)
            return "skip"

        table = self._table(data, None if invalid is None else skip)
        if not table.num_rows:
            return []
        if self._has_numbers:
            self._require_unchanged(table, data, invalid)
        return list(empty_text_to_null(table).select(list(self.columns)).combine_chunks().to_batches())

    def _table(self, data: bytes | pa.Buffer, handler: Callable[[pacsv.InvalidRow], str] | None) -> pa.Table:
        text, other = self._text_and_other
        if self.form.nulls is None or not text or not other or not _holds(data, self.form.quote):
            return self.form.read(data, self.names, self._convert_options, handler)
        # pyarrow makes quoted values null in all columns or in none: NA in quotes is missing as a number, not as text.
        one = self.form.read(data, self.names, self.form.convert_options(self.schema, text, text=True), handler)
        pass_over = None if handler is None else _pass_over
        rest = self.form.read(data, self.names, self.form.convert_options(self.schema, other, text=False), pass_over)
        return pa.table({name: (one if name in text else rest)[name] for name in self.columns})

    def _require_unchanged(
        self, table: pa.Table, data: bytes | pa.Buffer, invalid: list[pacsv.InvalidRow] | None
    ) -> None:
        def read_as(columns: Sequence[str], type_: pa.DataType) -> pa.Table:
            options = self.form.text_options(columns, type_)
            return self.form.read(data, self.names, options, None if invalid is None else _pass_over)

        rows = Rows(table, data, self.form.quoting(), self.names, read_as)
        changed = first_changed(rows, self.columns, self.guarded)
        if changed is None:
            return
        shown = changed.row
        for number in sorted(row.number - 1 for row in invalid or ()):
            shown += number <= shown
        raise ChangedError(f'Row #{shown + 1}: column "{changed.column}": {changed.literal[:100]!r} {changed.why}')

    @cached_property
    def _has_numbers(self) -> bool:
        return any(name in self.guarded or may_wrap(self.schema.field(name).type) for name in self.columns)

    @cached_property
    def _text_and_other(self) -> tuple[list[str], list[str]]:
        text = [name for name in self.columns if _is_text(self.schema.field(name).type)]
        return text, [name for name in self.columns if name not in text]

    @cached_property
    def _convert_options(self) -> pacsv.ConvertOptions:
        text, other = self._text_and_other
        columns = self.columns or self.names[:1]
        return self.form.convert_options(self.schema, columns, text=bool(text) and not other)

    def _reason(self, error: Exception, record: bytes) -> str:
        if isinstance(error, ChangedError):
            return str(error).partition(": ")[2]
        if counted := _MISCOUNTED.search(str(error)):
            return f"{counted[2]} fields instead of {counted[1]}"
        found = _CONVERSION.match(str(error))
        if found is None:
            return str(error).splitlines()[0]
        name = self.names[int(found[1])]
        if "UTF8" in found[2]:
            return f'column "{name}": not UTF-8 text'
        as_bytes = self.form.text_options([name], pa.binary())
        value = self.form.read(record, self.names, as_bytes)[name][0].as_py().decode(errors="replace")
        return f'column "{name}": {value[:100]!r} is not {self.schema.field(name).type}'


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
