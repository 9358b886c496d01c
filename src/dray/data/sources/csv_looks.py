"""What the first rows of a CSV file look like, where this is not how they are read. Pure: text in, notes out.

A false alarm is worse than silence: each rule asks for what data that is fine hardly has (tests/unit/data/sources/
test_csv_looks.py has the data that must stay silent).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dray.data.source import Note
from dray.data.sources.csv_delimiter import NUMBER, TYPED, WORDS
from dray.data.sources.csv_format import NULLS, WHITESPACE, CsvFormat
from dray.data.sources.csv_separators import APOSTROPHES

ROWS = 1000
CELLS = 200_000
"""At most so many cells are looked at: fewer rows of a wide file."""
MISSING = (
    "?",
    "-",
    "--",
    ".",
    "*",
    "unknown",
    "missing",
    "n.v.",
    "n.a.",
    "k.A.",
    "keine Angabe",
    "nil",
    "(null)",
    "none",
)
"""What people write for a missing value, and pyarrow does not know."""
SENTINELS = (-99, -999, -9999, -99999)
_SENTINEL_SHARE = 0.01
_LEAST_VALUES = 3
_FAR = 3
"""Below negative numbers: so many times as far as these are apart."""
_SHOWN = 3
_BLANKS_SHARE = 0.9

_POINT = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_COMMA = re.compile(r"-?\d+(,\d+)?([eE][-+]?\d+)?", re.ASCII)
_COMMA_THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII)
_POINT_THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(\.\d{3})+(,\d+)?", re.ASCII)
_BLANK_THOUSANDS = re.compile("-?[1-9]\\d{0,2}([ \u00a0\u202f'\u2019]\\d{3})+([.,]\\d+)?", re.ASCII)

_DECIMAL_COMMA, _THOUSANDS_COMMA = '--read "decimal=,"', '--read "thousands=,"'
"""In quotes, so that the point after it is not taken for a part of it."""

Columns = Mapping[str, Sequence[str]]
"""The values of every column that are not empty, as text."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The start of a file."""

    name: str
    first: tuple[str, ...]
    """The values of its first row: the header, if there is one."""
    columns: Columns
    """Without the header."""
    form: CsvFormat
    stated: frozenset[str]
    """The options that the user gave."""


def notes_on(looked: Looked) -> list[Note]:
    """Return what the user should hear about the first rows."""
    found: list[Note] = []
    for rule in (_comments, _header, _one_column, _quotes, _blanks, _separators, _missing, _sentinels):
        found += rule(looked)
    return found


def looks_like_data(first: Sequence[str], columns: Columns) -> bool:
    """Whether a header is rather the first row: numbers over numbers, and over text what occurs there again.

    Names that are numbers count up, as years do: those are not taken for data.
    """
    numeric = [cell for cell, values in zip(first, columns.values(), strict=True) if _is_numeric(values)]
    if not numeric or not all(NUMBER.fullmatch(cell) for cell in numeric) or _count_up(numeric):
        return False
    others = [(cell, values) for cell, values in zip(first, columns.values(), strict=True) if not _is_numeric(values)]
    fractions = any(re.search(r"[-.,]", cell) for cell in numeric)
    return all(fractions or not values or cell in values for cell, values in others)


