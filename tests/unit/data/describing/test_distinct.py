"""How many different values there are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.describing import distinct
from dray.data.describing.distinct import KEPT_HASHES, Sketch, estimate_distinct, hashes

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def mix(word: int) -> int:
    """SplitMix64, as its author writes it."""
    word = (word + STEP) & MASK
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def of_bytes(text: bytes) -> int:
    total = sum((byte + 1) * pow(STEP, place + 1, 1 << 64) for place, byte in enumerate(text))
    return mix((total & MASK) ^ mix(len(text)))


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [
        ([], None, 0),
        ([5, 5, 5], None, 3),
        ([1, 1, 1, 2, 9], None, 5 + 3 * 2 // 4),
        ([1] * 10, None, 10 + 45),
        ([1] * 10, 20, 20),
        ([1] * 10, 5, 10),
        ([1], None, 1),
    ],
)
def test_those_not_seen_are_estimated_from_those_seen_once_and_twice(
    counts: list[int], total: int | None, expected: int
) -> None:
    assert estimate_distinct(np.array(counts, np.int64), total) == expected


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array([0, 1, -1]), [0, 1, MASK]),
        (pa.array([0, 2**64 - 1], pa.uint64()), [0, MASK]),
        (pa.array([True, False]), [1, 0]),
        (pa.array([7], pa.int8()), [7]),
        (pa.array([0.0, -0.0], pa.float32()), [0, 0]),
        (pa.array([1.0]), [0x3FF0000000000000]),
        (pa.array([dt.date(1970, 1, 3)]), [2]),
        (pa.array([5], pa.timestamp("us")), [5]),
        (pa.array([5], pa.time32("s")), [5]),
        (pa.array([5], pa.duration("s")), [5]),
    ],
)
def test_numbers_and_times_are_mixed_as_they_are(array: pa.Array, words: list[int]) -> None:
    assert [int(word) for word in hashes(array)] == [mix(word) for word in words]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.string_view()])
def test_texts_are_sums_of_their_bytes_by_place(kind: pa.DataType) -> None:
    texts: list[Any] = ["", "a", "ab", "ba", "ä" * 40]
    if kind == pa.binary():
        texts = [text.encode() for text in texts]
    expected = [of_bytes(text if isinstance(text, bytes) else text.encode()) for text in texts]
    assert [int(word) for word in hashes(pa.array(texts, kind))] == expected
    assert [int(word) for word in hashes(pa.array(["before", "ab"]).slice(1))] == [of_bytes(b"ab")]
    assert len(hashes(pa.array([], kind))) == 0


def test_bytes_of_a_fixed_size_are_texts() -> None:
    assert [int(word) for word in hashes(pa.array([b"abc"], pa.binary(3)))] == [of_bytes(b"abc")]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_up_to_the_limit_a_sketch_is_exact_and_above_it_close(kind: pa.DataType) -> None:
    sketch = Sketch()
    for _ in range(2):
        sketch.add(pa.array(range(KEPT_HASHES)).cast(kind))
    assert (sketch.exact, sketch.distinct) == (True, KEPT_HASHES)
    sketch.add(pa.array([-1]).cast(kind))
    assert not sketch.exact
    for start in range(0, 200_000, 50_000):
        sketch.add(pa.array(range(start, start + 50_000)).cast(kind))
    assert sketch.distinct == pytest.approx(200_001, rel=0.04)
    sketch.add(pa.array([], kind))
    assert not sketch.exact


@pytest.mark.parametrize("step", [1, 50])
def test_a_sketch_keeps_the_smallest_hashes_in_whatever_order_they_come(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distinct, "KEPT_HASHES", 4)
    smallest = np.sort(hashes(pa.array(range(100))))[:4]
    for seed in range(20):
        values = pa.array(np.random.default_rng(seed).permutation(100))
        sketch = Sketch()
        for start in range(0, 100, step):
            sketch.add(values.slice(start, step))
        assert sketch.distinct == int(3 * 2.0**64 / float(smallest[-1]))


def test_an_empty_sketch_has_no_values() -> None:
    assert (Sketch().distinct, Sketch().exact) == (0, True)
