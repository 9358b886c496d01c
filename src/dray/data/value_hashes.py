"""A hash of the values in a row, by which rows that are alike stay together.

The hash is dray's own, so that a row goes to the same subset on every machine, in every batch and with every version
of every library. It depends on the values, not on their types: 7 as int8, as int64 and as 7.0 have the same hash, and
so have text in a dictionary and plain text, and times in other units.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as pt

from dray.data.splitmix import splitmix64

Hashes = NDArray[np.uint64]

LONG_BYTES = 4096
"""Longer values are hashed one by one by hashlib: they are rare, and the polynomial would need as many powers."""
_STEP = 8192
_COLUMN = np.uint64(0x100000001B3)
_BASE = np.uint64(0xD6E8FEB86659FD93)
_NULL = np.uint64(0xA0761D6478BD642F)
_FRACTION = np.uint64(0xE7037ED1A0B428DB)


def hash_rows(batch: pa.RecordBatch, columns: Sequence[str], seed: int = 0) -> Hashes:
    """Return a hash for each row: of the values in these columns, in this order."""
    found = splitmix64(np.full(batch.num_rows, seed, np.uint64))
    for name in columns:
        found = splitmix64(found * _COLUMN + _hash(batch.column(name)))
    return found


def _hash(array: pa.Array) -> Hashes:
    if pt.is_null(array.type):
        return np.full(len(array), _NULL)
    if pt.is_dictionary(array.type):
        if not len(array.dictionary):
            return np.full(len(array), _NULL)
        found: Hashes = _hash(array.dictionary)[pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)]
    else:
        found = _hash_values(array)
    if array.null_count:
        found[pc.is_null(array).to_numpy(zero_copy_only=False)] = _NULL
    return found


def _hash_values(array: pa.Array) -> Hashes:
    """Return hashes of the values; those of missing values have no meaning."""
    type_ = array.type
    if pt.is_floating(type_):
        return _hash_floats(array)
    if pt.is_timestamp(type_):
        array = array.cast(pa.timestamp("us", type_.tz), safe=False).cast(pa.int64())
    elif pt.is_date(type_):
        array = array.cast(pa.date32(), safe=False).cast(pa.int32())
    elif pt.is_time32(type_) or pt.is_time64(type_):
        array = array.cast(pa.time64("us"), safe=False).cast(pa.int64())
    elif pt.is_duration(type_):
        array = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    if pt.is_integer(array.type) or pt.is_boolean(array.type):
        whole = pc.fill_null(array, array.type.to_pandas_dtype()(0)).to_numpy(zero_copy_only=False)
        return splitmix64(whole.astype(np.int64 if whole.dtype != np.uint64 else np.uint64).view(np.uint64))
    if pt.is_decimal(type_):
        array = array.cast(pa.string())
    if _is_text(array.type):
        return _hash_bytes(array.cast(pa.large_binary()))
    texts = [json.dumps(value, default=str, sort_keys=True) for value in array.to_pylist()]
    return _hash_bytes(pa.array(texts, pa.string()).cast(pa.large_binary()))


def _is_text(type_: pa.DataType) -> bool:
    binary = pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_)
    return bool(binary or pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))


def _hash_floats(array: pa.Array) -> Hashes:
    values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False).copy()
    values[np.isnan(values)] = np.nan  # NaN has many bit patterns
    whole = (np.abs(values) < 2.0**53) & (np.floor(values) == values)
    numbers = np.where(whole, values, 0.0).astype(np.int64).view(np.uint64)
    return splitmix64(np.where(whole, numbers, values.view(np.uint64) ^ _FRACTION))


def _hash_bytes(array: pa.Array) -> Hashes:
    """Return hashes of byte strings: polynomials of their bytes, by differences of running sums."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    content = array.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    long = np.flatnonzero(lengths > LONG_BYTES)
    found = np.empty(len(array), np.uint64)
    for start in range(0, len(array), _STEP):
        stop = min(start + _STEP, len(array))
        if not lengths[start:stop].max(initial=0) > LONG_BYTES:
            found[start:stop] = _polynomials(data, offsets[start : stop + 1], lengths[start:stop])
            continue
        for index in range(start, stop):
            if lengths[index] <= LONG_BYTES:
                found[index] = _polynomials(data, offsets[index : index + 2], lengths[index : index + 1])[0]
    for index in long.tolist():
        digest = hashlib.blake2b(data[offsets[index] : offsets[index + 1]].tobytes(), digest_size=8).digest()
        found[index] = int.from_bytes(digest, "little")
    return found


def _polynomials(data: NDArray[np.uint8], offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    begin = offsets[0]
    part = data[begin : offsets[-1]].astype(np.uint64) + np.uint64(1)
    starts = offsets[:-1] - begin
    part *= _powers()[np.arange(len(part)) - np.repeat(starts, lengths)]
    sums = np.zeros(len(part) + 1, np.uint64)
    np.cumsum(part, out=sums[1:])
    return splitmix64(sums[offsets[1:] - begin] - sums[starts] + lengths.astype(np.uint64))


@lru_cache(maxsize=1)
def _powers() -> Hashes:
    return np.cumprod(np.full(LONG_BYTES, _BASE), dtype=np.uint64)
