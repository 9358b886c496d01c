"""How CSV text is written: the options, the header, and one block of records read by pyarrow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from dray.data.sources.blocks import BadRow, Block, Parsed, keep_good
from dray.data.sources.quotes import Quoting, ends_inside, records
from dray.errors import ConfigError, DataError

BOM = b"\xef\xbb\xbf"
NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA",
         "NULL", "NaN", "None", "n/a", "nan", "null")  # fmt: skip
"""What stands for a missing value in columns that are not text. In text only the empty cell does: NA is Namibia."""

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to ([^:]+): (.*)", re.DOTALL)

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
    """What stands for a missing value in any column, text too, unless it is quoted. Default: see `NULLS`."""

    def check(self) -> None:
        """Refuse what cannot be read."""
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote)):
            if value is not None and (len(value) != 1 or not value.isascii() or value in "\r\n"):
                raise ConfigError(f"The CSV {name} is {value!r}.", fix="It must be one ASCII character.")
        if self.delimiter == self.quote:
            raise ConfigError(f"The CSV delimiter and quote are both {self.quote!r}.", fix="Give two characters.")

    def quoting(self, newline: bytes = b"\n") -> Quoting:
        return Quoting(ord(self.delimiter), ord(self.quote) if self.quote is not None else None, newline)

    def header_end(self, data: bytes, complete: bool) -> int | None:
        """Return where the header's line ends, or None if it takes more bytes to know."""
        skip = len(BOM) if data.startswith(BOM) else 0
        if not self.header:
            return skip
        starts, ends = records(data[skip:], self.quoting())
        # A line end at the very end of the bytes may be half of one, and the last record may go on behind them.
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
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise DataError(
                f'{location} has two columns "{twice[0]}".',
                fix="Give distinct names with names=..., or header=False if the first line is no header.",
            )
        return names

    def parse_options(self, handler: object = None) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote or False, invalid_row_handler=handler)

    def convert_options(self, schema: pa.Schema | None, columns: Sequence[str]) -> pacsv.ConvertOptions:
        """Return the options for some columns; without a schema, types are guessed."""
        return pacsv.ConvertOptions(
            column_types=schema,
            include_columns=list(columns),
            null_values=list(NULLS if self.nulls is None else self.nulls),
            strings_can_be_null=self.nulls is not None,
            quoted_strings_can_be_null=False,
        )


def _as_text(first: bytes, columns: int, form: CsvFormat) -> pa.Table:
    names = [f"f{i}" for i in range(columns)]
    return pacsv.read_csv(
        pa.BufferReader(first),
        pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(first) + 64),
        form.parse_options(),
        pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks of one file's records: those that fit, and what is wrong with the others."""

    form: CsvFormat
    names: tuple[str, ...]
    """The columns as they stand in the file."""
    schema: pa.Schema
    columns: tuple[str, ...]
    at_end: bool = True
    """Whether the last block ends where the file does: a quote may be left open only there."""

    def parse(self, block: Block) -> Parsed:
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
            text.decode()  # pyarrow can tell of a miscounted row only if it is UTF-8
            invalid: list[pacsv.InvalidRow] = []
            batches = self._read(text, invalid)
            return Parsed(batches, [miscounted(indices[row.number - 1], row) for row in invalid])

        def miscounted(index: int, row: pacsv.InvalidRow) -> BadRow:
            reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
            return BadRow(int(starts[index]), reason, record(index))

        def refuse(index: int, error: Exception) -> BadRow:
            return BadRow(int(starts[index]), self._reason(error), record(index))

        return keep_good(len(starts), parse, refuse, _row_named)

    def _read(self, data: bytes | pa.Buffer, invalid: list[pacsv.InvalidRow] | None = None) -> list[pa.RecordBatch]:
        def skip(row: pacsv.InvalidRow) -> str:
            if invalid is not None:
                invalid.append(row)
            return "skip"

        table = pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(column_names=self.names, use_threads=False, block_size=len(data) + 64),
            self.form.parse_options(None if invalid is None else skip),
            self._convert_options,
        )
        if not table.num_rows:
            return []
        if self.form.nulls is None:
            table = empty_text_to_null(table)
        return list(table.select(list(self.columns)).combine_chunks().to_batches())

    @cached_property
    def _convert_options(self) -> pacsv.ConvertOptions:
        return self.form.convert_options(self.schema, self.columns or self.names[:1])

    def _reason(self, error: Exception) -> str:
        if counted := _MISCOUNTED.search(str(error)):
            return f"{counted[2]} fields instead of {counted[1]}"
        found = _CONVERSION.match(str(error))
        if found is None:
            return str(error).splitlines()[0]
        name = self.names[int(found[1])]
        if "UTF8" in found[3]:
            return f'column "{name}": not UTF-8 text'
        value = found[3].removeprefix("invalid value ").strip("'")
        return f'column "{name}": {value[:100]!r} is not {found[2]}'


def _row_named(error: str) -> int | None:
    found = _ROW.search(error)
    return None if found is None else int(found[1]) - 1


def empty_text_to_null(table: pa.Table) -> pa.Table:
    """Return the table with nulls for empty text."""
    for index, field in enumerate(table.schema):
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            continue
        column = table.column(index)
        empty = pc.equal(pc.binary_length(column), 0)
        if pc.any(empty).as_py():
            table = table.set_column(index, field, pc.if_else(empty, pa.scalar(None, field.type), column))
    return table
