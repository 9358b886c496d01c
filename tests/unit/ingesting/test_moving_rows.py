"""Rows on their way: their order, their part, and packed and unpacked as they were."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.errors import ConfigError
from dray.ingesting.moving_rows import (
    POSITION,
    Order,
    join,
    order_of,
    pack,
    parts_of,
    require_columns,
    splitters,
    unpack,
)

SCHEMA = pa.schema(
    [("price", pa.float64()), ("-odd", pa.int64()), ("tags", pa.list_(pa.string())), (POSITION, "int64")]
)


def ordered(values: list[Any], down: bool = False, kind: pa.DataType | None = None) -> list[Any]:
    table = pa.table({"x": pa.array(values, kind)})
    order = Order(("x",), (down,))
    return [values[index] for index in order.indices(order.keys(table))]


def test_nulls_come_last_whatever_the_direction() -> None:
    assert ordered([2, None, 1, 3]) == [1, 2, 3, None]
    assert ordered([2, None, 1, 3], down=True) == [3, 2, 1, None]
    found = ordered([2.0, math.nan, None, 1.0])
    assert (found[:2], math.isnan(found[2]), found[3]) == ([1.0, 2.0], True, None)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_every_kind_of_text_has_an_order(kind: pa.DataType) -> None:
    values = ["b", "a", None, "ab"]
    if kind == pa.binary_view():
        values = [value.encode() if value else None for value in values]  # type: ignore[misc]
    assert ordered(values, kind=kind) == [*sorted(value for value in values if value), None]


def test_halves_have_an_order() -> None:
    assert ordered([np.float16(2), np.float16(-1)], kind=pa.float16()) == [-1, 2]


def test_equal_rows_go_by_their_position_if_it_is_known() -> None:
    table = pa.table({"a": [1, 1, 0], "b": [5, 6, 7], POSITION: [9, 3, 5]})
    order = Order(("a",), (True,))
    assert order.indices(order.keys(table)).tolist() == [1, 0, 2]
    assert order.indices(order.keys(table.drop_columns(POSITION))).tolist() == [0, 1, 2]
    both = Order(("a", "b"), (False, True))
    assert both.indices(both.keys(table)).tolist() == [2, 1, 0]


def test_a_dash_means_descending_unless_the_column_is_called_so() -> None:
    assert order_of(["-price", "-odd"], SCHEMA) == Order(("price", "-odd"), (True, False))
    assert order_of(["price"], SCHEMA) == Order(("price",), (False,))


@pytest.mark.parametrize(
    ("sort", "what"),
    [
        ("tags", 'The rows cannot be sorted by "tags", which is list<'),
        ("-prize", 'There is no column "prize" to sort by. Did you mean "price"?'),
        (POSITION, f'There is no column "{POSITION}" to sort by.'),
    ],
)
def test_what_no_order_is_known_for_is_refused(sort: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        order_of([sort], SCHEMA)
    assert caught.value.what.startswith(what)
    assert POSITION not in caught.value.fix


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        (pa.dictionary(pa.int8(), pa.string()), True),
        (pa.struct([("a", pa.int8())]), False),
        (pa.month_day_nano_interval(), False),
        (pa.uuid(), False),
        (pa.timestamp("us"), True),
    ],
)
def test_nested_values_intervals_and_extensions_have_no_order(kind: pa.DataType, has: bool) -> None:
    schema = pa.schema([("x", kind)])
    if has:
        assert order_of(["x"], schema).columns == ("x",)
    else:
        with pytest.raises(ConfigError, match="cannot be sorted"):
            order_of(["x"], schema)


def test_columns_that_are_there_are_not_complained_about() -> None:
    require_columns(["price", "tags"], SCHEMA, "dedup")


def test_parts_are_dealt_evenly_and_a_splitter_begins_its_part() -> None:
    values = list(range(100))
    np.random.default_rng(0).shuffle(values)
    keys = pa.table({"0": values, POSITION: range(100)})
    order = Order(("x",), (False,))
    ends = splitters(keys, order, 4)
    assert ends.column("0").to_pylist() == [25, 50, 75]
    parts = parts_of(keys, ends, order)
    assert parts.tolist() == [value // 25 for value in values]
    assert splitters(keys, order, 1).num_rows == 0
    assert set(parts_of(keys, splitters(keys, order, 1), order).tolist()) == {0}


def test_packed_rows_come_back_as_they_were_from_each_sender() -> None:
    table = pa.table({"x": [10, 11, 12, 13, 14], "t": ["a", None, "c", "d", "e"]})
    carried = pack(table, np.array([2, 0, 2, 0, 0], dtype=np.uint32), 4, source=7)
    assert carried.column("part").to_pylist() == [0, 1, 2, 3]
    assert carried.column("source").to_pylist() == [7] * 4
    rows = [part.column("x").to_pylist() for _, part in unpack(carried)]
    assert rows == [[11, 13, 14], [], [10, 12], []]
    other = pack(table.slice(0, 1), np.array([0], dtype=np.uint32), 1, source=3)
    both = pa.concat_tables([carried.slice(0, 1), other])
    assert [(source, part.num_rows) for source, part in unpack(both)] == [(3, 1), (7, 3)]
    assert unpack(both)[0][1].to_pylist() == [{"x": 10, "t": "a"}]


def test_tables_are_joined_whatever_their_dictionaries() -> None:
    left, right = (pa.table({"w": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c", "a"]))
    joined = join([left, right])
    assert joined.column("w").num_chunks == 1
    assert joined.column("w").to_pylist() == ["a", "b", "c", "a"]
