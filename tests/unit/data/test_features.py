from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.features import (
    Column,
    Encoder,
    Kind,
    choose_features,
    column_of,
    dictionary_of,
    kind_of,
    require_column,
    texts_of,
)
from dray.errors import DataError

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
MISSING = float("nan")


def encoded(values: pa.Array, categories: tuple[str, ...] = ()) -> list[float]:
    """The numbers that a feature column becomes."""
    column = Column("c", kind_of("c", values.type), categories)
    numbers = Encoder([column]).column(values, column)
    assert numbers.dtype == np.float32
    return [float(number) for number in numbers]


def same(found: list[float], expected: list[float]) -> bool:
    return np.array_equal(np.float32(found), np.float32(expected), equal_nan=True)


NUMBERS: list[tuple[pa.DataType, list[Any], list[float]]] = [
    *((kind(), [1, None, 100], [1, MISSING, 100]) for kind in (pa.int8, pa.int16, pa.int32, pa.int64)),
    *((kind(), [1, None, 200], [1, MISSING, 200]) for kind in (pa.uint8, pa.uint16, pa.uint32, pa.uint64)),
    *((kind(), [1.5, None, MISSING], [1.5, MISSING, MISSING]) for kind in (pa.float32, pa.float64)),
    (pa.float16(), [np.float16(1.5), None], [1.5, MISSING]),
    (pa.int64(), [2**53 + 1, -(2**62)], [2.0**53, -(2.0**62)]),
    (pa.uint64(), [2**64 - 1], [2.0**64]),
    (pa.decimal32(7, 2), [Decimal("1.25"), None], [1.25, MISSING]),
    (pa.decimal64(12, 2), [Decimal("-1.25"), None], [-1.25, MISSING]),
    (pa.decimal128(20, 3), [Decimal("12345678901234567.125"), None], [12345678901234567.125, MISSING]),
    (pa.decimal256(50, 2), [Decimal("0.01"), None], [0.01, MISSING]),
    (pa.null(), [None, None], [MISSING, MISSING]),
    (pa.bool_(), [True, None, False], [1, MISSING, 0]),
    (pa.date32(), [dt.date(1970, 1, 3), None, dt.date(1969, 12, 31)], [2, MISSING, -1]),
    (pa.date64(), [dt.date(1970, 1, 3), None, dt.date(1969, 12, 31)], [2, MISSING, -1]),
]


@pytest.mark.parametrize(("arrow", "values", "expected"), NUMBERS, ids=lambda value: str(value)[:30])
def test_a_column_becomes_its_numbers_and_nulls_stay_missing(
    arrow: pa.DataType, values: list[Any], expected: list[float]
) -> None:
    assert same(encoded(pa.array(values, arrow)), expected)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_timestamp_becomes_seconds_since_1970_in_utc(unit: str, zone: str | None) -> None:
    values = pa.array([3600 * UNITS[unit], None, -60 * UNITS[unit]], pa.int64()).cast(pa.timestamp(unit, zone))
    assert same(encoded(values), [3600, MISSING, -60])


def test_a_zoned_timestamp_counts_the_instant_and_not_the_clock_on_the_wall() -> None:
    berlin = dt.datetime(1970, 1, 1, 2, 0, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert encoded(pa.array([berlin], pa.timestamp("us", "Europe/Berlin"))) == [3600]


def test_fractions_of_a_second_are_kept() -> None:
    assert encoded(pa.array([1500], pa.int64()).cast(pa.timestamp("ms"))) == [1.5]
    assert encoded(pa.array([1500], pa.int32()).cast(pa.time32("ms"))) == [1.5]
    assert encoded(pa.array([250_000], pa.int64()).cast(pa.duration("us"))) == [0.25]


@pytest.mark.parametrize("unit", UNITS)
def test_a_time_of_day_becomes_seconds(unit: str) -> None:
    small = unit in ("s", "ms")
    arrow = pa.time32(unit) if small else pa.time64(unit)
    values = pa.array([7200 * UNITS[unit], None], pa.int32() if small else pa.int64()).cast(arrow)
    assert same(encoded(values), [7200, MISSING])


@pytest.mark.parametrize("unit", UNITS)
def test_a_duration_becomes_seconds(unit: str) -> None:
    values = pa.array([-90 * UNITS[unit], None], pa.int64()).cast(pa.duration(unit))
    assert same(encoded(values), [-90, MISSING])


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_becomes_the_number_of_its_category(arrow: pa.DataType) -> None:
    assert same(encoded(pa.array(["b", None, "a", "b"], arrow), ("a", "b")), [1, MISSING, 0, 1])


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        (pa.array(["y", None, "x"]), ("x", "y")),
        (pa.array(["y", None, "x"], pa.large_string()), ("x", "y")),
        (pa.array([20, None, 3]), ("3", "20")),
        (pa.array([2.5, None, 1.0]), ("1", "2.5")),
        (pa.array([True, None, False]), ("false", "true")),
        (pa.array([dt.date(2020, 1, 2), None, dt.date(2020, 1, 1)]), ("2020-01-01", "2020-01-02")),
    ],
    ids=str,
)
def test_a_dictionary_is_a_category_whatever_its_values(values: pa.Array, categories: tuple[str, ...]) -> None:
    assert same(encoded(values.dictionary_encode(), categories), [1, MISSING, 0])


