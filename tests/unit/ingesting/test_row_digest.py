"""Digests of rows: equal for equal rows, and for no others; by a second way of reckoning, in plain Python."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.errors import DataError
from dray.ingesting import row_digest
from dray.ingesting.row_digest import digests, first_rows

SEED = 12345
MASK = (1 << 64) - 1
ODD = (0xD6E8FEB86659FD93, 0xA3B195354A39B70D)


def mix(word: int) -> int:
    """The end of SplitMix64, as its author writes it."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


class Lane:
    """One of the two words."""

    def __init__(self, number: int) -> None:
        self.odd = ODD[number]
        self.start = mix(SEED ^ (0x5851F42D4C957F2D if number else 0))

    def fold(self, words: list[int], start: int | None = None) -> int:
        folded = self.start if start is None else start
        for word in words:
            folded = mix((folded * self.odd + word) & MASK)
        return folded

    @property
    def null(self) -> int:
        return mix((self.start + self.odd) & MASK)

    def stretch(self, words: list[int], length: int) -> int:
        total = sum(mix((word + self.start + place * 0x9E3779B97F4A7C15) & MASK) for place, word in enumerate(words))
        return mix((total + length * self.odd) & MASK)

    def text(self, value: bytes) -> int:
        padded = value + bytes(-len(value) % 8)
        return self.stretch([int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)], len(value))


LANES = (Lane(0), Lane(1))


def digest_of(*columns: pa.Array) -> list[list[int]]:
    names = [f"c{index}" for index in range(len(columns))]
    return [[int(word) for word in lane] for lane in digests(pa.table(list(columns), names=names), SEED)]


def test_numbers_are_their_own_bits() -> None:
    values = [0, 1, -1, 2**40]
    expected = [[lane.fold([value & MASK]) for value in values] for lane in LANES]
    assert digest_of(pa.array(values, pa.int64())) == expected
    assert digest_of(pa.array([200, 7], pa.uint8())) == [[lane.fold([value]) for value in (200, 7)] for lane in LANES]
    assert digest_of(pa.array([True, False])) == [[lane.fold([value]) for value in (1, 0)] for lane in LANES]


def test_several_columns_are_folded_in_their_order_and_null_has_a_word_of_its_own() -> None:
    found = digest_of(pa.array([5, None], pa.int64()), pa.array([None, 5], pa.int64()))
    assert found == [[lane.fold([5, lane.null]), lane.fold([lane.null, 5])] for lane in LANES]


def test_floats_are_the_bits_of_doubles_with_one_zero_and_one_nan() -> None:
    values = [0.0, -0.0, 1.5, math.nan, struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]]
    bits = [0, 0, *(struct.unpack("<Q", struct.pack("<d", value))[0] for value in (1.5, math.nan, math.nan))]
    assert digest_of(pa.array(values)) == [[lane.fold([word]) for word in bits] for lane in LANES]
    single = digest_of(pa.array([1.5, 0.0], pa.float32()))
    assert [lane[0] for lane in single] == [lane.fold([bits[2]]) for lane in LANES]


TEXTS = [b"", b"a", b"12345678", b"123456789", b"a\0", "ä€".encode() * 9]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_texts_are_their_words_places_and_lengths(kind: pa.DataType) -> None:
    expected = [[lane.fold([lane.text(text)]) for text in TEXTS] for lane in LANES]
    assert digest_of(pa.array(TEXTS, kind)) == expected
    assert digest_of(pa.array([b"before", *TEXTS, b"after"], pa.binary()).slice(1, len(TEXTS))) == expected


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_a_text_is_the_same_however_it_is_kept(kind: pa.DataType) -> None:
    words = ["view", "buy", None, "", "view"]
    expected = [
        [lane.fold([lane.null if word is None else lane.text(word.encode())]) for word in words] for lane in LANES
    ]
    assert digest_of(pa.array(words, pa.string()).cast(kind)) == expected


def test_long_texts_are_taken_in_pieces_and_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    words = pa.array([f"word {number} " * (number % 5) for number in range(1000)])
    whole = digest_of(words)
    monkeypatch.setattr(row_digest, "TEXT_BYTES", 50)
    monkeypatch.setattr(row_digest, "CHUNK_ROWS", 64)
    assert digest_of(words) == whole


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64()), pa.large_list_view(pa.int64())]
)
def test_lists_are_their_values_places_and_lengths(kind: pa.DataType) -> None:
    values = [[1, 2], [], [2, 1], None, [7]]
    expected = [
        [lane.fold([lane.null if value is None else lane.stretch(value, len(value))]) for value in values]
        for lane in LANES
    ]
    assert digest_of(pa.array(values, kind)) == expected
    assert digest_of(pa.array([[9], *values], kind).slice(1)) == expected


