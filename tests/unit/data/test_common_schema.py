"""One schema for files that differ: columns that some lack, types that fit together, and types that do not."""

from __future__ import annotations

from itertools import permutations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.common_schema import common_schema, common_type, differing
from dray.data.conflicts import conflicts_of
from dray.data.features import choose_features, require_column
from dray.data.fitted import fitted
from dray.errors import DataError

TEXT_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float16(),
    pa.float32(), pa.float64(), pa.decimal128(5, 2), pa.decimal128(20, 0), pa.decimal256(60, 20), pa.date32(),
    pa.date64(), pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "Asia/Tokyo"),
    pa.time32("s"), pa.time64("ns"), pa.duration("s"), pa.duration("us"), pa.list_(pa.int8()), pa.binary(),
    pa.dictionary(pa.int32(), pa.int8()), pa.dictionary(pa.int32(), pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([pa.int8(), pa.int64()], pa.int64()),
        ([pa.uint8(), pa.int8()], pa.int16()),
        ([pa.uint64(), pa.uint8()], pa.uint64()),
        ([pa.uint64(), pa.int8()], pa.decimal128(20, 0)),
        ([pa.int64(), pa.float64()], pa.float64()),
        ([pa.int16(), pa.float32()], pa.float32()),
        ([pa.int32(), pa.float32()], pa.float64()),
        ([pa.float32(), pa.float64()], pa.float64()),
        ([pa.null(), pa.string()], pa.string()),
        ([pa.null(), pa.null()], pa.null()),
        ([pa.decimal128(5, 2), pa.decimal128(6, 4)], pa.decimal128(7, 4)),
        ([pa.decimal128(5, 2), pa.float32()], pa.float64()),
        ([pa.decimal128(15, 2), pa.float64()], pa.float64()),
        ([pa.decimal128(16, 2), pa.float64()], None),
        ([pa.decimal256(76, 0), pa.decimal128(38, 38)], None),
        ([pa.date32(), pa.timestamp("s")], pa.timestamp("s")),
        ([pa.date32(), pa.date64()], pa.date32()),
        ([pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us")], pa.timestamp("ns")),
        ([pa.timestamp("s", "UTC"), pa.timestamp("us", "Asia/Tokyo")], pa.timestamp("us", "UTC")),
        ([pa.timestamp("s"), pa.timestamp("s", "UTC")], None),
        ([pa.time32("s"), pa.time64("us")], pa.time64("us")),
        ([pa.duration("s"), pa.duration("ms")], pa.duration("ms")),
        ([pa.string(), TEXT_DICTIONARY, pa.large_string()], pa.string()),
        ([TEXT_DICTIONARY, pa.string()], TEXT_DICTIONARY),
        ([pa.dictionary(pa.int8(), pa.int8()), pa.int64()], pa.dictionary(pa.int32(), pa.int64())),
        ([TEXT_DICTIONARY, pa.int64()], None),
        ([pa.string(), pa.int64()], None),
        ([pa.bool_(), pa.int64()], None),
        ([pa.list_(pa.int8()), pa.list_(pa.int8())], pa.list_(pa.int8())),
        ([pa.list_(pa.int8()), pa.list_(pa.int64())], None),
    ],
    ids=str,
)
def test_types_become_one_that_holds_all_their_values(types: list[pa.DataType], expected: pa.DataType | None) -> None:
    assert common_type(types) == expected


@given(st.lists(st.sampled_from(TYPES), min_size=2, max_size=4))
def test_the_order_of_files_does_not_matter(types: list[pa.DataType]) -> None:
    assert len({common_type(order) for order in permutations(types)}) == 1


def schemas(*columns: dict[str, pa.DataType]) -> list[tuple[str, pa.Schema]]:
    return [(f"{index:03}.csv", pa.schema(held)) for index, held in enumerate(columns)]


def test_a_column_that_some_files_lack_is_in_all_with_one_note_that_counts_them() -> None:
    before, after = {"x": pa.int64()}, {"x": pa.int64(), "promo": pa.string()}
    common = common_schema(schemas(*[before] * 212, *[after] * 88))
    assert common.schema == pa.schema(after)
    assert [note.what for note in common.notes] == [
        'Column "promo" is missing in 212 of 300 files (first: 000.csv): null there.'
    ]
    assert common.notes[0].fix == "--read columns=same refuses that."


def test_columns_come_in_the_order_in_which_they_first_appear() -> None:
    one, other = {"b": pa.int8(), "a": pa.int8()}, {"c": pa.int8(), "a": pa.int8(), "b": pa.int8(), "d": pa.int8()}
    assert common_schema(schemas(one, other)).schema.names == ["b", "a", "c", "d"]


def test_columns_that_the_same_files_lack_are_told_together() -> None:
    many = {f"c{i}": pa.int8() for i in range(30)}
    [note] = common_schema(schemas({"x": pa.int8()}, {"x": pa.int8()} | many)).notes
    assert note.what.startswith('Columns "c0", "c1"') and "and 20 more are missing in 1 of 2 files" in note.what


def test_columns_same_refuses_missing_columns_and_tells_all_of_them() -> None:
    found = schemas({"x": pa.int8(), "a": pa.int8()}, {"x": pa.int8(), "b": pa.int8()}, {"x": pa.int8()})
    with pytest.raises(DataError) as raised:
        common_schema(found, "same")
    assert raised.value.what == (
        'The files differ: column "a" is missing in 2 of 3 files (first: 001.csv); '
        'column "b" is missing in 2 of 3 files (first: 000.csv).'
    )
    assert common_schema(found[:1] * 2, "same").schema == found[0][1]


def test_types_that_do_not_fit_are_an_error_only_where_they_are_used_and_all_in_one() -> None:
    found = schemas(
        {"x": pa.int8(), "zip": pa.int64(), "day": pa.date32()},
        {"x": pa.int8(), "zip": pa.string(), "day": pa.string()},
        {"x": pa.int8(), "zip": pa.string()},
    )
    schema = common_schema(found).schema
    assert schema.names == ["x"]
    assert [column.name for column in choose_features(schema, taken=[], ignore=["zip", "day"])] == ["x"]
    with pytest.raises(DataError) as raised:
        choose_features(schema, taken=[], ignore=[])
    assert raised.value.what == (
        'The files differ: column "zip" is int64 in 000.csv but string in 2 files (first: 001.csv); '
        'column "day" is date32[day] in 000.csv but string in 001.csv.'
    )
    write = "Write the column with one type in all files."
    assert raised.value.fix == f"{write} Or leave them out: --ignore zip --ignore day"
    with pytest.raises(DataError) as raised:
        choose_features(schema, taken=[], ignore=["zip"])
    assert raised.value.fix == f"{write} Or leave it out: --ignore day"
    with pytest.raises(DataError, match='column "zip" is int64') as raised:
        require_column(schema, "zip", role="--label")
    assert raised.value.fix == write
    assert [note.what.partition(":")[0] for note in common_schema(found).notes] == [
        'Column "day" is missing in 1 of 3 files (first', "Types of columns do not fit together",
    ]  # fmt: skip
    assert common_schema(found).notes[-1].fix == write


def test_data_of_which_no_column_can_be_used_is_refused_at_once() -> None:
    with pytest.raises(DataError, match=r'column "x" is int8 in 000\.csv but string in 001\.csv'):
        common_schema(schemas({"x": pa.int8()}, {"x": pa.string()}))


def test_a_file_with_no_column_of_the_others_is_of_another_kind() -> None:
    with pytest.raises(DataError, match=r'002\.csv has no column of 000\.csv; its columns are "1", "a"'):
        common_schema(schemas({"x": pa.int8()}, {"x": pa.int8()}, {"1": pa.int8(), "a": pa.int8()}))


def test_a_schema_without_differences_holds_no_conflicts() -> None:
    common = common_schema(schemas({"x": pa.int8()}, {"x": pa.int8()}))
    assert (common.notes, conflicts_of(common.schema).found, common.schema.metadata) == ((), {}, None)


def test_rows_of_a_file_get_the_columns_and_types_of_all() -> None:
    own = pa.schema({"n": pa.int32(), "t": pa.string(), "k": pa.dictionary(pa.int32(), pa.int8())})
    numbers = pa.dictionary(pa.int32(), pa.int64())
    all_files = pa.schema({"t": TEXT_DICTIONARY, "n": pa.float64(), "new": pa.date32(), "k": numbers})
    given_ = differing(own, all_files)
    assert [field.name for field in given_] == ["n", "new", "k"]
    codes = pa.array([5, 5], pa.int8()).dictionary_encode()
    batch = pa.RecordBatch.from_pydict({"n": [1, None], "t": ["a", "b"], "k": codes})
    found = fitted(batch, ["new", "k", "n"], given_, "a.parquet")
    assert found.to_pydict() == {"new": [None, None], "k": [5, 5], "n": [1.0, None]}
    assert found.schema.types == [pa.date32(), numbers, pa.float64()]


def test_a_number_that_the_common_type_would_change_is_refused_with_its_file() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [2**53 + 1]})
    with pytest.raises(DataError, match=r'Column "n" of a.parquet is int64, and double in all files together.*9007'):
        fitted(batch, ["n"], [pa.field("n", pa.float64())], "a.parquet")