def _count_up(cells: Sequence[str]) -> bool:
    if not all(cell.strip().isdigit() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return all(before < after for before, after in pairwise(numbers))


def _header(looked: Looked) -> Iterator[Note]:
    form, first, columns = looked.form, looked.first, looked.columns
    if not any(columns.values()):
        return
    shown = ", ".join(cell[:20] for cell in first[:4]) + (", ..." if len(first) > 4 else "")
    if form.has_header:
        if "header" not in looked.stated and looks_like_data(first, columns):
            yield Note(
                f"The first line of {looked.name} looks like data ({shown}), but is read as the names of the columns.",
                fix=f"If there is no header, use --read header=false: the columns are f0 to f{len(first) - 1} then; "
                "--read names=a,b,c gives them other names.",
            )
        return
    same = form.names is not None and tuple(cell.strip() for cell in first) == form.names
    below = {name: values[1:] for name, values in columns.items()}
    over_numbers = [cell for cell, values in zip(first, below.values(), strict=True) if _is_numeric(values)]
    words = bool(over_numbers) and not any(NUMBER.fullmatch(cell) or not cell for cell in over_numbers)
    if same or (words and len(set(first)) == len(first) and all(first)):
        yield Note(
            f"The first line of {looked.name} looks like a header ({shown}), but is read as a row.",
            fix="If it is one, use --read header=true.",
        )


def _comments(looked: Looked) -> Iterator[Note]:
    """A header may begin with a mark (#chrom), and colours do (#ff0000): other rows that do, or none, tell."""
    if "comment" in looked.stated or not looked.first or not looked.first[0].startswith("#"):
        return
    below = next(iter(looked.columns.values()))
    marked = sum(value.startswith("#") for value in below)
    if (marked or len(looked.columns) == 1) and marked <= len(below) / 2:
        yield Note(
            f"The first line of {looked.name} looks like a comment ({looked.first[0][:20]}), but is read as values.",
            fix="If lines that begin so are no rows, use --read comment=#.",
        )


def _one_column(looked: Looked) -> Iterator[Note]:
    if len(looked.columns) != 1 or "delimiter" in looked.stated:
        return
    rows = [value for values in looked.columns.values() for value in values]
    for mark in (";", "\t", "|"):
        if len(rows) >= _LEAST_VALUES and all(mark in row for row in [*rows, looked.first[0]]):
            yield _divided(looked, mark)
            return
    cells = [row.split() for row in rows]
    width = len(cells[0]) if len(cells) >= _LEAST_VALUES else 0
    even = width > 2 and all(len(row) == width for row in cells)
    if even and any(_is_numeric([row[index] for row in cells]) for index in range(width)):
        yield _divided(looked, WHITESPACE)


def _divided(looked: Looked, mark: str) -> Note:
    return Note(
        f"{looked.name} has one column, and every row of it holds {WORDS[mark]}.",
        fix=f'If they divide values, use --read "delimiter={TYPED.get(mark, mark)}".',
    )


def _quotes(looked: Looked) -> Iterator[Note]:
    if looked.form.quote != '"' or "quote" in looked.stated:
        return
    quoted = [name for name, values in looked.columns.items() if _all_in_quotes(values)]
    if quoted:
        value = looked.columns[quoted[0]][0]
        yield Note(
            f"The values of {_listed(quoted)} are in single quotes ({value[:20]}), which count as part of them.",
            fix='If they are no part of the values, use --read "quote=\'".',
        )


def _all_in_quotes(values: Sequence[str]) -> bool:
    return len(values) >= 2 and all(len(value) > 1 and value[0] == value[-1] == "'" for value in values)


def _blanks(looked: Looked) -> Iterator[Note]:
    if "strip" in looked.stated or looked.form.delimiter == WHITESPACE:
        return
    texts = {name: values for name, values in looked.columns.items() if values and not _is_numeric(values)}
    led = [name for name, values in texts.items() if _led_by_blanks(values)]
    if led:
        value = next(value for value in texts[led[0]] if value.startswith(" "))
        yield Note(
            f"The values of {_listed(led)} begin with a blank ({value[:20]!r}), which is part of every category.",
            fix="To leave blanks around values out, use --read strip=true.",
        )


def _led_by_blanks(values: Sequence[str]) -> bool:
    return len(values) >= _LEAST_VALUES and sum(value.startswith(" ") for value in values) >= _BLANKS_SHARE * len(
        values
    )


def _separators(looked: Looked) -> Iterator[Note]:
    if not looked.form.separators.plain or looked.stated & {"decimal", "thousands"}:
        return
    by_option: dict[str, list[str]] = {}
    for name, values in looked.columns.items():
        if option := _separator_of([value.strip() for value in values]):
            by_option.setdefault(option, []).append(name)
    for option, names in by_option.items():
        value = next(value for value in looked.columns[names[0]] if re.search(r"[^-+\d\s]|\d\s\d", value.strip()))
        yield Note(
            f"The values of {_listed(names)} look like numbers ({value.strip()[:20]}), but are read as text.",
            fix=f"If they are numbers, use {option}.",
        )


def _separator_of(values: Sequence[str]) -> str | None:
    """Return the option with which all values are numbers; None if there is none, or they are numbers already."""
    if len(values) < 2 or _are(_POINT, values):
        return None
    with_mark = [value for value in values if not value.lstrip("-").isdigit()]
    if _are(_COMMA_THOUSANDS, with_mark):
        if not any("." in value for value in with_mark):
            return f"{_DECIMAL_COMMA} (1,234 is a fraction) or {_THOUSANDS_COMMA} (1,234 is a thousand)"
        return _THOUSANDS_COMMA
    if all(_COMMA_THOUSANDS.fullmatch(value) or _POINT.fullmatch(value) for value in with_mark):
        return _THOUSANDS_COMMA
    if _are(_COMMA, with_mark):
        return _DECIMAL_COMMA
    if all(_POINT_THOUSANDS.fullmatch(value) or _COMMA.fullmatch(value) for value in with_mark):
        return f'{_DECIMAL_COMMA} --read "thousands=."'
    if all(
        _BLANK_THOUSANDS.fullmatch(value) or _POINT.fullmatch(value) or _COMMA.fullmatch(value) for value in with_mark
    ):
        mark = next((match[1][0] for value in with_mark if (match := _BLANK_THOUSANDS.fullmatch(value))), " ")
        mark = "'" if mark in APOSTROPHES else " "  # each is taken for those that look like it
        comma = any("," in value for value in with_mark)
        return f'--read "thousands={mark}"' + (f" {_DECIMAL_COMMA}" if comma else "")
    return None


def _missing(looked: Looked) -> Iterator[Note]:
    if "nulls" in looked.stated:
        return
    having: dict[str, list[str]] = {}
    for name, values in looked.columns.items():
        stripped = [value.strip() for value in values]
        others = {value for value in stripped if not _POINT.fullmatch(value) and value not in NULLS}
        if others and others <= set(MISSING) and sum(map(bool, map(_POINT.fullmatch, stripped))) >= len(stripped) / 2:
            having[name] = sorted(others)
    if not having:
        return
    words = sorted({word for words_ in having.values() for word in words_})
    yield Note(
        f"{_listed(list(having))} would be numbers, but for {' and '.join(map(repr, words))}, and so are read as text.",
        fix=_nulls(looked, words),
    )


def _sentinels(looked: Looked) -> Iterator[Note]:
    if "nulls" in looked.stated:
        return
    having: dict[str, str] = {}
    for name, values in looked.columns.items():
        if value := _sentinel_of(values):
            having[name] = value
    if having:
        words = sorted(set(having.values()))
        yield Note(
            f"{_listed(list(having))}: {' and '.join(words)} is far from all other values, and may mean a missing one.",
            fix=_nulls(looked, words),
        )


def _sentinel_of(values: Sequence[str]) -> str | None:
    """Return the text of a number like -999 that occurs again and again, far below all others."""
    if not _is_numeric(values):
        return None
    numbers = [(float(value.strip()), value.strip()) for value in values if _POINT.fullmatch(value.strip())]
    least, text = min(numbers, default=(0.0, ""))
    others = [number for number, _ in numbers if number != least]
    times = len(numbers) - len(others)
    if least not in SENTINELS or len(others) < times or times < max(_LEAST_VALUES, _SENTINEL_SHARE * len(numbers)):
        return None
    next_one, most = min(others), max(others)
    is_far = next_one >= 0 or next_one - least > _FAR * (most - next_one)
    return text if is_far and len({value for number, value in numbers if number == least}) == 1 else None


def _nulls(looked: Looked, words: Sequence[str]) -> str:
    """Return the option: it replaces what is missing by default, so that what occurs of this is named too."""
    seen = {value for values in looked.columns.values() for value in values if value in NULLS}
    named = ",".join([*words, *sorted(seen)])
    return f'If this means missing, use --read "nulls={named}".'


def _is_numeric(values: Sequence[str]) -> bool:
    """Whether all values are numbers but those that are missing."""
    numbers = [value for value in values if value not in NULLS]
    return bool(numbers) and all(NUMBER.fullmatch(value) for value in numbers)


def _are(form: re.Pattern[str], values: Sequence[str]) -> bool:
    return bool(values) and all(form.fullmatch(value) for value in values)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
