"""Values of any type as a column of a known kind holds them: what does not fit becomes missing. Pure.

| the kind           | takes                                                                                     |
|--------------------|-------------------------------------------------------------------------------------------|
| number             | numbers, booleans, text that is a number, true or false                                   |
| boolean            | the same, and text that is yes, no, t or f                                                |
| date               | dates, timestamps (the day in their zone), text that is either                            |
| timestamp          | timestamps, dates (midnight), text that is either; with a zone or an offset as UTC        |
| seconds            | times of day, durations, text that is a time of day                                       |
| category           | all that has a text: numbers, text, dates                                                 |

A column of nulls fits all. The words for a missing value in CSV (`NULLS`) are missing here too, in numbers and times.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.sources.csv_format import NULLS
from dray.data.sources.csv_separators import Separators
from dray.data.sources.time_forms import type_of_form
from dray.data.times import times_of

_BLANKS = " \t"
_NUMBER = r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^-?(inf|Inf|INF|infinity|Infinity)$"
_WHOLE = r"^-?[0-9]+$"
_CODE = r"^[ \t]*[+-]?0[0-9]"
"""A whole number whose value would change its text: 007 may be another id than 7."""
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)
_ZONE = r":(.*)(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_CLOCK = r"^[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?$"
_WRITTEN_OTHERWISE = "a number with other separators"
_TRUE, _FALSE = ("true", "t", "yes"), ("false", "f", "no")
_EXACT_BELOW = 2.0**53
_MICROSECONDS = pa.timestamp("us")


def as_kind(values: pa.Array, kind: str) -> tuple[pa.Array, int]:
    """Return values of a type that has this kind, and how many were lost: they are missing, and were not before."""
    if pt.is_dictionary(values.type):
        if kind == "category":
            return values, 0
        values = values.dictionary_decode()
    found = _KINDS[kind](values)
    return found, _lost(values, found)


def as_type(values: pa.Array, type_: pa.DataType) -> tuple[pa.Array, int]:
    """Return text as values of a type that was guessed for it, and how many were lost."""
    if not _is_text(values.type) or _is_text(type_):
        return values, 0
    found = _of_type(values, type_)
    return found, _lost(values, found)


def as_time(texts: pa.Array, form: str) -> tuple[pa.Array, int]:
    """Return texts as times of a form, and how many were lost."""
    found = times_of(texts, form).microseconds().cast(type_of_form(form))
    return found, _lost(texts, found)


def whole_numbers(texts: pa.Array) -> tuple[pa.Array, int]:
    """Return texts as whole numbers, 7.0 as 7, and how many were lost."""
    found = _read(pc.replace_substring_regex(texts, r"\.0+$", ""), pa.int64(), _WHOLE)
    return found, _lost(texts, found)


def without_fraction(texts: pa.Array) -> pa.Array:
    """Return texts with the whole numbers among them as such: 7.0 as 7."""
    return pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0+$", r"\1")


def with_point(texts: pa.Array, separators: Separators) -> pa.Array:
    """Return texts with the numbers among them as Arrow reads numbers: 1.234,5 as 1234.5.

    A number that is written in another way is not one, as in training: with thousands=. 2.5 is neither 25 nor 2.5.
    """
    unsigned = pc.replace_substring_regex(pc.ascii_trim(texts, _BLANKS), r"^\+", "")
    is_number = pc.match_substring_regex(unsigned, _NUMBER)
    return pc.coalesce(separators.rewritten(unsigned), pc.if_else(is_number, _WRITTEN_OTHERWISE, texts))


def means_missing(values: pa.Array) -> pa.Array:
    """Say which texts are words for a missing value, such as NA."""
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    return pc.is_in(pc.ascii_trim(values.cast(pa.string()), _BLANKS), pa.array(NULLS, pa.string()))


def may_be_read_as_text(type_: pa.DataType) -> bool:
    """Whether `as_type` makes values of this type from their text."""
    plain = pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_) or pt.is_boolean(type_)
    return plain or _is_text(type_) or pt.is_null(type_) or (pt.is_temporal(type_) and not pt.is_duration(type_))


def _lost(before: pa.Array, after: pa.Array) -> int:
    """Count the values that are null after and were something before."""
    if before is after or after.null_count == before.null_count:
        return 0
    gone = pc.and_(pc.is_valid(before), pc.is_null(after))
    if _is_text(before.type):
        gone = pc.and_(gone, pc.invert(means_missing(before)))
    elif pt.is_floating(before.type):
        gone = pc.and_(gone, pc.invert(pc.is_nan(before)))
    return int(pc.sum(gone).as_py() or 0)


def _number(values: pa.Array, true: tuple[str, ...] = _TRUE[:1], false: tuple[str, ...] = _FALSE[:1]) -> pa.Array:
    type_ = values.type
    if pt.is_floating(type_) or pt.is_integer(type_) or pt.is_decimal(type_) or pt.is_boolean(type_):
        return values
    if not _is_text(type_):
        return _nothing(values)
    texts = values.cast(pa.string())
    found = _exact(_read(texts, pa.float64(), _NUMBER), texts)
    if found.null_count == texts.null_count:
        return found
    words = pc.utf8_lower(pc.ascii_trim(texts, _BLANKS))
    named = pc.case_when(
        pc.make_struct(pc.is_in(words, pa.array(true)), pc.is_in(words, pa.array(false))),
        pa.scalar(1.0),
        pa.scalar(0.0),
    )
    return pc.coalesce(found, named)


def _exact(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    """Return the numbers; a whole one beyond 2^53 is rounded once to float32, as an integer is, and not twice."""
    large = pc.fill_null(pc.greater_equal(pc.abs(numbers), _EXACT_BELOW), False)
    if not pc.any(large).as_py():
        return numbers
    large_texts = pc.if_else(large, texts, None)
    whole = [
        _read(large_texts, type_, _WHOLE).cast(pa.float32(), safe=False).cast(pa.float64())
        for type_ in (pa.int64(), pa.uint64())
    ]
    return pc.coalesce(*whole, numbers)


def _boolean(values: pa.Array) -> pa.Array:
    return _number(values, _TRUE, _FALSE)


def _date(values: pa.Array) -> pa.Array:
    if pt.is_date(values.type):
        return values
    if pt.is_timestamp(values.type):
        return pc.floor_temporal(values, unit="day").cast(pa.date32(), safe=False)
    if not _is_text(values.type):
        return _nothing(values)
    texts = values.cast(pa.string())
    found = _read(texts, pa.date32(), _DATE)
    if found.null_count == texts.null_count:
        return found
    local = pc.replace_substring_regex(pc.ascii_trim(texts, _BLANKS), _ZONE, r":\1")  # the day in its zone
    return pc.coalesce(found, _date(_moments(local)))


def _timestamp(values: pa.Array) -> pa.Array:
    if pt.is_timestamp(values.type):
        return values
    if pt.is_date(values.type):
        return values.cast(_MICROSECONDS)
    return _moments(values.cast(pa.string())) if _is_text(values.type) else _nothing(values)


def _moments(texts: pa.Array) -> pa.Array:
    """Return texts as moments in UTC."""
    try:
        return texts.cast(_MICROSECONDS)
    except pa.ArrowInvalid:
        texts = pc.replace_substring_regex(pc.ascii_trim(texts, _BLANKS), r"(\.[0-9]{6})[0-9]+", r"\1")
    texts = pc.replace_substring_regex(texts, r"(:[0-9.]+) ?(UTC|GMT)$", r"\1Z")
    zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONE), False)
    plain = _read(pc.if_else(zoned, None, texts), _MICROSECONDS, _MOMENT)
    with_zone = _read(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"), _MOMENT)
    return pc.coalesce(plain, with_zone.cast(_MICROSECONDS))


def _seconds(values: pa.Array) -> pa.Array:
    if pt.is_time(values.type) or pt.is_duration(values.type):
        return values
    return _clock(values.cast(pa.string())) if _is_text(values.type) else _nothing(values)


def _clock(texts: pa.Array) -> pa.Array:
    """Return texts as times of day: those of the first day there is, since Arrow casts no text to a time."""
    texts = pc.ascii_trim(texts, _BLANKS)
    texts = pc.if_else(pc.match_substring_regex(texts, _CLOCK), texts, None)
    return _moments(pc.binary_join_element_wise("1970-01-01", texts, " ")).cast(pa.time64("us"), safe=False)


def _category(values: pa.Array) -> pa.Array:
    type_ = values.type
    if pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_) or pt.is_binary_view(type_):
        try:
            return values.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return _nothing(values)
    return _nothing(values) if pt.is_nested(type_) else values


_KINDS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "number": _number,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "seconds": _seconds,
    "category": _category,
}


def _of_type(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    texts = texts.cast(pa.string())
    if pt.is_boolean(type_):
        return _boolean(texts).cast(type_)
    if pt.is_date(type_):
        return _date(texts).cast(type_)
    if pt.is_timestamp(type_):
        found = _moments(texts)
        return (found if type_.tz is None else pc.assume_timezone(found, "UTC")).cast(type_, safe=False)
    if pt.is_time(type_):
        return _clock(texts).cast(type_, safe=False)
    if pt.is_integer(type_):
        return _read(pc.if_else(pc.match_substring_regex(texts, _CODE), None, texts), type_, _WHOLE)
    return _read(texts, type_, _NUMBER)


def _read(texts: pa.Array, type_: pa.DataType, form: str) -> pa.Array:
    """Return the texts of a form as values; what cannot be read is null."""
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        texts = pc.replace_substring_regex(pc.ascii_trim(texts, _BLANKS), r"^\+", "")
    texts = pc.if_else(pc.match_substring_regex(texts, form), texts, None)
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:  # of the right form, but no value: 30 February
        encoded = texts.dictionary_encode()
        return _castable(encoded.dictionary, type_).take(encoded.indices)


def _castable(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast texts one by one where they cannot be cast together."""
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, type_)
        half = len(texts) // 2
        return pa.concat_arrays([_castable(texts[:half], type_), _castable(texts[half:], type_)])


def _nothing(values: pa.Array) -> pa.Array:
    return pa.nulls(len(values))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))
