"""Large objects are stored once, and never with an old content."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.batch import packing, wire
from dray.batch.shared import IDLE_BYTES, LARGE_BYTES, Memory, Store, size_of
from living import open_files


@pytest.fixture
def store() -> Store:
    return Store(Memory())


def large(count: int = 200_000) -> np.ndarray:
    return np.arange(count, dtype=np.float64)


def descriptors() -> int:
    """Of stored values only: others of this process come and go."""
    return len([name for name in open_files() if name.startswith("/memfd:dray")])


def read(payload: bytes, keys: Any, store: Store) -> Any:
    wire.objects.clear()
    wire.objects.update({key: store.view(key) for key in keys})
    return wire.loads(payload)


def test_the_same_array_in_many_items_is_stored_once(store: Store) -> None:
    array = large()
    packed = packing.Packing(store).pack([(array, number) for number in range(100)])
    assert store.stored == 1
    assert len(packed.payload) < 10_000
    items = read(packed.payload, packed.shared, store)
    assert np.array_equal(items[99][0], array)
    assert not items[0][0].flags.writeable


def test_batch_after_batch_and_call_after_call_it_stays_the_same(store: Store) -> None:
    array = large()
    for number in range(10):
        packed = packing.Packing(store).pack([(array, number)])
        store.release(packed.shared)
        store.end()
    assert store.stored == 1


def test_an_array_that_was_changed_is_stored_anew(store: Store) -> None:
    array = large()
    first = packing.Packing(store).pack([array])
    array[5] = -1.0
    second = packing.Packing(store).pack([array])
    assert store.stored == 2
    assert read(first.payload, first.shared, store)[0][5] == 5.0
    assert read(second.payload, second.shared, store)[0][5] == -1.0


def test_an_iterator_that_reuses_its_buffer_is_taken_at_its_word(store: Store) -> None:
    buffer = large()
    frozen = []
    for number in range(3):
        buffer[0] = number
        frozen.append(packing.Packing(store).freeze(buffer))
    packed = packing.Packing(store).pack(frozen)
    assert [item[0] for item in read(packed.payload, packed.shared, store)] == [0.0, 1.0, 2.0]


def test_a_new_object_at_an_old_address_is_not_mistaken(store: Store) -> None:
    for number in range(20):
        array = np.full(200_000, float(number))
        packed = packing.Packing(store).pack([array])
        assert read(packed.payload, packed.shared, store)[0][0] == number
        store.release(packed.shared)
        del array


def test_objects_that_are_gone_leave_nothing_behind(store: Store) -> None:
    gc.collect()
    before = descriptors()
    for number in range(50):
        packed = packing.Packing(store).pack([large() + number])
        store.release(packed.shared)
    store.begin()
    assert descriptors() == before


def test_byte_strings_that_nobody_uses_do_not_pile_up(store: Store) -> None:
    before = descriptors()
    size = IDLE_BYTES // 8
    for number in range(40):
        packed = packing.Packing(store).pack([bytes([number]) * size])
        store.release(packed.shared)
    assert descriptors() - before <= 9
    store.end()
    assert descriptors() == before


@pytest.mark.parametrize(
    "value",
    [
        b"x" * LARGE_BYTES,
        bytearray(b"y" * LARGE_BYTES),
        "ä" * LARGE_BYTES,
        pa.table({"a": list(range(200_000))}),
        np.asfortranarray(np.ones((1000, 300))),
        np.ones((2000, 300))[:, ::2],
    ],
    ids=["bytes", "bytearray", "str", "table", "fortran", "strided"],
)
def test_every_large_kind_comes_back_as_it_was(value: Any, store: Store) -> None:
    packed = packing.Packing(store).pack([value, [value]])
    assert store.stored == 1
    one, (other,) = read(packed.payload, packed.shared, store)
    for found in (one, other):
        assert type(found) is type(value)
        assert found.equals(value) if isinstance(value, pa.Table) else np.array_equal(found, value)


def test_frames_of_pandas_share_their_arrays(store: Store) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": large(), "b": large()})
    packed = packing.Packing(store).pack([(frame, number) for number in range(10)])
    assert len(packed.payload) < 100_000
    assert read(packed.payload, packed.shared, store)[3][0].equals(frame)


def test_a_batch_is_split_without_storing_anything_again(store: Store) -> None:
    array = large()
    packed = packing.Packing(store).pack([(array, number) for number in range(10)])
    parts = packing.Packing(store).split(packed.payload, [(0, 4), (4, 10)])
    store.release(packed.shared)
    assert store.stored == 1
    assert [len(read(part.payload, part.shared, store)) for part in parts] == [4, 6]
    frozen = packing.Packing(store).pack([packing.Packing(store).freeze(array), 1])
    (part,) = packing.Packing(store).split(frozen.payload, [(0, 1)])
    store.release(frozen.shared)
    assert np.array_equal(read(part.payload, part.shared, store)[0], array)
    assert packing.Packing(store).text(frozen.payload, 1) == "1"


def test_small_things_are_not_shared(store: Store) -> None:
    packed = packing.Packing(store).pack([np.arange(10), "text", b"bytes", {"a": [1, 2]}])
    assert packed.shared == ()
    assert size_of(object()) == 0


def test_an_item_that_cannot_be_pickled_is_named(store: Store) -> None:
    packed = packing.Packing(store).pack([1, (number for number in range(3)), large()])
    assert [(trouble.offset, trouble.kind) for trouble in packed.troubles] == [(1, "pickle")]
    assert "generator" in packed.troubles[0].reason
    store.end()


def test_a_store_survives_what_cannot_be_pickled_halfway(store: Store) -> None:
    array = large()
    with pytest.raises(TypeError):
        packing.dumps((array, (number for number in range(3))), store)  # the array is stored by then
    packed = packing.Packing(store).pack([array])
    store.release(packed.shared)
    del array
    before = descriptors()
    store.begin()
    assert descriptors() == before - 1
    assert os.getpid()