def test_lists_of_a_fixed_size_and_maps_are_lists() -> None:
    fixed = pa.array([[1, 2], [2, 1]], pa.list_(pa.int64(), 2))
    assert digest_of(fixed) == digest_of(pa.array([[1, 2], [2, 1]], pa.list_(pa.int64())))
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([[("x", 9)], [("a", 1), ("b", 2)], [], [("a", 1)]], kind)
    as_structs = [
        [lane.stretch([lane.fold([lane.text(k.encode()), v], lane.start + 2) for k, v in pairs], len(pairs))
         for pairs in ([("a", 1), ("b", 2)], [], [("a", 1)])]
        for lane in LANES
    ]  # fmt: skip
    assert digest_of(maps.slice(1)) == [
        [lane.fold([w]) for w in words] for lane, words in zip(LANES, as_structs, strict=True)
    ]


def test_structs_are_their_fields_and_how_many() -> None:
    values = pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None])
    expected = [
        [
            lane.fold([lane.fold([1, lane.text(b"x")], lane.start + 2)]),
            lane.fold([lane.fold([lane.null, lane.text(b"x")], lane.start + 2)]),
            lane.fold([lane.null]),
        ]
        for lane in LANES
    ]
    assert digest_of(values) == expected
    empty = pa.array([{}, {}], pa.struct([]))
    assert digest_of(empty) == [[lane.fold([lane.start])] * 2 for lane in LANES]


def test_wide_values_are_several_words() -> None:
    values = [Decimal("1.50"), Decimal("-2.25")]
    raw = [int(value.scaleb(2)) & ((1 << 128) - 1) for value in values]
    expected = [[lane.fold([lane.fold([word & MASK, word >> 64])]) for word in raw] for lane in LANES]
    assert digest_of(pa.array(values, pa.decimal128(10, 2))) == expected
    assert digest_of(pa.array([b"12345", b"54321"], pa.binary(5)).slice(1)) == [
        [lane.fold([lane.fold([int.from_bytes(b"54321", "little")])])] for lane in LANES
    ]


COLUMNS: list[list[Any]] = [
    [None, 0, 1, 2**53, 2**53 + 1, -1],
    [None, 0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 0.1],
    [None, "", "a", "b", "ab", "a\0", "a" * 8, "a" * 9, "a" * 16],
    [None, [], [0], [0, 0], [1, 0], [0, 1], [None], [None, None]],
    [None, {"a": None}, {"a": 0}, {"a": 1}],
    [None, dt.date(2026, 1, 1), dt.date(2026, 1, 2)],
    [None, True, False],
    [None, Decimal("1.1"), Decimal("1.2")],
]


@pytest.mark.parametrize("values", COLUMNS, ids=range(len(COLUMNS)))
def test_different_values_have_different_digests_in_both_words(values: list[Any]) -> None:
    for lane in digest_of(pa.array(values)):
        assert len(set(lane)) == len(values)


def test_rows_differ_by_the_column_in_which_a_value_stands() -> None:
    left, right = zip(*itertools.product(["", "a", "ab", "b"], repeat=2), strict=True)
    for lane in digest_of(pa.array(left), pa.array(right)):
        assert len(set(lane)) == 16


def test_a_column_of_nulls_an_empty_table_and_an_empty_dictionary() -> None:
    assert digest_of(pa.nulls(2)) == [[lane.fold([lane.null])] * 2 for lane in LANES]
    assert digests(pa.table({"a": pa.array([], pa.int64())}), SEED).shape == (2, 0)
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert digest_of(nothing) == [[lane.fold([lane.null])] * 2 for lane in LANES]


def test_an_extension_is_what_it_is_kept_as() -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, b"1" * 16], pa.binary(16)))
    assert digest_of(uuids) == digest_of(uuids.storage)


def test_another_seed_gives_other_digests_and_chunks_do_not_matter() -> None:
    table = pa.table({"a": pa.chunked_array([[1, 2], [3], [4, 5, 6]])})
    assert np.array_equal(digests(table, 1), digests(table.combine_chunks(), 1))
    assert not np.any(digests(table, 1) == digests(table, 2))


def test_what_has_no_width_is_refused_with_the_column() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, 2]))
    with pytest.raises(DataError, match='The column "c0" is run_end_encoded'):
        digest_of(runs)


@pytest.mark.parametrize(
    ("high", "low", "first"),
    [
        ([], [], []),
        ([5], [1], [0]),
        ([5, 5, 3, 5], [1, 1, 1, 1], [0, 2]),
        ([5, 5, 5, 5], [2, 1, 2, 1], [0, 1]),  # equal in one word alone
        ([3, 2, 1], [0, 0, 0], [0, 1, 2]),
        ([1, 2, 1, 2], [9, 9, 9, 8], [0, 1, 3]),
    ],
)
def test_the_first_of_equal_rows_is_found(high: list[int], low: list[int], first: list[int]) -> None:
    assert first_rows(np.array([high, low], dtype=np.uint64)).tolist() == first
