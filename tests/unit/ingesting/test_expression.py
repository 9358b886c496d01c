"""The filter's language: what it means, what it refuses and in which words."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from dray.errors import ConfigError, DataError
from dray.ingesting.expression import columns_of, compile_filter

ROWS = pa.RecordBatch.from_pydict(
    {
        "x": pa.array([1, 2, None, 4], pa.int32()),
        "y": pa.array([0.5, None, 2.5, 4.0]),
        "s": pa.array(["a", "b", None, "it's"]),
        "c": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "ok": pa.array([True, False, None, True]),
        "day": pa.array([date(2026, 1, 1), date(2026, 2, 1), None, date(2026, 3, 1)]),
        "at": pa.array([datetime(2026, 1, 1, hour) for hour in range(4)], pa.timestamp("ms")),
        "utc": pa.array([datetime(2026, 1, 1, hour) for hour in range(4)], pa.timestamp("us", "UTC")),
        "odd name": pa.array([1, 2, 3, 4]),
        "class": pa.array([1, 2, 3, 4], pa.uint8()),
        "items": pa.array([[1], [], None, [2]]),
        "exact": pa.array([Decimal("1.5"), Decimal("2"), None, Decimal("3")]),
        "fine": pa.array([1, 2, None, 1_767_225_600_000_000_000], pa.timestamp("ns")),
    }
)


def kept(text: str) -> list[int]:
    mask = compile_filter(text, ROWS.schema).mask(ROWS)
    return [row for row, value in enumerate(mask.to_pylist()) if value]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("x > 1", [1, 3]),
        ("x != 1", [1, 3]),
        ("1 < x <= 4", [1, 3]),
        ("x >= 1.5", [1, 3]),
        ("x == -1", []),
        ("x > y", [0]),
        ("x * 2 + 1 == 9", [3]),
        ("x / 2 == 0.5", [0]),
        ("-x < -1", [1, 3]),
        ("(x - y) > 0.4", [0]),
        ('s == "a"', [0]),
        ('s >= "b"', [1, 3]),
        ('s == "it\'s"', [3]),
        ('c == "a"', [0, 3]),
        ('c in ("b", "z")', [1]),
        ("x in (1, 4)", [0, 3]),
        ("x in [1, 2.5]", [0]),
        ("y in {4, 2.5}", [2, 3]),
        ("x not in (1, 9)", [1, 3]),
        ("x is None", [2]),
        ("x is not None and y is not None", [0, 3]),
        ("not x > 1", [0]),
        ("x > 3 or y > 2", [2, 3]),
        ("ok", [0, 3]),
        ("not ok", [1]),
        ("ok == True", [0, 3]),
        ("items is None", [2]),
        ('day >= "2026-02-01"', [1, 3]),
        ('"2026-01-01" < day < "2026-03-01"', [1]),
        ('day in ("2026-01-01", "2026-03-01")', [0, 3]),
        ('at < "2026-01-01 02:00"', [0, 1]),
        ('at > "2026-01-01T02:30:00.5"', [3]),
        ('utc >= "2026-01-01T04:00:00+02:00"', [2, 3]),
        ('utc < "2026-01-01 01:00"', [0]),
        ('at in ("2026-01-01 01:00",)', [1]),
        ("at <= day", [0, 1, 3]),
        ('col("odd name") == 3', [2]),
        ('col("class") > 2', [2, 3]),
        ('col("class") in (1, 300)', [0]),
        (" x > 1\n", [1, 3]),
        ("exact in (2, 3.0)", [1, 3]),
        ("exact < 1.75", [0]),
        ('fine in ("2026-01-01", "2027-01-01")', [3]),
        ('fine not in ("2026-01-01",)', [0, 1]),
    ],
)
def test_what_a_filter_keeps(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


def test_the_columns_of_a_filter_are_known_without_a_schema() -> None:
    assert columns_of('a > 1 and (col("odd name") in (1, 2) or not b) and a < c * 2') == ("a", "odd name", "b", "c")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x >", "is not an expression"),
        ("x = 1", "is not an expression"),
        ("class > 1", "is not an expression"),
        ("x; y", "is not an expression"),
        ("", "is not an expression"),
        ("__import__('os')", "which a filter cannot hold"),
        ("x.real > 1", "'x.real', which a filter cannot hold"),
        ("[i for i in x]", "which a filter cannot hold"),
        ("x if ok else y", "which a filter cannot hold"),
        ("lambda: x", "which a filter cannot hold"),
        ("x ** 2 > 1", r"'x \*\* 2', which a filter cannot hold"),
        ("x is y", "'x is y', which a filter cannot hold"),
        ('f"{x}" == s', "which a filter cannot hold"),
        ("x == None", "compares with None"),
        ("x", "is a number, not a condition"),
        ("x and ok", r'needs true or false where it has column "x" \(int32\)'),
        ("s + 1 > 2", r'needs a number where it has column "s" \(string\)'),
        ('x > "5"', r'compares column "x" \(int32\) with \'5\' \(text\)'),
        ("s == 5", r'compares column "s" \(string\) with 5 \(a number\)'),
        ("ok == 1", "with 1"),
        ("items == 1", "compares"),
        ("items == items", "compares"),
        ("day > 5", "compares"),
        ('day > "soon"', '"soon" is compared with column "day"'),
        ('day > "2026-01-01 12:00"', "has a time of day"),
        ('at > "2026-01-01T00:00:00Z"', "has a time zone"),
        ("x in 5", "has 'x in 5'"),
        ("x in ()", r"has 'x in \(\)'"),
        ("x in (y, 1)", "has 'x in"),
        ("1 < 2", "names no column"),
        (f"x > {2**70}", "too large"),
    ],
)
def test_what_a_filter_cannot_be_and_why(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        compile_filter(text, ROWS.schema)
    assert raised.value.fix


def test_an_unknown_column_is_told_with_the_nearest_one() -> None:
    with pytest.raises(DataError, match=r'no column "od_name"') as raised:
        compile_filter("od_name > 1", ROWS.schema)
    assert 'Did you mean "odd name"?' in raised.value.what


def test_a_text_without_quotes_is_taken_for_a_column_and_told() -> None:
    with pytest.raises(DataError, match='no column "abc"') as raised:
        compile_filter("s == abc", ROWS.schema)
    assert "Write text in quotes" in raised.value.fix
