"""Columns of text files that hold times of a form that the user gives."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dray.data.open_source import open_source
from dray.data.read_options import parse_option
from dray.data.source import REJECTED, Reject
from dray.errors import ConfigError

ROWS = [("1.12.2010 08:26", 1), ("12.1.2011 18:26", 2), ("", 3), ("31.02.2011 10:00", 4), ("2011-01-01", 5)]
TIMES = [dt.datetime(2010, 12, 1, 8, 26), dt.datetime(2011, 1, 12, 18, 26), None]
FORM = {"t": "timestamp(%d.%m.%Y %H:%M)"}


def write(path: Path, rows: list[tuple[Any, Any]]) -> str:
    if path.suffix == ".csv":
        path.write_text("t,n\n" + "".join(f"{t},{n}\n" for t, n in rows))
    else:
        path.write_text("".join(json.dumps({"t": t, "n": n}) + "\n" for t, n in rows))
    return str(path)


def read(path: str, types: dict[str, str], *, in_place: bool = False) -> tuple[pa.Table, list[Reject]]:
    source = open_source([path], types=types)
    rejects: list[Reject] = []
    pieces = source.pieces()
    batches = [batch for piece in pieces for batch in source.read(piece, None, rejects.append, in_place=in_place)]
    return pa.Table.from_batches(batches), rejects


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_form_makes_text_times_and_a_value_that_does_not_fit_rejects_its_row(tmp_path: Path, name: str) -> None:
    table, rejects = read(write(tmp_path / name, ROWS), FORM)
    assert table["t"].type == pa.timestamp("us")
    assert table["t"].to_pylist() == TIMES
    assert table["n"].to_pylist() == [1, 2, 3]
    assert [reject.line for reject in rejects] == ([5, 6] if name == "a.csv" else [4, 5])
    assert rejects[0].reason == "column \"t\": '31.02.2011 10:00' is not a time of the form %d.%m.%Y %H:%M"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_row_with_a_time_that_does_not_fit_keeps_its_place_on_request(tmp_path: Path, name: str) -> None:
    table, _ = read(write(tmp_path / name, ROWS), FORM, in_place=True)
    assert table["n"].to_pylist() == [1, 2, 3, None, None]
    assert table[REJECTED].to_pylist() == [False, False, False, True, True]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_whole_numbers_since_1970_are_times_where_their_unit_is_given(tmp_path: Path, name: str) -> None:
    rows = [(1_569_888_000_123, 1), (-1, 2)]
    table, rejects = read(write(tmp_path / name, rows), {"t": "timestamp(milliseconds)"})
    assert not rejects
    assert table["t"].type == pa.timestamp("us", "UTC")
    assert table["t"].cast(pa.int64()).to_pylist() == [1_569_888_000_123_000, -1000]


def test_times_with_utc_behind_them_are_read_with_the_word_iso(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [("2019-10-01 00:00:00 UTC", 1), ("2019-10-01T02:00:00+02:00", 2)])
    table, _ = read(path, {"t": "timestamp(iso)"})
    assert table["t"].to_pylist() == [dt.datetime(2019, 10, 1, tzinfo=dt.UTC)] * 2


def test_missing_words_of_csv_are_missing_times(tmp_path: Path) -> None:
    table, rejects = read(write(tmp_path / "a.csv", [("NA", 1), ("1.12.2010 08:26", 2)]), FORM)
    assert not rejects
    assert table["t"].to_pylist() == [None, TIMES[0]]


def test_times_stand_beside_miscounted_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,n\n1.12.2010 08:26,1\nx\nbad,2\n12.1.2011 18:26,3\n")
    table, rejects = read(str(path), FORM)
    assert table["n"].to_pylist() == [1, 3]
    assert [(reject.line, reject.text) for reject in rejects] == [(3, "x"), (4, "bad,2")]


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("timestamp(%d.%Q.%Y)", '"%Q" is not one of its parts'),
        ("timestamp(%d.%m)", "no year and month"),
        ("timestamp(%d.%m.%Y[ %H)", "bracket"),
        ("timestamp(%d.%m.%Y %I:%M)", "belong together"),
    ],
)
def test_a_form_that_is_none_is_refused_with_the_reason(tmp_path: Path, form: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(write(tmp_path / "a.csv", ROWS), {"t": form})


@pytest.mark.parametrize(
    "typed",
    [
        '{t: "timestamp(%d.%m.%Y %H:%M)", zip: string}',
        "{t: timestamp(%d.%m.%Y %H:%M), zip: string}",
        "t:timestamp(%d.%m.%Y %H:%M),zip:string",
    ],
)
def test_a_form_can_be_typed_on_the_command_line(typed: str) -> None:
    assert parse_option("types", typed) == {"t": "timestamp(%d.%m.%Y %H:%M)", "zip": "string"}
