"""The empty cell is missing, quoted or not, in a column of any type, wherever it lies; what `nulls` adds to it."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read_all, rows

from dray.data.open_source import open_source

VALUES = {
    "i": "7",
    "f": "1.5",
    "d": "2024-01-05",
    "t": "2024-01-05 10:00:00",
    "b": "true",
    "s": "text",
    "u": str(2**63),
    "e": str(2**64),
}
TYPES = ["int64", "double", "date32[day]", "timestamp[us]", "bool", "string", "uint64", "decimal128(38, 0)"]


def write(path: Path, records: list[list[str]], quoting: Any = csv.QUOTE_ALL) -> str:
    stream = io.StringIO()
    csv.writer(stream, quoting=quoting, lineterminator="\n").writerows(records)
    path.write_text(stream.getvalue())
    return str(path)


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("nulls", [None, ["-"], []])
@pytest.mark.parametrize("where", ["in the sample", "outside"])
def test_the_empty_cell_is_missing_in_columns_of_every_type(
    tmp_path: Path, quoting: Any, nulls: Any, where: str
) -> None:
    records = [list(VALUES.values())] * 30_000
    place = 5 if where == "in the sample" else 10_000
    records[place] = [""] * len(VALUES)
    source = open_source(write(tmp_path / "a.csv", [list(VALUES), *records], quoting), nulls=nulls)
    assert [str(type_) for type_ in source.schema.types] == TYPES
    table, rejects = read_all(source)
    assert not rejects and table.num_rows == 30_000
    assert table.slice(place, 1).to_pylist() == [dict.fromkeys(VALUES)]
    assert [column.null_count for column in table.columns] == [1] * len(VALUES)


def test_numbers_in_quotes_with_some_empty_stay_numbers(tmp_path: Path) -> None:
    numbers = random.Random(0)
    records = [["" if numbers.random() < 0.02 else f"{numbers.gauss(0, 1):.4f}", "a"] for _ in range(50_000)]
    source = open_source(write(tmp_path / "a.csv", [["x", "s"], *records]))
    table, rejects = read_all(source)
    assert not rejects and source.schema.types == [pa.float64(), pa.string()]
    assert table["x"].to_pylist() == [float(x) if x else None for x, _ in records]


def test_na_in_quotes_is_missing_as_a_number_and_text_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,s\n"NA","NA"\n"1","DE"\nNA,NA\n')
    assert rows(open_source(str(tmp_path))) == [
        {"n": None, "s": "NA"},
        {"n": 1, "s": "DE"},
        {"n": None, "s": "NA"},
    ]


@pytest.mark.parametrize("columns", [None, ["n"], ["s"], ["s", "n"]])
def test_what_is_named_is_missing_in_text_unless_quoted_and_elsewhere_in_any_case(tmp_path: Path, columns: Any) -> None:
    (tmp_path / "a.csv").write_text('n,s,m\n-,-,1\n"-","-",2\n1,a,"3"\n"2","",""\n,,4\n"NA",b,5\n')
    source = open_source(str(tmp_path), nulls=["-", "NA"])
    table, rejects = read_all(source, columns)
    found = {"n": [None, None, 1, 2, None, None], "s": [None, "-", "a", None, None, "b"], "m": [1, 2, 3, None, 4, 5]}
    assert not rejects
    assert table.to_pydict() == {name: found[name] for name in columns or found}


def test_bad_rows_are_told_beside_what_is_missing_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,s\n"-","-"\nx,a\n1\n2,"b"\n-,-\n')
    table, rejects = read_all(open_source(str(tmp_path), nulls=["-"], types={"n": "int64"}))
    assert table.to_pylist() == [{"n": None, "s": "-"}, {"n": 2, "s": "b"}, {"n": None, "s": None}]
    assert [(reject.line, reject.reason) for reject in rejects] == [
        (3, "column \"n\": 'x' is not int64"),
        (4, "1 fields instead of 2"),
    ]


CELLS = st.one_of(
    st.integers(-(2**53), 2**53).map(str),
    st.floats(-1e9, 1e9).map(repr),
    st.sampled_from(["", "", "NA", "NaN", "null", "n/a", "true", "x", "a,b", 'say "hi"', "two\nlines", " 1 ", "é"]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=20),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_numbers_and_gaps_are_those_that_pandas_reads(
    tmp_path_factory: pytest.TempPathFactory, records: list[list[str]], quoting: Any, newline: str
) -> None:
    stream = io.StringIO()
    csv.writer(stream, quoting=quoting, lineterminator=newline).writerows([["a", "b", "c"], *records])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(stream.getvalue(), newline="")
    table, rejects = read_all(open_source(str(path)))
    frame = pd.read_csv(path)
    assert not rejects and table.num_rows == len(frame)
    for name, cells in zip("abc", zip(*records, strict=True), strict=True):
        if pa.types.is_integer(table[name].type) or pa.types.is_floating(table[name].type):
            ours = table[name].to_pandas().to_numpy(np.float64)
            np.testing.assert_allclose(ours, frame[name].to_numpy(np.float64), rtol=1e-15)
        elif pa.types.is_string(table[name].type):
            assert table[name].to_pylist() == [cell or None for cell in cells]