@pytest.mark.parametrize("index", [pa.int8(), pa.uint16(), pa.int64()], ids=str)
def test_the_index_type_of_a_dictionary_does_not_matter(index: pa.DataType) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], index), ["x", "y"])
    assert same(encoded(values, ("x", "y")), [1, MISSING, 0])


def test_a_null_inside_a_dictionary_is_missing_and_not_unseen() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None]))
    column = Column("c", "category", ("x",))
    encoder = Encoder([column])
    assert same([float(v) for v in encoder.column(values, column)], [0, MISSING, MISSING])
    assert not encoder.unseen


def test_batches_with_different_dictionaries_get_the_same_numbers() -> None:
    column = Column("c", "category", ("a", "b", "c"))
    encoder = Encoder([column])
    one = pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["a", "b"])
    two = pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["b", "c"])
    assert encoder.column(one, column).tolist() == [0, 1]
    assert encoder.column(two, column).tolist() == [1, 2]


def test_unseen_categories_are_missing_and_counted_row_by_row() -> None:
    column = Column("c", "category", ("a", "b"))
    encoder = Encoder([column])
    assert same(
        [float(v) for v in encoder.column(pa.array(["a", "new", None, "new", "x"]), column)], [0] + [MISSING] * 4
    )
    encoder.column(pa.array(["x"]).dictionary_encode(), column)
    assert encoder.unseen == {"c": 4}


def test_a_dictionary_entry_that_no_row_uses_is_not_counted_as_unseen() -> None:
    column = Column("c", "category", ("a",))
    encoder = Encoder([column])
    encoder.column(pa.DictionaryArray.from_arrays(pa.array([0, None]), ["a", "unused"]), column)
    assert not encoder.unseen


def test_a_sliced_array_is_encoded_from_where_it_starts() -> None:
    assert same(encoded(pa.array(["a", "b", None, "c"]).slice(1), ("a", "b", "c")), [1, MISSING, 2])
    assert same(encoded(pa.array([True, None, False]).slice(1)), [MISSING, 0])


def test_a_category_column_of_nulls_only_is_all_missing() -> None:
    assert same(encoded(pa.array([None, None], pa.string())), [MISSING, MISSING])
    column = Column("c", "category", ("a",))
    assert np.isnan(Encoder([column]).column(pa.nulls(2), column)).all()


@pytest.mark.filterwarnings("error")
def test_a_number_too_large_for_float32_is_infinite() -> None:
    assert encoded(pa.array([1e300, -1e300])) == [np.inf, -np.inf]


