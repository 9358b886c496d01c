"""Which delimiter a CSV file has, by its first rows. Pure.

The comma stays unless the first rows leave no doubt (docs/decisions/0034-the-looks-of-csv.md): another delimiter gives
the same number of values, at least two, in nearly every row, and the comma does not. Blanks divide text too: they are a
delimiter only where they divide nothing but numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import replace

from dray.data.source import Note
from dray.data.sources.csv_format import WHITESPACE, CsvFormat

ROWS = 100
NEARLY_ALL = 0.9
NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*", re.ASCII)
WORDS = {";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks", WHITESPACE: "blanks", ",": "commas"}
TYPED = {"\t": "tab", " ": "' '", WHITESPACE: WHITESPACE}
"""How a delimiter is written on the command line, where it is not itself."""

Row = Sequence[str]


def first_rows(data: bytes, form: CsvFormat, complete: bool) -> list[Row]:
    """Return the values of the first rows of a text; `complete`: it is all of the file."""
    data = data[form.text_begin(data, complete) or 0 :]
    starts, ends = form.records(data)
    stop = ROWS if complete else min(ROWS, max(1, len(starts) - 1))
    texts = [bytes(form.prepared(data[start:end])) for start, end in zip(starts[:stop], ends[:stop], strict=True)]
    return [_cells(text.decode(errors="replace"), form) for text in texts]


def delimiter_of(data: bytes, form: CsvFormat, complete: bool) -> str | None:
    """Return the delimiter that the first rows show; None if they leave a doubt."""

    def divided(delimiter: str) -> list[Row]:
        return first_rows(data, replace(form, delimiter=delimiter), complete)

    commas = divided(",")
    if _even(commas, 0.5):
        return ","
    taken = {form.quote, form.comment}
    found = [mark for mark in (";", "\t", "|") if mark not in taken and _even(divided(mark), NEARLY_ALL)]
    if found:
        return found[0] if len(found) == 1 else None
    if any(len(row) > 1 for row in commas):
        return None
    rows = divided(WHITESPACE)
    if not _even(rows, 1.0) or not all(NUMBER.fullmatch(cell) for row in rows[1:] or rows for cell in row):
        return None
    return " " if divided(" ") == rows else WHITESPACE


def told(delimiter: str, name: str) -> Note:
    """Return what is said about a delimiter that was found."""
    typed = TYPED.get(delimiter, delimiter)
    return Note(
        f"The values of {name} are divided by {WORDS[delimiter]}: they are read so.",
        fix=f'To say it yourself, use --read "delimiter={typed}"; for commas --read "delimiter=,".',
    )


def told_as_named(named: str, used: str, name: str) -> Note:
    """Return what is said about a first line that names the delimiter."""
    by = f'"{TYPED.get(used, used)}"' if used not in WORDS else WORDS[used]
    return Note(
        f'{name} begins with the line "sep={TYPED.get(named, named)}": it is no header, and the values are divided by '
        f"{by}.",
        fix=f'To say it yourself, use --read skip=1 --read "delimiter={TYPED.get(used, used)}".',
    )


def _even(rows: Sequence[Row], share: float) -> bool:
    """Whether so many of the rows have as many values as the first one, and this is more than one."""
    if not rows or len(rows[0]) < 2:
        return False
    return sum(len(row) == len(rows[0]) for row in rows) >= share * len(rows)


def _cells(text: str, form: CsvFormat) -> Row:
    delimiter = chr(form.prepared_quoting.delimiter)
    lines = io.StringIO(text, newline="")
    if form.quote is None:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quotechar=form.quote)
    try:
        return next(reader, [])
    except csv.Error:  # a value of more than 131,072 characters
        return [text]
