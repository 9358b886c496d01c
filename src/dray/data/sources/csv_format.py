"""How CSV text is written: the options, the header, and one block of records read by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dray.data.sources.columns import require_distinct
from dray.data.sources.csv_separators import Separators
from dray.data.sources.quotes import BLANK, TAB, Positions, Quoting, records, without_blanks
from dray.errors import ConfigError, DataError

OPEN_COMMENT = "a comment with a quote that is not closed on its line: with quote=none it is a comment alone"
BOM = b"\xef\xbb\xbf"
NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA",
         "NULL", "NaN", "None", "n/a", "nan", "null")  # fmt: skip
"""What means a missing value in columns that are not text. In text only the empty cell does: NA is Namibia."""

WHITESPACE = "whitespace"
"""The delimiter of files whose values are apart by any number of blanks and tabs."""

_NAMES_DELIMITER = re.compile(rb"\"?sep=([ !#-/:-@\[-`{-~\t])\"?(\r\n|\n|\r|\Z)", re.IGNORECASE)
"""A line that tells Excel the delimiter: a mark, no letter and no digit."""
_TEXT = pa.string()


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How the files are written."""

    delimiter: str = ","
    """One character, or `WHITESPACE`."""
    quote: str | None = '"'
    """None: quotes are characters like any other."""
    header: bool | None = None
    """Whether the first line of every file names the columns. Default: it does, unless `names` are given."""
    names: tuple[str, ...] | None = None
    """The columns; instead of those of the header, if `header` says that there is one. Default without a header:
    f0, f1, ..."""
    nulls: tuple[str, ...] | None = None
    """What means a missing value, besides the empty cell: in text unless it is quoted, in other columns quoted or
    not. Default: see `NULLS`."""
    encoding: str | None = None
    """Default: UTF-8, or what the byte order mark of a file says."""
    skip: int = 0
    """Lines before the header, or before the first row."""
    comment: str | None = None
    """Lines that begin with this character are no rows."""
    decimal: str | None = None
    """What is before the fraction of a number. Default: a point; a comma if points are between the thousands."""
    thousands: str | None = None
    """What is between the thousands of a number."""
    strip: bool = False
    """Whether blanks around a value do not belong to it."""
    times: Mapping[str, str] = field(default_factory=dict)
    """The columns that hold times of a form that the user gave with their types."""

    def __post_init__(self) -> None:
        pairs = (("delimiter", "quote"), ("delimiter", "comment"), ("quote", "comment"), ("decimal", "thousands"))
        for one, other in pairs:
            if getattr(self, one) == getattr(self, other) is not None:
                raise ConfigError(
                    f"The CSV {one} and {other} are both {getattr(self, one)!r}.", fix="Give two characters."
                )
        if self.delimiter == self.thousands and self.quote is None:
            raise ConfigError(
                f"The CSV delimiter and thousands are both {self.delimiter!r}, and nothing is quoted.",
                fix="Give the delimiter of the file, such as --read 'delimiter=;'.",
            )

    @property
    def has_header(self) -> bool:
        return self.names is None if self.header is None else self.header

    @property
    def separators(self) -> Separators:
        return Separators(self.decimal or ("," if self.thousands == "." else "."), self.thousands)

    def quoting(self, newline: bytes = b"\n") -> Quoting:
        """Return how the text of a file is quoted."""
        spaced = self.strip or self.delimiter == WHITESPACE
        delimiter = BLANK if self.delimiter == WHITESPACE else ord(self.delimiter)
        return Quoting(delimiter, self._quote, newline, spaced)

    @property
    def prepared_quoting(self) -> Quoting:
        """How `prepared` text is quoted."""
        return Quoting(TAB if self.delimiter == WHITESPACE else ord(self.delimiter), self._quote)

    @property
    def _quote(self) -> int | None:
        return None if self.quote is None else ord(self.quote)

    def prepared(self, data: bytes | pa.Buffer) -> bytes | pa.Buffer:
        """Return records as pyarrow can read them; the same number."""
        quoting = self.quoting()
        return without_blanks(bytes(data), quoting) if quoting.spaced and len(data) else data

    def records(self, data: bytes) -> tuple[Positions, Positions]:
        """Return where the rows of `data` begin and end: without empty lines and comments.

        A comment of several lines, which holds an open quote, counts as a row: it may have swallowed some.
        """
        starts, ends = records(data, self.quoting())
        if self.comment is not None and self.comment.encode() in data:
            kept = [not self.is_comment(data[start:end]) for start, end in zip(starts, ends, strict=True)]
            starts, ends = starts[kept], ends[kept]
        if self.quoting().spaced:
            kept = [bool(data[start:end].strip()) for start, end in zip(starts, ends, strict=True)]
            starts, ends = starts[kept], ends[kept]
        return starts, ends

    def without_comments(self, data: bytes | pa.Buffer) -> bytes | pa.Buffer:
        """Return the rows of `data` alone. Raises ArrowInvalid where a comment may have swallowed some."""
        if self.comment is None or not (np.frombuffer(data, np.uint8) == ord(self.comment)).any():
            return data
        text = bytes(data)
        rows = [text[start:end] for start, end in zip(*self.records(text), strict=True)]
        if any(self.begins_comment(row) for row in rows):
            raise pa.ArrowInvalid(OPEN_COMMENT)
        return b"".join(rows)

    def begins_comment(self, record: bytes) -> bool:
        text = record.lstrip(b" \t") if self.quoting().spaced else record
        return self.comment is not None and text.startswith(self.comment.encode())

    def is_comment(self, record: bytes) -> bool:
        """Whether a record is a comment of one line."""
        return self.begins_comment(record) and b"\n" not in record.rstrip(b"\r\n")

    def named_delimiter(self, data: bytes) -> str | None:
        """Return the delimiter that the first line of a text names, as Excel has it: sep=;"""
        line = None if self.skip else _NAMES_DELIMITER.match(data, len(BOM) if data.startswith(BOM) else 0)
        return None if line is None else line[1].decode()

    def text_begin(self, data: bytes, complete: bool) -> int | None:
        """Return where the lines that are skipped end, or None if more bytes are needed.

        A line that names the delimiter is one of them, also where no number is given.
        """
        begin = len(BOM) if data.startswith(BOM) else 0
        if not self.skip and (line := _NAMES_DELIMITER.match(data, begin)):
            return line.end()
        newline = b"\r" if b"\n" not in data and b"\r" in data else b"\n"
        for _ in range(self.skip):
            found = data.find(newline, begin)
            if found < 0:
                return len(data) if complete else None
            begin = found + 1
        return begin

    def header_end(self, data: bytes, complete: bool) -> int | None:
        """Return where the header's line ends, or None if more bytes are needed."""
        begin = self.text_begin(data, complete)
        if begin is None or not self.has_header:
            return begin
        starts, ends = self.records(data[begin:])
        # A line end at the very end of the bytes may be half of one, and the last record may go on after them.
        if not complete and (not len(ends) or ends[0] + begin >= len(data)):
            return None
        return begin + int(ends[0]) if len(starts) else len(data)

    def first_cells(self, data: bytes, location: str) -> tuple[str, ...]:
        """Return the values of the first row of a file, which may be its header."""
        begin = self.text_begin(data, True) or 0
        starts, ends = self.records(data[begin:])
        if not len(starts):
            return ()
        # pyarrow counts no columns in a file of one line that has no end.
        first = bytes(self.prepared(data[begin + int(starts[0]) : begin + int(ends[0])])).rstrip(b"\r\n") + b"\n"
        try:
            row = pacsv.read_csv(
                pa.BufferReader(first),
                pacsv.ReadOptions(autogenerate_column_names=True, use_threads=False, block_size=len(first) + 64),
                self.parse_options(),
            )
            return tuple(
                column.cast(pa.string())[0].as_py() for column in _as_text(first, row.num_columns, self).columns
            )
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise DataError(
                f"The first line of {location} is not UTF-8 text.",
                fix="Give the encoding, such as --read encoding=cp1252 (Windows) or utf-16; or leave the file out.",
            ) from error

    def column_names(self, cells: tuple[str, ...], location: str) -> tuple[str, ...]:
        """Return the columns of a file by the values of its first row."""
        if not cells:
            return ()
        if self.names is not None:
            if len(self.names) != len(cells):
                raise DataError(
                    f"{location} has {len(cells)} columns, but {len(self.names)} names were given.",
                    fix="Give one name for each column, in order.",
                )
            return self.names
        names = tuple(f"f{i}" if not self.has_header or not cell else cell for i, cell in enumerate(cells))
        fix = "Give distinct names with --read names=a,b,c, or --read header=false if the first line is not a header."
        if len(set(names)) < len(names) and not any(map(str.isalpha, "".join(names))):
            fix = (
                "The first line looks like data: if there is no header, use --read header=false; the columns are f0 to "
                f"f{len(names) - 1} then."
            )
        require_distinct(names, location, fix)
        return names

    def parse_options(self, handler: object = None) -> pacsv.ParseOptions:
        delimiter = chr(self.prepared_quoting.delimiter)
        return pacsv.ParseOptions(delimiter=delimiter, quote_char=self.quote or False, invalid_row_handler=handler)

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

    def as_written(self, columns: Sequence[str]) -> pacsv.ConvertOptions:
        """Return the options to read columns as text in which nothing is missing."""
        return pacsv.ConvertOptions(column_types=dict.fromkeys(columns, _TEXT), include_columns=list(columns))

    def _options(self, types: Any, columns: Sequence[str], *, strings: bool, quoted: bool) -> pacsv.ConvertOptions:
        return pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(columns),
            null_values=list(NULLS if self.nulls is None else {"", *self.nulls}),
            strings_can_be_null=strings,
            quoted_strings_can_be_null=quoted,
            decimal_point=self.separators.decimal,
        )

    def read(
        self,
        data: bytes | pa.Buffer,
        names: Sequence[str],
        options: pacsv.ConvertOptions,
        handler: Callable[[pacsv.InvalidRow], str] | None = None,
    ) -> pa.Table:
        """Return the rows of a prepared text without a header. `handler` may skip rows of too many or few fields."""
        return pacsv.read_csv(
            pa.BufferReader(data),
            pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 64),
            self.parse_options(handler),
            options,
        )

    def read_as(
        self,
        data: bytes | pa.Buffer,
        names: Sequence[str],
        columns: Sequence[str],
        type_: pa.DataType,
        handler: Callable[[pacsv.InvalidRow], str] | None = None,
    ) -> pa.Table:
        """Return columns of numbers as another type; as text they are without separators, and have a point."""
        if self.separators.plain or not columns:
            return self.read(data, names, self.text_options(columns, type_), handler)
        texts = self.read(data, names, self.text_options(columns), handler)
        return pa.table({name: self.separators.rewritten(texts[name]).cast(type_) for name in columns})


def _as_text(first: bytes, columns: int, form: CsvFormat) -> pa.Table:
    names = [f"f{i}" for i in range(columns)]
    return form.read(first, names, pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())))
