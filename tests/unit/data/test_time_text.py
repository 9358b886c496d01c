"""Text that holds times, read by a form."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dray.data.time_text import ISO, compile_form, read_times
from dray.errors import ConfigError


def read(texts: list[str | None], form: str) -> list[dt.datetime | None]:
    found: list[dt.datetime | None] = read_times(pa.array(texts, pa.string()), form).microseconds().to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2019-10-01", dt.datetime(2019, 10, 1)),
        ("2019-10-01T08:26", dt.datetime(2019, 10, 1, 8, 26)),
        ("2019-10-01 08:26:59", dt.datetime(2019, 10, 1, 8, 26, 59)),
        ("2019-10-01 08:26:59.5", dt.datetime(2019, 10, 1, 8, 26, 59, 500_000)),
        ("2019-10-01 08:26:59,123456", dt.datetime(2019, 10, 1, 8, 26, 59, 123_456)),
        ("2019-10-01 00:00:00 UTC", dt.datetime(2019, 10, 1)),
        ("2019-10-01T00:00:00Z", dt.datetime(2019, 10, 1)),
        ("2019-10-01T00:00:00+02:00", dt.datetime(2019, 9, 30, 22)),
        ("2019-10-01T00:00:00-0530", dt.datetime(2019, 10, 1, 5, 30)),
        ("2019-10-01T00:00:00+02", dt.datetime(2019, 9, 30, 22)),
        (" 2019-3-2 1:02 ", dt.datetime(2019, 3, 2, 1, 2)),
        ("1969-12-31 23:59:59", dt.datetime(1969, 12, 31, 23, 59, 59)),
        ("0001-01-01", dt.datetime(1, 1, 1)),
        ("9999-12-31 23:59:59", dt.datetime(9999, 12, 31, 23, 59, 59)),
        ("2020-02-29", dt.datetime(2020, 2, 29)),
    ],
)
def test_iso_is_read_in_all_its_ways_as_utc(text: str, time: dt.datetime) -> None:
    assert read([text], ISO) == [time]


@pytest.mark.parametrize(
    "text",
    [
        None, "", "abc", "2019-02-29", "1900-02-29", "2019-13-01", "2019-00-01", "2019-01-00", "2019-04-31",
        "2019-01-01 24:00", "2019-01-01 12:60", "2019-01-01 23:59:60", "2019-01-01 08:26 CET",
        "2019-01-01 08:26 Europe/Berlin", "2019-01-01 08:26+24:00", "19-01-01", "2019-01-01x", "٢٠١٩-٠١-٠١", "2019年",
        "20190101",
    ],
)  # fmt: skip
def test_what_is_no_time_of_the_form_is_missing(text: str | None) -> None:
    assert read(["2019-01-01", text], ISO) == [dt.datetime(2019, 1, 1), None]


@pytest.mark.parametrize(
    ("form", "text", "time"),
    [
        ("%d.%m.%Y %H:%M", "1.12.2010 08:26", dt.datetime(2010, 12, 1, 8, 26)),
        ("%d.%m.%Y %H:%M", "12.1.2010 18:26", dt.datetime(2010, 1, 12, 18, 26)),
        ("%d.%m.%Y[ %H:%M]", "12.1.2010", dt.datetime(2010, 1, 12)),
        ("%m/%d/%Y %I:%M %p", "7/11/2024 12:05 AM", dt.datetime(2024, 7, 11, 0, 5)),
        ("%m/%d/%Y %I:%M %p", "7/11/2024 12:05 pm", dt.datetime(2024, 7, 11, 12, 5)),
        ("%m/%d/%Y %I:%M %p", "7/11/2024 13:05 pm", None),
        ("%Y%m%d", "20241107", dt.datetime(2024, 11, 7)),
        ("%Y%m%d%H%M%S", "20241107082659", dt.datetime(2024, 11, 7, 8, 26, 59)),
        ("%d.%m.%y", "7.11.68", dt.datetime(2068, 11, 7)),
        ("%d.%m.%y", "7.11.69", dt.datetime(1969, 11, 7)),
        ("%d.%m.%Y", "7.11.24", None),
        ("%d/%b/%Y:%H:%M:%S %z", "17/May/2015:10:05:03 +0200", dt.datetime(2015, 5, 17, 8, 5, 3)),
        ("%d-%b-%Y", "17-MAI-2015", None),
        ("%Y-%m", "2015-05", dt.datetime(2015, 5, 1)),
        ("100%% %Y-%m-%d", "100% 2015-05-01", dt.datetime(2015, 5, 1)),
        ("seconds", "-1", dt.datetime(1969, 12, 31, 23, 59, 59)),
        ("milliseconds", "1569888000123", dt.datetime(2019, 10, 1, 0, 0, 0, 123_000)),
        ("nanoseconds", "1569888000123456000", dt.datetime(2019, 10, 1, 0, 0, 0, 123_456)),
        ("seconds", "1.5", dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)),
        ("seconds", "-1.25", dt.datetime(1969, 12, 31, 23, 59, 58, 750_000)),
        ("seconds", "1569888000.0", dt.datetime(2019, 10, 1)),
        ("seconds", "1569888000.123456", dt.datetime(2019, 10, 1, 0, 0, 0, 123_456)),
        ("seconds", "1569888000.1234567", None),
        ("nanoseconds", "1.569888e+18", dt.datetime(2019, 10, 1)),
        ("milliseconds", "1569888000123.5", dt.datetime(2019, 10, 1, 0, 0, 0, 123_500)),
        ("seconds", "1e99", None),
        ("seconds", "1.5.2", None),
        ("seconds", "nan", None),
        ("seconds", "253402300799", dt.datetime(9999, 12, 31, 23, 59, 59)),
        ("seconds", "253402300800", None),
        ("seconds", "1569888000123456000", None),
        ("milliseconds", "1569888000123456000", None),
        ("seconds", "-62135596800", dt.datetime(1, 1, 1)),
        ("seconds", "-1569888000123", None),
    ],
)
def test_a_form_reads_what_is_written_so(form: str, text: str, time: dt.datetime | None) -> None:
    assert read([text], form) == [time]


@pytest.mark.parametrize("form", ["", "%H:%M", "%Y-%m-%d %Y", "%Y-%m-%d %Q", "%Y-%m-%d[", "%Y-%m-%d]", "%Y-%m-%d %I"])
def test_a_form_that_is_none_is_refused(form: str) -> None:
    with pytest.raises(ConfigError, match="not the form of a time"):
        compile_form(form)


def test_many_texts_of_all_looks_are_read_as_python_reads_them() -> None:
    random = np.random.default_rng(0)
    moments = pa.array(random.integers(-(10**10), 10**11, 150_000), pa.timestamp("s"))
    for form, wanted in (("%d.%m.%Y %H:%M:%S", moments), ("%Y-%m-%dT%H:%M:%S", moments)):
        texts = pc.replace_substring_regex(pc.strftime(moments, form), "^0", "")
        texts = pc.if_else(pa.array(random.random(len(texts)) < 0.1), None, texts)
        kind = ISO if form.startswith("%Y") else "%d.%m.%Y %H:%M:%S"
        for stored in (texts, texts[77:], texts.dictionary_encode(), texts.cast(pa.large_string())):
            found = read_times(stored, kind)
            expected = pc.if_else(texts.is_valid(), wanted, None)[-len(stored) :]
            assert found.microseconds().cast(pa.timestamp("s")).equals(expected)


def test_texts_of_many_looks_are_read_although_most_are_none() -> None:
    texts = [f"x{'y' * (i % 7)} {i:x}" for i in range(3000)] + ["2.1.2019", "11.12.2019"]
    found = read(texts, "%d.%m.%Y")
    assert found[-2:] == [dt.datetime(2019, 1, 2), dt.datetime(2019, 12, 11)]
    assert not any(found[:-2])


def test_parts_of_a_second_that_a_timestamp_cannot_hold_are_not_cut_off() -> None:
    times = read_times(pa.array(["2019-01-01 00:00:00.123456789"]), ISO)
    assert times.nanos.tolist() == [123_456_789]
    assert times.microseconds().to_pylist() == [None]