@pytest.mark.parametrize(
    "arrow",
    [
        pa.list_(pa.int64()),
        pa.large_list(pa.string()),
        pa.struct([("x", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.binary(),
        pa.large_binary(),
        pa.binary(4),
        pa.dictionary(pa.int32(), pa.binary()),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_a_type_without_meaning_is_refused_by_name(arrow: pa.DataType) -> None:
    with pytest.raises(DataError) as raised:
        kind_of("payload", arrow)
    assert '"payload"' in raised.value.what and str(arrow) in raised.value.what
    assert "--ignore payload" in raised.value.fix


@pytest.mark.parametrize(
    ("known", "values"),
    [
        ("number", pa.array(["1"])),
        ("number", pa.array([dt.date(2020, 1, 1)])),
        ("date", pa.array([dt.datetime(2020, 1, 1)])),
        ("timestamp", pa.array([dt.date(2020, 1, 1)])),
        ("seconds", pa.array([1])),
        ("timestamp", pa.array(["2020-01-01"]).dictionary_encode()),
    ],
)
def test_a_column_of_another_kind_than_known_is_refused(known: Kind, values: pa.Array) -> None:
    column = Column("c", known)
    with pytest.raises(DataError, match=f'"c" holds .* knows it as a {known}'):
        Encoder([column]).column(values, column)


@pytest.mark.parametrize(("known", "values"), [("number", pa.array([True])), ("boolean", pa.array([1]))])
def test_numbers_and_booleans_stand_for_each_other(known: Kind, values: pa.Array) -> None:
    column = Column("c", known)
    assert Encoder([column]).column(values, column).tolist() == [1]


def test_a_column_of_nulls_fits_any_kind() -> None:
    for kind in ("number", "boolean", "date", "timestamp", "seconds"):
        column = Column("c", kind)
        assert np.isnan(Encoder([column]).column(pa.nulls(2), column)).all()


def test_the_matrix_follows_the_order_of_the_features_and_not_of_the_batch() -> None:
    batch = pa.record_batch({"extra": [9, 9], "two": [3, 4], "one": [1, 2]})
    encoder = Encoder([Column("one", "number"), Column("two", "number")])
    assert encoder.matrix(batch).tolist() == [[1, 3], [2, 4]]


def test_features_are_the_columns_without_another_role_in_the_order_of_the_schema() -> None:
    schema = pa.schema({"z": pa.int64(), "label": pa.int64(), "a": pa.string(), "raw": pa.binary()})
    features = choose_features(schema, taken=["label"], ignore=["raw"])
    assert features == [Column("z", "number"), Column("a", "category")]


def test_ignoring_a_column_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(DataError, match=r'"customer_di" .*Did you mean "customer_id"'):
        choose_features(pa.schema({"customer_id": pa.int64(), "x": pa.int64()}), taken=[], ignore=["customer_di"])


def test_data_without_a_feature_is_refused() -> None:
    with pytest.raises(DataError, match="No column is left"):
        choose_features(pa.schema({"label": pa.int64()}), taken=["label"], ignore=[])


def test_a_missing_column_is_told_with_its_role_and_the_columns_there_are() -> None:
    schema = pa.schema({f"column_{index}": pa.int64() for index in range(20)})
    with pytest.raises(DataError) as raised:
        require_column(schema, "target", role="--label")
    assert '"target" (--label)' in raised.value.what
    assert "column_11, ..." in raised.value.fix


def test_a_column_survives_json() -> None:
    for column in (Column("x[1]", "number"), Column("ü", "category", ("a", "b")), Column("none", "category")):
        assert Column.from_json(column.to_json()) == column


def test_the_dictionary_of_a_column_has_a_number_for_every_row() -> None:
    local, indices = dictionary_of(pa.array(["b", None, "a", "b"]))
    assert local.to_pylist() == ["b", "a"]
    assert indices.tolist() == [0, 2, 1, 0]


def dictionary(values: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int8(), values)


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.string(), "string"),
        (dictionary(pa.string()), "string"),
        (dictionary(pa.large_string()), "string"),
        (dictionary(pa.null()), "string"),
        (dictionary(pa.int64()), "int64"),
        (dictionary(pa.uint8()), "uint8"),
        (dictionary(pa.bool_()), "bool"),
        (dictionary(pa.float64()), "double"),
        (dictionary(pa.date32()), "date32[day]"),
    ],
    ids=str,
)
def test_a_category_keeps_the_type_of_its_values(arrow: pa.DataType, values: str) -> None:
    column = column_of("c", arrow)
    assert (column.kind, column.values) == ("category", values)
    assert Column.from_json(column.to_json()) == column
    assert ("values" in column.to_json()) == (values != "string")


def test_a_column_of_an_older_model_is_read_as_text() -> None:
    column = Column.from_json({"name": "c", "kind": "category", "categories": ["a", "b"]})
    assert column == Column("c", "category", ("a", "b"), values="string")


WHOLE = Column("c", "category", ("1", "2"), values="int64")


@pytest.mark.parametrize(
    ("column", "arrow", "taken"),
    [
        (WHOLE, dictionary(pa.int64()), True),
        (WHOLE, dictionary(pa.int16()), True),
        (WHOLE, pa.int64(), True),
        (WHOLE, pa.uint8(), True),
        (WHOLE, pa.float64(), True),  # integers with a gap, as pandas has them
        (WHOLE, pa.string(), False),
        (WHOLE, pa.null(), True),
        (WHOLE, pa.bool_(), False),
        (WHOLE, pa.date32(), False),
        (Column("c", "category", values="bool"), pa.bool_(), True),
        (Column("c", "category", values="bool"), pa.int64(), False),
        (Column("c", "category", values="date32[day]"), pa.date32(), True),
        (Column("c", "category"), pa.int64(), False),
        (Column("c", "category"), dictionary(pa.int64()), False),
        (Column("c", "category"), dictionary(pa.large_string()), True),
        (Column("c", "category"), pa.string_view(), True),
        (Column("c", "category"), dictionary(pa.null()), True),
        (Column("c", "number"), dictionary(pa.int64()), True),
        (Column("c", "number"), dictionary(pa.bool_()), True),
        (Column("c", "number"), dictionary(pa.string()), False),
        (Column("c", "date"), dictionary(pa.date32()), True),
        (Column("c", "date"), dictionary(pa.int64()), False),
    ],
    ids=str,
)
def test_a_dictionary_and_its_plain_values_may_stand_for_each_other(
    column: Column, arrow: pa.DataType, taken: bool
) -> None:
    assert column.takes(arrow) is taken


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2, None, 1, 3]).dictionary_encode(),
        pa.array([2, None, 1, 3], pa.uint8()).dictionary_encode(),
        pa.array([2, None, 1, 3]),
        pa.array([2.0, MISSING, 1.0, 3.0]),
        pa.array([2.0, MISSING, 1.0, 3.0]).dictionary_encode(),
        pa.array(["2", None, "1", "3"]),
    ],
    ids=lambda values: str(values.type),
)
def test_a_category_of_whole_numbers_is_found_by_its_text(values: pa.Array) -> None:
    encoder = Encoder([WHOLE])
    assert same([float(code) for code in encoder.column(values, WHOLE)], [1, MISSING, 0, MISSING])
    assert encoder.unseen == {"c": 1}


