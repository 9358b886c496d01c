"""Text that holds times, read by a form. Pure, exact, and fast: all texts of one look are read at once.

A form is written as `strftime` does: `%d.%m.%Y %H:%M`. What is in brackets may be left out: `%d.%m.%Y[ %H:%M]`.

| part | reads                                              | part | reads                                        |
|------|----------------------------------------------------|------|----------------------------------------------|
| `%Y` | year, 4 digits                                     | `%S` | second, 0 to 59                              |
| `%y` | year, 2 digits: 69 to 99 are 1969 to 1999          | `%f` | fraction of the second, 1 to 9 digits        |
| `%m` | month, 1 or 2 digits                               | `%p` | AM or PM                                     |
| `%b` | month in English: Jan to Dec                       | `%z` | Z, UTC, GMT, or an offset: +02:00 +0200 +02  |
| `%d` | day, 1 or 2 digits                                 | `%%` | a percent sign                               |
| `%H` | hour, 0 to 23; `%I`: 1 to 12, with `%p`            |      |                                              |

Two parts of digits next to each other have two digits each: `%Y%m%d`. Besides there are the words of `WORDS`: `iso`,
and whole numbers since 1970, such as `milliseconds`. A time without an offset is in UTC. Names of zones other than UTC
and GMT, 24:00 and a leap second (:60) are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.errors import ConfigError

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

ISO = "iso"
WORDS = {
    ISO: "%Y-%m-%d[T%H:%M[:%S[.%f]][ ][%z]]",
    "seconds": "",
    "milliseconds": "",
    "microseconds": "",
    "nanoseconds": "",
}
"""Forms that have a name."""
PER_SECOND = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
SUPPORTED = "%Y %y %m %b %d %H %I %M %S %f %p %z"

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DIGITS = {"Y": "[0-9]{4}", "y": "[0-9]{2}", "f": "[0-9]{1,9}"} | dict.fromkeys("mdHIMS", "[0-9]{1,2}")
_WORDS = {
    "b": "(?i:" + "|".join(_MONTHS) + ")",
    "p": "(?i:am|pm)",
    "z": "(?:Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)",
}
_TOKEN = re.compile(r"%(.?)|([\[\]])|([^%\[\]]+)", re.DOTALL)
_WHOLE = "^-?([0-9]{1,18}|[1-8][0-9]{18})$"
_FRACTION = r"^-?[0-9]{1,18}(\.[0-9]*)?([eE][-+]?[0-9]{1,2})?$"
_BLOCK = 1 << 16
_FIRST_YEAR, _LAST_YEAR = 0, 9999
_MOST_LOOKS = 8
"""After so many looks of the texts of one length, those of no use are told by a regular expression."""
_NANOS = np.int64(10**9)


@dataclass(frozen=True)
class Times:
    """The times of some texts."""

    seconds: Longs
    """Since 1970-01-01 UTC, rounded down."""
    nanos: Longs
    """What is above that."""
    valid: Bools
    """Whether there is a time."""

    def float_seconds(self) -> npt.NDArray[np.float64]:
        """Return seconds since 1970; NaN where there is none."""
        return np.where(self.valid, self.seconds + self.nanos / 1e9, np.nan)

    def microseconds(self) -> pa.Array:
        """Return timestamps; null where there is none, one that is finer than a microsecond, or after the year 9999.

        Milliseconds that are read as seconds are such times, and 64 bits do not hold the microseconds of all of them.
        """
        days = _days_before()
        valid = self.valid & (self.nanos % 1000 == 0)
        valid &= (self.seconds >= days[0] * 86_400) & (self.seconds < days[-1] * 86_400)
        return pa.array(self.seconds * 10**6 + self.nanos // 1000, pa.timestamp("us"), mask=~valid)


def read_times(texts: pa.Array, form: str) -> Times:
    """Return the times of texts; none where a text is missing or does not fit the form. Blanks around it count not."""
    if pt.is_dictionary(texts.type):
        known = read_times(texts.dictionary, form)
        rows = pc.fill_null(texts.indices.cast(pa.int64()), len(texts.dictionary)).to_numpy(zero_copy_only=False)
        return Times(
            np.append(known.seconds, 0)[rows], np.append(known.nanos, 0)[rows], np.append(known.valid, False)[rows]
        )
    if form in PER_SECOND:
        return read_numbers(pc.utf8_trim_whitespace(texts), form)
    pattern = compile_form(form)
    found = Times(np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_))
    texts = texts.cast(pa.large_string())
    for start in range(0, len(texts), _BLOCK):
        _read_block(texts.slice(start, _BLOCK), pattern, found, start)
    return found


def read_numbers(numbers: pa.Array, form: str) -> Times:
    """Return the times of numbers, or of texts of numbers."""
    if not (pt.is_integer(numbers.type) or pt.is_floating(numbers.type) or pt.is_decimal(numbers.type)):
        return _read_written_numbers(numbers, form)
    if pt.is_floating(numbers.type) or pt.is_decimal(numbers.type):
        floats = numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / PER_SECOND[form]
        valid = np.isfinite(floats) & (np.abs(floats) < 2**53)
        seconds = np.floor(np.where(valid, floats, 0))
        nanos = np.floor((np.where(valid, floats, 0) - seconds) * 1e9)
        return Times(seconds.astype(np.int64), nanos.astype(np.int64), valid)
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    values = pc.fill_null(numbers.cast(pa.int64(), safe=False), 0).to_numpy(zero_copy_only=False)
    seconds, rest = np.divmod(values, PER_SECOND[form])
    return Times(seconds, rest * (_NANOS // PER_SECOND[form]), valid)


def _read_written_numbers(texts: pa.Array, form: str) -> Times:
    """Return the times of texts of numbers: exact, but for those with an exponent. pandas writes 17.0 beside gaps."""
    texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0*$", r"\1")
    whole = pc.fill_null(pc.match_substring_regex(texts, _WHOLE), False)
    found = read_numbers(pc.if_else(whole, texts, None).cast(pa.int64()), form)
    rest = pc.fill_null(pc.match_substring_regex(texts, _FRACTION), False)
    for row in np.flatnonzero(pc.and_not(rest, whole).to_numpy(zero_copy_only=False)).tolist():
        nanos = Decimal(texts[row].as_py()).scaleb(9) / PER_SECOND[form]
        if abs(nanos) < 10**27:
            found.seconds[row], found.nanos[row] = divmod(int(nanos.to_integral_value(ROUND_FLOOR)), int(_NANOS))
            found.valid[row] = True
    return found


def has_zone(form: str) -> bool:
    """Whether times of a form are moments, wherever they were written: they have an offset, or count from 1970."""
    return form in PER_SECOND or form == ISO or compile_form(form).zone


@dataclass(frozen=True)
class Pattern:
    """A compiled form."""

    text: str
    """A regular expression, with a group for each part: its letter and a number, as a part may be in two brackets."""
    zone: bool

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.text)

    def spans(self, example: str) -> dict[str, tuple[int, int]] | None:
        """Return where each part is in a text; None if it does not fit."""
        found = self.regex.fullmatch(example)
        if found is None:
            return None
        return {name[0]: found.span(name) for name, value in found.groupdict().items() if value is not None}


@lru_cache(maxsize=256)
def compile_form(form: str) -> Pattern:
    """Return the pattern of a form; raise for one that is none."""
    parts: list[str] = []
    letters: list[str] = []
    depth, after_digits = 0, False
    tokens = list(_TOKEN.finditer(WORDS.get(form) or form))
    for place, token in enumerate(tokens):
        letter, bracket, literal = token[1], token[2], token[3]
        digits = letter in _DIGITS if letter else False
        if bracket:
            depth += 1 if bracket == "[" else -1
            if depth < 0:
                break
            parts.append("(?:" if bracket == "[" else ")?")
        elif literal is not None or letter == "%":
            parts.append(_literal(form, literal or "%"))
        elif digits:
            beside = after_digits or (place + 1 < len(tokens) and tokens[place + 1][1] in (*_DIGITS,))
            shape = "[0-9]{2}" if beside and letter in "mdHIMS" else _DIGITS[letter]
            parts.append(f"(?P<{letter}{place}>{shape})")
        elif letter in _WORDS:
            parts.append(f"(?P<{letter}{place}>{_WORDS[letter]})")
        else:
            raise _no_form(form, f'"%{letter}" is not one of its parts')
        letters += [letter] if letter and letter != "%" else []
        after_digits = digits
    if depth:
        raise _no_form(form, "a bracket is not closed" if depth > 0 else "a bracket is closed that was not opened")
    _require_date(form, letters)
    return Pattern(rf"\s*{''.join(parts)}\s*", "z" in letters)


def _literal(form: str, text: str) -> str:
    if form == ISO:
        return text.replace("T", "[T ]").replace(".", "[.,]")
    return re.escape(text)


def _require_date(form: str, letters: list[str]) -> None:
    twice = next((letter for letter in letters if letters.count(letter) > 1), None)
    if twice is not None:
        raise _no_form(form, f'"%{twice}" occurs twice')
    if not {"Y", "y"} & {*letters} or not {"m", "b"} & {*letters}:
        raise _no_form(form, "it has no year and month")
    if ("I" in letters) != ("p" in letters):
        raise _no_form(form, "%I and %p belong together")


def _no_form(form: str, why: str) -> ConfigError:
    return ConfigError(
        f'"{form}" is not the form of a time: {why}.',
        fix=f"Write it as the texts are, such as %d.%m.%Y %H:%M. Parts: {SUPPORTED}; what is in [ ] may be missing. Or "
        f"give one of the words {', '.join(WORDS)}.",
    )


def _read_block(texts: pa.Array, pattern: Pattern, found: Times, start: int) -> None:
    """Read some texts: those of one length together, as a matrix of bytes."""
    buffers = texts.buffers()
    if buffers[2] is None:
        return
    offsets = np.frombuffer(buffers[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(buffers[2], np.uint8)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths = np.where(texts.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        first = offsets[rows]
        if len(rows) * length == first[-1] - first[0] + length:  # nothing is between them
            matrix = data[first[0] : first[0] + len(rows) * length].reshape(len(rows), length).T
        else:
            matrix = data[first[None, :] + np.arange(length)[:, None]]
        for chosen, seconds, nanos, valid in _read_alike(np.ascontiguousarray(matrix), pattern):
            places = rows[chosen] + start
            found.seconds[places], found.nanos[places], found.valid[places] = seconds, nanos, valid


def _read_alike(matrix: Bytes, pattern: Pattern) -> Iterator[tuple[Longs, Longs, Longs, Bools]]:
    """Yield the times of texts of one length; of each look, all at once. A text is a column of the matrix."""
    rest = np.arange(matrix.shape[1])
    looks = 0
    while len(rest):
        part = matrix if len(rest) == matrix.shape[1] else matrix[:, rest]
        alike = _same_look(part, part[:, 0])
        example = part[:, 0].tobytes().decode(errors="replace")
        spans = pattern.spans(example) if len(example) == len(part) else None
        if spans is not None:
            chosen = part if alike.all() else part[:, alike]
            seconds, nanos, valid = _values(chosen, spans, example)
            yield rest[alike], seconds, nanos, valid
        rest = rest[~alike]
        looks += 1
        if looks == _MOST_LOOKS and len(rest):
            texts = [column.tobytes().decode(errors="replace") for column in matrix[:, rest].T]
            rest = rest[[pattern.regex.fullmatch(text) is not None for text in texts]]


def _same_look(matrix: Bytes, example: Bytes) -> Bools:
    """Whether texts have digits where the example has some, and else its characters."""
    alike = np.ones(matrix.shape[1], np.bool_)
    for line, byte in zip(matrix, example.tolist(), strict=True):
        alike &= (line - np.uint8(48)) < 10 if 48 <= byte <= 57 else line == byte
    return alike


def _values(matrix: Bytes, spans: dict[str, tuple[int, int]], example: str) -> tuple[Longs, Longs, Bools]:
    """Return seconds, nanoseconds, and whether there is such a time."""
    valid = np.ones(matrix.shape[1], np.bool_)

    def number(letter: str, low: int, high: int, default: int) -> Longs:
        if letter not in spans:
            return np.full(matrix.shape[1], default, np.int64)
        value = _digits(matrix, *spans[letter])
        np.logical_and(valid, (value >= low) & (value <= high), out=valid)
        return value

    if "Y" in spans:
        year = number("Y", _FIRST_YEAR, _LAST_YEAR, 1970)
    else:
        year = number("y", 0, 99, 70)
        year = np.where(year < 69, year + 2000, year + 1900)
    if "b" in spans:
        month = np.full(matrix.shape[1], _MONTHS.index(_cut(example, spans["b"]).lower()) + 1, np.int64)
    else:
        month = number("m", 1, 12, 1)
    hour = number("H", 0, 23, 0)
    if "I" in spans:
        hour = number("I", 1, 12, 12) % 12 + (12 if _cut(example, spans["p"]).lower() == "pm" else 0)
    minute, second = number("M", 0, 59, 0), number("S", 0, 59, 0)
    before = _days_before()
    place = np.where(valid, (year - _FIRST_YEAR) * 12 + month - 1, 0)
    day = number("d", 1, 31, 1)
    np.logical_and(valid, day <= before[place + 1] - before[place], out=valid)
    offset = _offset(matrix, spans["z"], valid) if "z" in spans else 0
    seconds = (before[place] + day - 1) * 86_400 + hour * 3600 + minute * 60 + second - offset
    nanos = np.zeros(len(seconds), np.int64)
    if "f" in spans:
        begin, end = spans["f"]
        nanos = _digits(matrix, begin, end) * np.int64(10 ** (9 - (end - begin)))
    return seconds, nanos, valid


def _offset(matrix: Bytes, span: tuple[int, int], valid: Bools) -> Longs | int:
    """Return how many seconds a text is ahead of UTC."""
    begin, end = span
    if end - begin < 3 or matrix[begin, 0] not in b"+-":
        return 0
    hours = _digits(matrix, begin + 1, begin + 3)
    minutes = _digits(matrix, end - 2, end) if end - begin > 3 else np.zeros_like(hours)
    np.logical_and(valid, (hours < 24) & (minutes < 60), out=valid)
    return (hours * 3600 + minutes * 60) * (-1 if matrix[begin, 0] == ord("-") else 1)


def _digits(matrix: Bytes, begin: int, end: int) -> Longs:
    value = np.zeros(matrix.shape[1], np.int32)
    for line in matrix[begin:end]:
        value = value * np.int32(10) + (line - np.uint8(48))
    return value.astype(np.int64)


def _cut(text: str, span: tuple[int, int]) -> str:
    return text[span[0] : span[1]]


@lru_cache(maxsize=1)
def _days_before() -> Longs:
    """Return the days since 1970 before each month, from the first year on, and one more."""
    months = np.arange((_FIRST_YEAR - 1970) * 12, (_LAST_YEAR + 1 - 1970) * 12 + 1)
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
