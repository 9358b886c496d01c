"""Which form times have, and what becomes of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.time_text import PER_SECOND
from dray.data.times import PARTS, part_of, recognise, recognise_numbers, times_of


@pytest.mark.parametrize(
    ("texts", "shortest"),
    [
        (["2019-10-01 00:00:00 UTC", "2019-10-01"], "iso"),
        (["2019-10-01T02:00:00+02:00"], "iso"),
        (["1.12.2010 08:26", "2.12.2010 8:26"], "%d.%m.%Y"),
        (["01.12.2010"], "%d.%m.%Y"),
        (["07/11/2024", "25/11/2024"], "%d/%m/%Y"),
        (["07/11/2024", "11/25/2024"], "%m/%d/%Y"),
        (["7/25/2024 8:26 AM"], "%m/%d/%Y %I:%M"),
        (["2024/11/07"], "%Y/%m/%d"),
        (["17/May/2015:10:05:03 +0000"], "%d/%b/%Y:%H:%M:%S"),
        (["May 17, 2015"], "%b %d, %Y"),
        (["2019-10-01"] * 3 + [None, "", " "], "iso"),
        ([f"2019-10-{day:02}" for day in range(1, 31)] + ["unknown"], "iso"),
    ],
)
def test_the_form_of_texts_is_found(texts: list[str | None], shortest: str) -> None:
    look = recognise(pa.array(texts))
    assert not look.problem
    assert look.form.startswith(shortest)


@pytest.mark.parametrize(
    "texts",
    [["abc"], ["20241107"], ["1569888000"], ["12.5"], ["1.2.3"], ["10:30"], [None, ""], ["2019-10-01", "unknown"]],
)
def test_other_texts_are_no_times(texts: list[str | None]) -> None:
    assert recognise(pa.array(texts, pa.string())) == recognise(pa.array([], pa.string()))


def test_day_and_month_are_not_guessed() -> None:
    look = recognise(pa.array(["07/11/2024", "01/02/2024"]))
    assert (look.form, look.problem, look.suggested) == ("", "ambiguous", "%d/%m/%Y")
    assert [form[:8] for form in look.others] == ["%d/%m/%Y", "%m/%d/%Y"]


@pytest.mark.parametrize("texts", [["2019-10-01", "1.12.2010"], ["25/11/2024", "11/25/2024"]])
def test_two_forms_in_a_column_are_told_with_one_of_each(texts: list[str]) -> None:
    look = recognise(pa.array(texts))
    assert (look.form, look.problem) == ("", "mixed")
    assert sorted(look.examples) == sorted(texts)


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([1_569_888_000], "seconds"),
        ([99_999_999_999], "seconds"),
        ([100_000_000_000] * 3, "milliseconds"),
        ([99_999_999_999_999] * 3, "milliseconds"),
        ([100_000_000_000_000], "microseconds"),
        ([99_999_999_999_999_000], "microseconds"),
        ([100_000_000_000_000_000], "nanoseconds"),
        ([1_569_888_000_000, 0], "milliseconds"),
        ([1.5e12, None], "milliseconds"),
        ([1_569_888_000_000_000], "microseconds"),
        ([1_569_888_000_000_000_000], "nanoseconds"),
        ([17, 18], "seconds"),
        (["1569888000000"], "milliseconds"),
        (["1569888000000", "x"], ""),
        ([], "seconds"),
        ([2019, 2020], "seconds"),
        ([20_240_132, 20_240_133], "seconds"),
    ],
)
def test_numbers_are_told_apart_by_their_size(values: list[Any], form: str) -> None:
    values = [values[0]] * 2 + values if form == "milliseconds" and len(values) > 1 else values
    assert recognise_numbers(pa.array(values, None if values else pa.int64())) == form


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ([20_240_101, 20_240_229, None, 0], "%Y%m%d"),
        ([20_240_101.0, float("nan")], "%Y%m%d"),
        ([Decimal(20_240_101)], "%Y%m%d"),
        (["20240101", "", " 20240229 ", None], "%Y%m%d"),
        ([202_401, 202_312], "%Y%m"),
        ([2_024_010_123, 2_024_123_100], "%Y%m%d%H"),
        ([202_401_011_230], "%Y%m%d%H%M"),
        ([20_240_101_123_059], "%Y%m%d%H%M%S"),
        (["20240101", "abc"], ""),
    ],
)
def test_dates_that_are_written_as_one_number_are_told_by_their_digits(values: list[Any], form: str) -> None:
    assert recognise_numbers(pa.array(values)) == form


@given(st.integers(1970, 2060), st.sampled_from([1, 1_000, 1_000_000, 1_000_000_000]), st.integers(1, 86_400 * 300))
def test_numbers_that_count_from_1970_are_never_taken_for_dates(year: int, per_second: int, span: int) -> None:
    first = int(dt.datetime(year, 1, 2, tzinfo=dt.UTC).timestamp())
    values = [(first + span * part // 50) * per_second for part in range(51)]
    assert recognise_numbers(pa.array(values)) in PER_SECOND


def test_a_form_of_digits_reads_numbers_of_any_type() -> None:
    numbers = pa.array([20_240_229, 20_240_230, None])
    for type_ in (pa.int64(), pa.uint32(), pa.float64(), pa.decimal128(19, 0)):
        times = times_of(numbers.cast(type_), "%Y%m%d")
        assert times.valid.tolist() == [True, False, False]
        assert times.seconds[0] == dt.datetime(2024, 2, 29, tzinfo=dt.UTC).timestamp()


def test_texts_of_whole_numbers_are_times_with_blanks_around_them_and_gaps() -> None:
    texts = pa.array(["1551398400", " 1551398401 ", "", None])
    assert recognise_numbers(texts) == recognise_numbers(texts.dictionary_encode()) == "seconds"


def test_texts_of_whole_numbers_are_the_same_times_in_a_dictionary() -> None:
    texts = pa.array(["1551398400123", None, "soon"])
    for values in (texts, texts.dictionary_encode()):
        times = times_of(values, "milliseconds")
        assert times.valid.tolist() == [True, False, False]
        assert times.float_seconds()[0] == 1551398400.123


MOMENT = dt.datetime(2019, 3, 23, 20, 21, 9)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([MOMENT, None], pa.timestamp("us")),
        pa.array([MOMENT, None], pa.timestamp("ns", "UTC")),
        pa.array([MOMENT, None], pa.timestamp("s", "Europe/Berlin")),
        pa.array(["2019-03-23 20:21:09", "x"]),
        pa.array(["2019-03-23 21:21:09+01:00", None]).dictionary_encode(),
        pa.array([MOMENT, None], pa.timestamp("us")).dictionary_encode(),
    ],
)
def test_the_parts_of_a_moment_are_the_same_whatever_it_is_stored_as(values: pa.Array) -> None:
    times = times_of(values, "iso")
    parts = {part: part_of(times, part) for part in PARTS}
    assert {part: numbers[0] for part, numbers in parts.items()} == {
        "year": 2019, "month": 3, "weekday": 5, "hour": 20, "days": 17_978,
    }  # fmt: skip
    assert all(np.isnan(numbers[1]) for numbers in parts.values())


def test_parts_of_dates_before_1970() -> None:
    times = times_of(pa.array([dt.date(1969, 12, 31)]), "")
    assert [part_of(times, part)[0] for part in PARTS] == [1969, 12, 2, 0, -1]
