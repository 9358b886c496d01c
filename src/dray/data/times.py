"""Columns of times: which form texts and numbers have, times of any type, and the parts that trees can use. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.time_text import ISO, PER_SECOND, Bools, Times, read_numbers, read_times

Part = Literal["year", "month", "weekday", "hour", "days"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Of a time, in UTC: weekday is 0 on Mondays, days are counted from 1970-01-01."""

FITS_SHARE = 0.95
"""A column holds times if so many of its different texts are times of one form; the others are missing."""
_CLOCK = "[ %H:%M[:%S[.%f]][ ][%z]]"
_CLOCK_12 = " %I:%M[:%S][ ]%p"
_DAY_OR_MONTH_FIRST = [
    (f"%d{mark}%m{mark}%Y{clock}", f"%m{mark}%d{mark}%Y{clock}") for mark in "./-" for clock in (_CLOCK, _CLOCK_12)
]
_FORMS = (
    ISO,
    *(form for pair in _DAY_OR_MONTH_FIRST for form in pair),
    *(f"%Y{mark}%m{mark}%d{_CLOCK}" for mark in "/."),
    *(f"%d{mark}%b{mark}%Y{_CLOCK}" for mark in "- /"),
    f"%b %d, %Y{_CLOCK}",
    f"%b %d, %Y{_CLOCK_12}",
    "%d/%b/%Y:%H:%M:%S[ ][%z]",
)
DATES = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""Times written as one number, by their digits."""
_OF_DIGITS = re.compile("(%[YymdHMS])+")
_FIRST, _AFTER = (int(np.datetime64(year, "s").astype(np.int64)) for year in ("1970", "2100"))
_FEW = 200
_WHOLE = "^-?[0-9]{9,19}$"


@dataclass(frozen=True, slots=True)
class Look:
    """How the values of a column are written, if they are times."""

    form: str = ""
    """The one form that fits."""
    others: tuple[str, ...] = ()
    """Without one: the forms that fit all values, or of which each fits some."""
    problem: Literal["", "ambiguous", "mixed"] = ""
    examples: tuple[str, ...] = ()
    """A value; of mixed forms one of each."""
    timed: bool = False
    """Whether any has a time of day."""

    @property
    def suggested(self) -> str:
        """The form to ask for, without what may be left out and is."""
        return plain(self.others[0], self.examples[0]) if self.others else self.form


def recognise(texts: pa.Array) -> Look:
    """Return the form of texts, decided by all of them; no form for texts that are no times."""
    distinct = pc.utf8_trim_whitespace(pc.unique(texts).cast(pa.string())).drop_null()
    distinct = distinct.filter(pc.not_equal(distinct, ""))
    if not len(distinct):
        return Look()
    few = distinct.take(pa.array(np.unique(np.linspace(0, len(distinct) - 1, _FEW).astype(np.int64))))
    possible = [form for form in _FORMS if read_times(few, form).valid.any()]
    found = {form: read_times(distinct, form) for form in possible}
    found = dict(sorted(found.items(), key=lambda item: -int(item[1].valid.sum())))  # stable: ties as in _FORMS
    fits = {form: times.valid for form, times in found.items()}
    if not fits or np.mean(np.logical_or.reduce(list(fits.values()))) < FITS_SHARE:
        return Look()
    return _decided(distinct, found, fits)


def _decided(distinct: pa.Array, found: dict[str, Times], fits: dict[str, Bools]) -> Look:
    best = next(iter(fits))
    example = distinct[int(np.argmax(fits[best]))].as_py()
    rest = ~fits[best]
    beside = [form for form, fit in fits.items() if (fit & rest).any()]
    if beside:
        other = distinct[int(np.argmax(fits[beside[0]] & rest))].as_py()
        return Look(others=(best, beside[0]), problem="mixed", examples=(example, other))
    same = [form for form, fit in fits.items() if bool((fit == fits[best]).all())]
    if len(same) > 1 and not best.startswith("%d.%m."):  # with dots the day is first everywhere
        return Look(others=(same[0], same[1]), problem="ambiguous", examples=(example,))
    times = found[best]
    timed = bool((times.valid & (times.seconds % 86_400 != 0)).any())
    return Look(best, examples=(example,), timed=timed)


def recognise_numbers(values: pa.Array) -> str:
    """Return how numbers are times: dates by their digits, such as 20240131, else what they count since 1970, by size.

    For texts of whole numbers too; no form if they are none.
    """
    texts = whole_texts(values)
    if form := _dates_in(texts):
        return form
    if not _is_number(values.type):
        texts = texts.filter(pc.not_equal(texts, ""))
        if not len(texts) or not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
            return ""
        values = texts.cast(pa.float64())
    sizes = np.abs(values.cast(pa.float64(), safe=False).drop_null().to_numpy(zero_copy_only=False))
    sizes = sizes[np.isfinite(sizes)]
    size = float(np.median(sizes)) if len(sizes) else 0.0
    # Seconds of the years until 5138; each next unit begins where the one before would be 1,000 years later still.
    return next((form for form, end in zip(PER_SECOND, (1e11, 1e14, 1e17), strict=False) if size < end), "nanoseconds")


def _dates_in(texts: pa.Array) -> str:
    """Return the form of dates that are written as one number; 0 and negative numbers say nothing."""
    distinct = pc.unique(texts)
    distinct = distinct.filter(pc.invert(pc.match_substring_regex(distinct, "^(0*|-.*)$")))
    for form in DATES.values() if len(distinct) else ():
        times = read_times(distinct, form)
        if np.mean(times.valid & (times.seconds >= _FIRST) & (times.seconds < _AFTER)) >= FITS_SHARE:
            return form
    return ""


def whole_texts(values: pa.Array) -> pa.Array:
    """Return the values as text, without missing ones: of numbers the whole ones, as people write them."""
    texts = _digits(values) if _is_number(values.type) else pc.utf8_trim_whitespace(values.cast(pa.string()))
    return texts.drop_null()


def is_of_digits(form: str) -> bool:
    """Whether a form is that of times written as one number."""
    return _OF_DIGITS.fullmatch(form) is not None


def plain(form: str, example: str) -> str:
    """Return a form without the brackets that an example does not need, to be shown and asked for."""
    for shorter in _without_brackets(form):
        if read_times(pa.array([example]), shorter).valid[0]:
            return shorter
    return form


def _without_brackets(form: str) -> Sequence[str]:
    """Return the form with what is in brackets and without it, the shortest first."""
    end = form.find("]")
    if end < 0:
        return [form]
    begin = form.rfind("[", 0, end)
    before, inner, after = form[:begin], form[begin + 1 : end], form[end + 1 :]
    return sorted({*_without_brackets(before + after), *_without_brackets(before + inner + after)}, key=len)


def times_of(values: pa.Array, form: str) -> Times:
    """Return times of any type: timestamps, dates, text of this form, numbers if the form is of numbers."""
    if pt.is_dictionary(values.type) and not _is_text(values.type.value_type):
        values = values.dictionary_decode()
    arrow = values.type
    if pt.is_timestamp(arrow):
        return read_numbers(values.cast(pa.int64()), _UNITS[arrow.unit])
    if pt.is_date(arrow):
        days = values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return read_numbers(pc.multiply(days, 86_400), "seconds")
    if form in PER_SECOND and not (_is_text(arrow) or pt.is_dictionary(arrow)):  # a dictionary is of texts here
        return read_numbers(values, form)
    if not pt.is_dictionary(arrow):
        values = _digits(values) if _is_number(arrow) else values.cast(pa.string())
    return read_times(values, form or ISO)


def has_text(values: pa.Array) -> Bools:
    """Whether there is a value: not null, and not an empty text."""
    if pt.is_dictionary(values.type):
        rows = pc.fill_null(values.indices.cast(pa.int64()), len(values.dictionary)).to_numpy(zero_copy_only=False)
        return np.asarray(np.append(has_text(values.dictionary), False)[rows], np.bool_)
    there = values.is_valid()
    if _is_text(values.type):
        there = pc.and_(there, pc.fill_null(pc.match_substring_regex(values, r"\S"), False))
    return np.asarray(there, np.bool_)


_UNITS = dict(zip(("s", "ms", "us", "ns"), PER_SECOND, strict=True))


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pt.is_string(arrow) or pt.is_large_string(arrow) or pt.is_string_view(arrow))


def _is_number(arrow: pa.DataType) -> bool:
    return bool(pt.is_integer(arrow) or pt.is_floating(arrow) or pt.is_decimal(arrow))


def _digits(numbers: pa.Array) -> pa.Array:
    """Return whole numbers as text, null for others. pandas makes floats of integers with gaps."""
    if not pt.is_integer(numbers.type):
        floats = numbers.cast(pa.float64(), safe=False)
        whole = pc.and_(pc.equal(pc.floor(floats), floats), pc.less(pc.abs(floats), 2.0**53))
        numbers = pc.if_else(whole, floats, None).cast(pa.int64())
    return numbers.cast(pa.string())


def part_of(times: Times, part: Part) -> npt.NDArray[np.float32]:
    """Return a part of each time; NaN where there is no time."""
    days, second = np.divmod(times.seconds, 86_400)
    if part == "hour":
        numbers = second // 3600
    elif part == "weekday":
        numbers = (days + 3) % 7
    elif part == "days":
        numbers = days
    else:
        months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        numbers = months // 12 + 1970 if part == "year" else months % 12 + 1
    found: npt.NDArray[np.float32] = np.where(times.valid, numbers, np.nan).astype(np.float32)
    return found