def test_a_dictionary_of_numbers_stands_for_the_numbers_that_an_older_model_knows() -> None:
    column = Column("c", "number")
    assert same(
        [float(n) for n in Encoder([column]).column(pa.array([20, None, 10]).dictionary_encode(), column)],
        [20, MISSING, 10],
    )


def test_further_categories_come_after_those_that_are_known() -> None:
    assert WHOLE.with_more(["-3", "1", "2", "10"]).categories == ("1", "2", "-3", "10")
    assert Column("c", "category", ("b",)).with_more(["a", "b", "2.5"]).categories == ("b", "a", "2.5")


def test_a_category_of_whole_numbers_gets_no_fraction() -> None:
    with pytest.raises(DataError, match=r'Column "c" has categories of whole numbers \(int64\), but holds 2.5'):
        WHOLE.with_more(["1", "2.5"])


def test_a_float_is_the_text_of_its_whole_number() -> None:
    values = [1.0, -0.0, 0.5, 1.5e15, -3.0, MISSING, None, float("inf")]
    assert texts_of(pa.array(values)).to_pylist() == ["1", "0", "0.5", "1500000000000000", "-3", None, None, "inf"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("zone", "end"), [(None, ""), ("UTC", "Z"), ("Europe/Berlin", "+0100")])
def test_a_moment_is_the_same_text_in_any_unit(unit: str, zone: str | None, end: str) -> None:
    values = pa.array([0, 70], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    hour = "01" if end == "+0100" else "00"
    assert texts_of(values).to_pylist() == [f"1970-01-01 {hour}:00:00{end}", f"1970-01-01 {hour}:01:10{end}"]


def test_the_fraction_of_a_moment_stays() -> None:
    values = pa.array([1_500_012_000, 12_000_000, 100_000_000], pa.timestamp("ns"))
    seconds = [text.rpartition(":")[2] for text in texts_of(values).to_pylist()]
    assert seconds == ["01.500012", "00.012", "00.1"]


def test_a_name_that_a_shell_would_take_apart_is_quoted_in_the_hint() -> None:
    with pytest.raises(DataError) as raised:
        kind_of("raw bytes", pa.binary())
    assert raised.value.fix.startswith("Leave it out with --ignore 'raw bytes', or")
