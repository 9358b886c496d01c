"""Numbers of text stay apart: each comes out as it went in, or its row is rejected, or the column is refused.

The judge is Python: csv and json for the text, int and Decimal for the numbers.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading import read_all, rows

from dray.data.open_source import open_source
from dray.data.source import Source
from dray.data.sources import csv as csv_source
from dray.data.sources import csv_numbers
from dray.data.sources.csv_numbers import zeros_that_lead
from dray.data.sources.numbers import Numbers, exact_as_double
from dray.data.sources.quotes import Quoting
from dray.errors import DataError

BIG = 2**63
ODD = 2**53 + 1  # no double


def csv_of(path: Path, values: list[Any], **options: Any) -> Source:
    (path / "a.csv").write_text("id,n\n" + "".join(f"{value},1\n" for value in values))
    return open_source(str(path / "a.csv"), **options)


def json_of(path: Path, values: list[Any], **options: Any) -> Source:
    (path / "a.jsonl").write_text("".join(f'{{"id": {value}, "n": 1}}\n' for value in values))
    return open_source(str(path / "a.jsonl"), **options)


def outside_the_sample(usual: str, *others: str) -> list[str]:
    """Return values of which only the usual ones are in the start, the middle and the end of a file."""
    lines = [usual] * 300_000
    for place, value in enumerate(others):
        lines[100_000 + place] = value
    return lines


class TestLargeWholeNumbers:
    @pytest.mark.parametrize("make", [csv_of, json_of])
    @pytest.mark.parametrize(
        ("values", "type_"),
        [
            (range(BIG, BIG + 200), "uint64"),
            (range(BIG - 100, BIG + 100), "uint64"),
            (range(2**64 - 100, 2**64 + 100), "decimal128(38, 0)"),
            ([*range(BIG, BIG + 200), -1], "decimal128(38, 0)"),
            (range(-BIG - 100, -BIG + 100), "decimal128(38, 0)"),
            (range(BIG - 200, BIG), "int64"),
            (range(-BIG, -BIG + 200), "int64"),
        ],
    )
    def test_whole_numbers_of_any_size_stay_apart(self, tmp_path: Path, make: Any, values: Any, type_: str) -> None:
        source = make(tmp_path, list(values))
        assert str(source.schema.field("id").type) == type_
        assert [row["id"] for row in rows(source)] == list(values)

    def test_longer_ones_are_text_in_csv(self, tmp_path: Path) -> None:
        values = [10**38 + i for i in range(200)]
        source = csv_of(tmp_path, values)
        assert source.schema.field("id").type == pa.string()
        assert [row["id"] for row in rows(source)] == list(map(str, values))

    def test_longer_ones_are_decimals_in_json_and_still_longer_ones_are_refused(self, tmp_path: Path) -> None:
        values = [10**75 + i for i in range(200)]
        assert [row["id"] for row in rows(json_of(tmp_path, values))] == values
        with pytest.raises(DataError, match=rf'Column "id" holds the number {10**76},'):
            json_of(tmp_path, [1, 10**76])
        read = rows(json_of(tmp_path, [1, 10**76], types={"id": "double"}))
        assert [row["id"] for row in read] == [1.0, 1e76]

    @pytest.mark.parametrize("make", [csv_of, json_of])
    def test_what_only_lies_outside_the_sample_is_rejected(self, tmp_path: Path, make: Any) -> None:
        table, rejects = read_all(make(tmp_path, outside_the_sample("123", str(BIG), str(2**64))))
        assert set(table["id"].to_pylist()) == {123} and table.num_rows == 300_000 - 2
        assert [reject.reason for reject in rejects] == [
            f"column \"id\": '{BIG}' is not int64",
            f"column \"id\": '{2**64}' is not int64",
        ]

    @pytest.mark.parametrize("make", [csv_of, json_of])
    def test_the_samples_of_one_file_are_looked_at_together(self, tmp_path: Path, make: Any) -> None:
        values = ["5"] * 300_000
        values[-1] = str(BIG)
        assert make(tmp_path, values).schema.field("id").type == pa.uint64()
        values[150_000] = "-5"
        assert make(tmp_path, values).schema.field("id").type == pa.decimal128(38, 0)

    def test_types_of_several_files_hold_the_numbers_of_all(self, tmp_path: Path) -> None:
        for name, value in (("a", ODD), ("b", BIG), ("c", 7)):
            (tmp_path / f"{name}.csv").write_text(f"id\n{value}\n")
        assert [row["id"] for row in rows(open_source(str(tmp_path)))] == [ODD, BIG, 7]
        (tmp_path / "c.csv").write_text("id\n0.5\n")
        assert [row["id"] for row in rows(open_source(str(tmp_path)))] == [ODD, BIG, Decimal("0.5")]


class TestBesideFractions:
    @pytest.mark.parametrize("make", [csv_of, json_of])
    def test_whole_numbers_that_no_double_holds_make_decimals(self, tmp_path: Path, make: Any) -> None:
        values = [*range(2**53, 2**53 + 200), Decimal("0.5"), Decimal("1E-7"), -3]
        source = make(tmp_path, values)
        assert str(source.schema.field("id").type) == "decimal128(38, 18)"
        assert [row["id"] for row in rows(source)] == values

    @pytest.mark.parametrize("make", [csv_of, json_of])
    @pytest.mark.parametrize(
        "values",
        [
            ["0.5", "1", "-0.25", "3.99"],
            ["0.5", "9007199254740992", "9007199254740994.0"],
            ["0.5", "1e300", "1.2345678901234568e+17", "1.234567890123456789e18"],
            ["0.5", "123456789012345680000", "100000000000000000000"],  # JavaScript writes doubles so
            ["0.5", "123456789012345683968.000000", "123456789012345683968"],  # C does
            ["1e400", "0.1234567890123456789012345"],
        ],
    )
    def test_numbers_that_a_double_holds_are_doubles_as_ever(
        self, tmp_path: Path, make: Any, values: list[str]
    ) -> None:
        if make is json_of:
            values = [value for value in values if value != "1e400"]  # pyarrow refuses it there
        source = make(tmp_path, values)
        assert source.schema.field("id").type == pa.float64()
        assert [row["id"] for row in rows(source)] == list(map(float, values))

    @pytest.mark.parametrize("make", [csv_of, json_of])
    def test_what_only_lies_outside_the_sample_is_rejected(self, tmp_path: Path, make: Any) -> None:
        values = outside_the_sample("1.5", str(ODD), "2", str(2**54), "12345678901234567.89", "1e30")
        table, rejects = read_all(make(tmp_path, values))
        assert set(table["id"].to_pylist()) == {1.5, 2.0, 2.0**54, 1e30}
        assert [re.sub("'", "", reject.reason) for reject in rejects] == [
            f'column "id": {ODD} has more digits than double can hold',
            'column "id": 12345678901234567.89 has more digits than double can hold',
        ]

    @pytest.mark.parametrize("make", [csv_of, json_of])
    def test_the_type_that_the_user_names_wins(self, tmp_path: Path, make: Any) -> None:
        source = make(tmp_path, [ODD, "0.5"], types={"id": "double"})
        assert [row["id"] for row in rows(source)] == [2.0**53, 0.5]

    def test_numbers_that_no_decimal_holds_are_text_in_csv_and_refused_in_json(self, tmp_path: Path) -> None:
        values = [str(ODD), "1e-30", "12345678901234567"]
        assert [row["id"] for row in rows(csv_of(tmp_path, values))] == values
        assert [row["id"] for row in rows(json_of(tmp_path, values))] == list(map(Decimal, values))
        with pytest.raises(DataError, match=f'Column "id" holds the number {ODD},'):
            json_of(tmp_path, [ODD, "1e-70"])

    def test_numbers_within_lists_stay_apart_too(self, tmp_path: Path) -> None:
        source = json_of(tmp_path, outside_the_sample("[0.5, 1]", f"[0.5, {ODD}]", "[3, 4.5]"))
        table, [reject] = read_all(source)
        assert table.num_rows == 300_000 - 1
        assert reject.reason == f'column "id[]": {ODD} has more digits than double can hold'

    def test_a_string_is_no_decimal(self, tmp_path: Path) -> None:
        values = [str(2**64)] * 200_000
        values[60_000] = '"012"'
        table, [reject] = read_all(json_of(tmp_path, values))
        assert table.num_rows == 200_000 - 1
        assert (reject.line, reject.reason) == (60_001, 'column "id": "012" is not decimal128(38, 0)')

    def test_a_number_that_a_decimal_does_not_hold_is_told(self, tmp_path: Path) -> None:
        for make in (csv_of, json_of):
            table, rejects = read_all(make(tmp_path, outside_the_sample(str(2**64), "1.5", "9" * 39)))
            assert table.num_rows == 300_000 - 2
            assert [reject.reason for reject in rejects] == [
                "column \"id\": '1.5' is not decimal128(38, 0)",
                f"column \"id\": '{'9' * 39}' is not decimal128(38, 0)",
            ]

    @pytest.mark.parametrize("make", [csv_of, json_of])
    @pytest.mark.parametrize("named", [False, True])
    def test_a_number_that_pyarrow_wraps_around_is_rejected(self, tmp_path: Path, make: Any, named: bool) -> None:
        usual = "2." + "0" * 18
        values = [str(ODD), "0.5", *[usual] * 20_000, "340282366920938463804", "1e25", "-99999999999999999999"]
        values += [usual] * 40_000
        source = make(tmp_path, values, types={"id": pa.decimal128(38, 18)} if named else None)
        assert source.schema.field("id").type == pa.decimal128(38, 18)
        table, rejects = read_all(source)
        assert set(table["id"].to_pylist()) == {ODD, Decimal("0.5"), 2, -(10**20) + 1}
        assert [re.sub("'", "", reject.reason) for reject in rejects] == [
            'column "id": 340282366920938463804 has more digits than decimal128(38, 18) can hold',
            'column "id": 1e25 has more digits than decimal128(38, 18) can hold',
        ]

    @pytest.mark.parametrize("make", [csv_of, json_of])
    @pytest.mark.parametrize("scale", [0, 18])
    @pytest.mark.parametrize("named", [False, True])
    def test_a_number_that_pyarrow_may_make_zero_is_rejected(
        self, tmp_path: Path, make: Any, scale: int, named: bool
    ) -> None:
        type_ = pa.decimal128(38, scale)
        small = f"1e-{39 + scale}"
        values = outside_the_sample("2" if scale else str(2**64), "0", small, "0e-300")
        values[0] = "1.5" if scale else "-1"
        values[1] = str(ODD)
        source = make(tmp_path, values, types={"id": type_} if named else None)
        assert source.schema.field("id").type == type_
        table, [reject] = read_all(source, ["id"])
        assert table.num_rows == 300_000 - 1 and table["id"].to_pylist()[100_000:100_002] == [0, 0]
        why = f"has more digits than {type_} can hold", f"is not {type_}"  # as pyarrow made 0 of it, or refused it
        assert re.sub("'", "", reject.reason) in [f'column "id": {small} {words}' for words in why]

    def test_a_small_number_beside_a_large_double_is_rejected_too(self, tmp_path: Path) -> None:
        values = outside_the_sample(f'{2**64}, "x": 1e300', '3, "x": 1e300', '1e-39, "x": 1e300')
        table, [reject] = read_all(json_of(tmp_path, values))
        assert table.num_rows == 300_000 - 1
        assert "1e-39" in reject.reason

    def test_a_number_in_a_list_that_pyarrow_may_make_zero_is_rejected(self, tmp_path: Path) -> None:
        values = outside_the_sample(f"[{2**64}]", "[1, 0]", "[1, 1e-39]")
        for types in (None, {"id": pa.list_(pa.decimal128(38, 0))}):
            table, [reject] = read_all(json_of(tmp_path, values, types=types))
            assert table.num_rows == 300_000 - 1
            assert reject.reason.startswith('column "id[]": ') and "1e-39" in reject.reason

    def test_fields_that_are_dropped_are_no_reason_to_reject(self, tmp_path: Path) -> None:
        values = outside_the_sample("0.5", '1e30, "new": 1', f'{ODD}, "new": 1')
        _, [reject] = read_all(json_of(tmp_path, values, extra_fields="ignore"))
        assert reject.reason == f'column "id": {ODD} has more digits than double can hold'


class TestLeadingZeros:
    @pytest.mark.parametrize(
        "values", [["001", "1"], ["-007", "7"], ["00", "0"], ["0x10", "16"], ["1", " 01"], ["0.5", "001", "1"]]
    )
    def test_a_leading_zero_makes_text(self, tmp_path: Path, values: list[str]) -> None:
        source = csv_of(tmp_path, values)
        assert source.schema.field("id").type == pa.string()
        assert [row["id"] for row in rows(source)] == values

    @pytest.mark.parametrize(
        ("values", "type_"),
        [
            (["0", "1", "-0", "10"], "int64"),
            (["0.5", "-0.5", "0"], "double"),
            (["0.5", "00.5"], "double"),
            (["2024-01-05", "2024-10-05"], "date32[day]"),
            (["2024-01-05 03:00:00", "2024-10-05 00:00:00"], "timestamp[us]"),
            (["05:00:00", "17:00:00"], "time32[s]"),
        ],
    )
    def test_what_only_looks_so_keeps_its_type(self, tmp_path: Path, values: list[str], type_: str) -> None:
        source = csv_of(tmp_path, values)
        assert str(source.schema.field("id").type) == type_
        assert len(rows(source)) == len(values)

    def test_the_type_that_the_user_names_wins(self, tmp_path: Path) -> None:
        values = outside_the_sample("8", "007", "7")
        for lines in (["007", "7"], values):
            table, rejects = read_all(csv_of(tmp_path, lines, types={"id": "int64"}))
            assert table.num_rows == len(lines) and not rejects
            assert 7 in table["id"].to_pylist()

    @pytest.mark.parametrize("usual", ["123", "1.5", str(BIG), str(2**64)])
    @pytest.mark.parametrize("quote", ["", '"'])
    def test_one_outside_the_sample_is_rejected(self, tmp_path: Path, usual: str, quote: str) -> None:
        values = [f"{quote}{value}{quote}" for value in outside_the_sample(usual, "007", "7", "-01", "10")]
        source = csv_of(tmp_path, values)
        type_ = source.schema.field("id").type
        table, rejects = read_all(source)
        assert table.num_rows == 300_000 - 2
        assert [(reject.line, reject.reason) for reject in rejects] == [
            (100_002, f"column \"id\": '007' has a leading zero, which {type_} would lose"),
            (100_004, f"column \"id\": '-01' has a leading zero, which {type_} would lose" if type_ != pa.uint64()
             else "column \"id\": '-01' is not uint64"),
        ]  # fmt: skip
        assert read_all(source, ["n"])[0].num_rows == 300_000  # nobody asked for it

    def test_rows_are_told_right_beside_others_that_are_bad(self, tmp_path: Path) -> None:
        values = outside_the_sample("123", "1,2", "007", "x", "1,2", "", "08", "9")
        table, rejects = read_all(csv_of(tmp_path, values))
        assert [(reject.line, reject.reason.split(" has")[0]) for reject in rejects] == [
            (100_002, "3 fields instead of 2"),
            (100_003, "column \"id\": '007'"),
            (100_004, "column \"id\": 'x' is not int64"),
            (100_005, "3 fields instead of 2"),
            (100_007, "column \"id\": '08'"),
        ]
        assert table.num_rows == 300_000 - 5

    def test_codes_in_one_file_are_text_in_all(self, tmp_path: Path) -> None:
        for name, value in (("a", "7"), ("b", "007"), ("c", "X7")):
            (tmp_path / f"{name}.csv").write_text(f"id\n{value}\n")
        assert [row["id"] for row in rows(open_source(str(tmp_path)))] == ["7", "007", "X7"]

    def test_what_stands_for_missing_is_no_code(self, tmp_path: Path) -> None:
        source = csv_of(tmp_path, ["000", "1", '"000"'], nulls=["000"])
        assert [row["id"] for row in rows(source)] == [None, 1, None]

    def test_codes_of_text_columns_do_not_make_numbers_be_read_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.csv").write_text("zip,n\n" + "00501,12\n" * 100_000)
        source = open_source(str(tmp_path))
        monkeypatch.setattr(csv_numbers, "_first_code", lambda _texts: pytest.fail("read again"))
        assert source.schema.types == [pa.string(), pa.int64()]
        assert len(rows(source)) == 100_000


PIECES = st.sampled_from(["0", "00", "1", "-", "+", " ", ".", ",", "\n", "\r\n", '"', "x", "X", ":", "a", ";", "|"])


@settings(max_examples=500, deadline=None)
@given(
    st.lists(PIECES, max_size=30).map(lambda parts: "".join(parts).encode()),
    st.sampled_from([b",", b";", b"|", b"\t", b"-"]),
    st.sampled_from([b'"', b"'", b"|", None]),
    st.integers(1, 9),
)
def test_no_leading_zero_is_overlooked(text: bytes, delimiter: bytes, quote: bytes | None, step: int) -> None:
    if delimiter == quote:
        return
    mark = b"" if quote is None else re.escape(quote)
    begin = rb"(?:^|[\r\n" + re.escape(delimiter) + mark + rb"])[ \t]?[+-]?"
    expected = {found.end() - 2 for found in re.finditer(begin + rb"(?=0[0-9xX])0.", text)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_numbers, "_STEP", step)
        found = zeros_that_lead(text, Quoting(delimiter[0], None if quote is None else quote[0]))
    assert expected <= set(found.tolist())


WHOLE = st.one_of(
    st.integers(-20, 20),
    st.sampled_from([2**53, BIG, 2**64, 10**18, 10**38]).flatmap(lambda at: st.integers(at - 9, at + 9)),
    st.integers(-(10**40), 10**40),
)
LITERALS = st.one_of(
    WHOLE.map(str),
    st.integers(0, 999).map(lambda value: f"{value:05}"),
    st.decimals(-(10**20), 10**20, places=2).map(lambda value: f"{value:f}"),
    st.integers(30, 500).map(lambda places: f"88e-{places}"),
    st.sampled_from(["", "NA", "0", "-0", "00", "0x10", "1e5", "+1", "-007", " 7", "1.", ".5", "inf", "nan", "text"]),
)


def same(read: Any, written: str) -> bool:
    """Say whether a value that was read is what was written, with every digit."""
    if read is None:
        return written.strip() in ("", "NA", "nan")
    if isinstance(read, str):
        return read == written
    if re.fullmatch(r"\s*[+-]?0[0-9xX].*", written) and "." not in written:
        return False
    if isinstance(read, float):
        return exact_as_double(written) and (read == float(written) or read != read)
    return Decimal(read) == Decimal(written)


@settings(max_examples=300, deadline=None)
@given(st.lists(LITERALS, min_size=1, max_size=40), st.integers(0, 3), st.booleans(), st.booleans())
@example(["1", "001"], 3, False, True)
@example(["0.5", str(ODD)], 3, False, True)
@example(["", str(2**64), "-1"], 3, True, False)
@example(["0", "0", "9007199254740991.50", "340282366920938463804"], 1, False, False)
def test_what_csv_holds_comes_out_with_every_digit_or_is_rejected(
    values: list[str], samples: int, quoted: bool, nulls: bool
) -> None:
    """`samples`: how many of the three samples are looked at: what lies outside must not be changed either."""
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="\n").writerows(
        [["id", "row"], *([value, f"r{row}"] for row, value in enumerate(values))]
    )
    guess = csv_source._guess
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        (Path(directory) / "a.csv").write_text(stream.getvalue())
        first = "\n".join(stream.getvalue().splitlines()[1 : 1 + samples * 3]) + "\n"
        patch.setattr(csv_source, "_guess", lambda file, _sample, form: guess(file, first.encode(), form))
        table, rejects = read_all(open_source(directory, nulls=["NA", "nan"] if nulls else None))
    assert table.num_rows + len(rejects) == len(values)
    for found in table.to_pylist():
        assert same(found["id"], values[int(found["row"][1:])]), (found, values, table.schema)
    if samples == 3 and len(values) <= 9 and "text" not in values:
        assert not rejects  # all was in the sample


NUMBERS = st.one_of(
    WHOLE.map(str),
    st.decimals(-(10**20), 10**20, places=2).map(lambda value: f"{value:f}"),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS | st.just("null"), min_size=1, max_size=40), st.integers(1, 4), st.booleans())
@example(["0", "0", "9007199254740991.50", "340282366920938463804"], 1, False)
@example(["0", "99999999999999999999999999999999999991", "0.00", "5.1285840975176977e-259"], 1, False)
@example(["null", "0", "0", "0", "-1", "9223372036854775808", "8.806071018937796e-220"], 2, False)
def test_what_json_holds_comes_out_with_every_digit_or_is_rejected(
    values: list[str], sampled: int, array: bool
) -> None:
    from dray.data.sources import json as json_source

    records = [f'{{"u": {{"id": {value}}}, "row": {row}}}' for row, value in enumerate(values)]
    text = f"[{', '.join(records)}]" if array else "\n".join(records)
    look = json_source.look

    def look_at_some(found: Any, *rest: Any, **more: Any) -> None:
        stop = min(sampled * 3, len(found))
        look(type(found)(found.data, found.starts[:stop], found.stops[:stop]), *rest, **more)

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        (Path(directory) / "a.json").write_text(text)
        patch.setattr(json_source, "look", look_at_some)
        try:
            table, rejects = read_all(open_source(directory))
        except DataError as refused:
            assert any(value in refused.what for value in values)
            return
    assert table.num_rows + len(rejects) == len(values)
    assert [json.loads(reject.text)["row"] for reject in rejects] == sorted(
        set(range(len(values))) - set(table["row"].to_pylist())
    )
    for found in table.to_pylist():
        written = values[found["row"]]
        assert (found["u.id"] is None) if written == "null" else same(found["u.id"], written)


@given(st.lists(st.integers(-(10**22), 10**22), min_size=2, max_size=30), st.booleans())
def test_a_type_keeps_all_numbers_apart(values: list[int], fraction: bool) -> None:
    numbers = Numbers()
    for literal in [*map(str, values), *(["0.5"] if fraction else [])]:
        numbers.add(literal)
    type_ = numbers.arrow()
    assert type_ is not None
    if pa.types.is_floating(type_):
        kept = np.array(values, np.float64).tolist()
    else:
        kept = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0)).cast(type_).to_pylist()
    assert len(set(kept)) == len(set(values))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_exact_however_it_is_written(value: float) -> None:
    for literal in (repr(value), f"{value:.17e}", f"{value:f}", f"{value:.0f}", f"{Decimal(repr(value)):f}"):
        assert exact_as_double(literal)
