"""Numbers as other countries write them: 1.234,5 with a decimal comma and points between the thousands.

Pure. Such a text is rewritten with a point and without separators, and then is a number like any other, by the rules of
`numbers.py`. A separator must be where thousands end: with `thousands=.`, 0.005 and 1.2345 are no numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_BLANKS = (" ", "\u00a0", "\u202f")
"""Where one of them is written, the others are too: they look alike."""
APOSTROPHES = ("'", "\u2019")
MARKS = (".", ",", "_", *_BLANKS, *APOSTROPHES)


@dataclass(frozen=True, slots=True)
class Separators:
    """How numbers are written."""

    decimal: str = "."
    thousands: str | None = None

    @property
    def plain(self) -> bool:
        return self.decimal == "." and self.thousands is None

    def rewritten(self, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return numbers as they are written with a point and without separators; other texts become missing."""
        trimmed = pc.utf8_trim(texts, characters=" \t")
        numbers = pc.if_else(pc.match_substring_regex(trimmed, self._number), trimmed, pa.scalar(None, texts.type))
        if self.thousands is not None:
            numbers = pc.replace_substring_regex(numbers, self._group, "")
        return numbers if self.decimal == "." else pc.replace_substring(numbers, self.decimal, ".")

    def first_other(self, texts: pa.ChunkedArray, numbers: pa.ChunkedArray) -> int | None:
        """Return the first row that holds a text, but none of the numbers that were rewritten."""
        row: int = pc.index(pc.and_(pc.is_valid(texts), pc.is_null(numbers)), True).as_py()
        return row if row >= 0 else None

    @property
    def _group(self) -> str:
        alike = next((marks for marks in (_BLANKS, APOSTROPHES) if self.thousands in marks), (self.thousands or "",))
        return "[" + "".join(map(re.escape, alike)) + "]"

    @property
    def _number(self) -> str:
        point = re.escape(self.decimal)
        whole = "[0-9]+" if self.thousands is None else f"(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{self._group}[0-9]{{3}})+)"
        special = "(?i:nan|inf|infinity)"
        return f"^-?(?:(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?|{special})$"


def as_numbers(numbers: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return rewritten numbers as integers, or else as doubles; None if there is none."""
    if numbers.null_count == len(numbers):
        return None
    try:
        return numbers.cast(pa.int64())
    except pa.ArrowInvalid:
        return numbers.cast(pa.float64())
