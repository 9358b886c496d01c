"""A digest of 128 bits for each row: equal rows have equal digests, different rows different ones.

The search for equal rows then handles 16 bytes a row, whatever the columns are. Two of a billion different rows
share their digest with a probability of 10^-21. The seed is random in every run, so that data cannot be crafted to
collide. Null equals null, NaN equals NaN, and 0.0 equals -0.0.

Pure: arrays in, arrays out. Every value becomes two words ("lanes") of 64 bits, by two functions of the same kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.splitmix import finalize
from dray.errors import DataError

Words = npt.NDArray[np.uint64]

CHUNK_ROWS = 1 << 16
"""Rows at a time: the words of a column then stay in the processor's cache."""
TEXT_BYTES = 4 << 20
_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view())
_LISTS = (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray, pa.MapArray, pa.ListViewArray, pa.LargeListViewArray)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.array([[0xD6E8FEB86659FD93], [0xA3B195354A39B70D]], dtype=np.uint64)


def digests(table: pa.Table, seed: int) -> Words:
    """Return the digests of the table's rows as two rows of words. Equal rows have equal digests under one seed."""
    start = finalize(np.array([[seed], [seed ^ 0x5851F42D4C957F2D]], dtype=np.uint64))
    found = [
        _fold([_lanes(name, column, start) for name, column in zip(table.schema.names, chunk, strict=True)], start)
        for chunk in _chunks(table)
    ]
    return np.concatenate(found, axis=1) if found else np.empty((2, 0), dtype=np.uint64)


def first_rows(words: Words) -> npt.NDArray[np.int64]:
    """Return the index of the first occurrence of each digest, ascending."""
    high, low = words
    order = np.argsort(high, kind="stable")
    same = high[order[1:]] == high[order[:-1]]
    other = low[order[1:]] != low[order[:-1]]
    if np.any(same & other):  # one word alone does not distinguish these rows
        order = np.lexsort((low, high))
        same = (high[order[1:]] == high[order[:-1]]) & (low[order[1:]] == low[order[:-1]])
    first = np.ones(len(order), dtype=bool)
    first[1:] = ~same
    return np.sort(order[first])


def _chunks(table: pa.Table) -> list[list[pa.Array]]:
    columns = [_whole(column) for column in table.columns]
    return [[column.slice(start, CHUNK_ROWS) for column in columns] for start in range(0, table.num_rows, CHUNK_ROWS)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _fold(columns: list[Words], start: Words) -> Words:
    """Return one digest of several; their order matters."""
    folded = start
    for words in columns:
        folded = finalize(folded * _ODD + words)
    return folded


def _lanes(name: str, array: pa.Array, start: Words) -> Words:
    kind = array.type
    if pa.types.is_null(kind):
        words = np.zeros((2, len(array)), dtype=np.uint64)
    elif isinstance(array, pa.ExtensionArray):
        return _lanes(name, array.storage, start)
    elif pa.types.is_dictionary(kind):
        words = _dictionary(name, array, start)
    elif pa.types.is_struct(kind):
        words = _fold([_lanes(name, field, start) for field in array.flatten()], start + np.uint64(kind.num_fields))
        words = np.broadcast_to(words, (2, len(array))).copy()
    elif kind in _TEXTS:
        words = _text(array, start)
    elif isinstance(array, _LISTS):
        words = _list(name, array, start)
    elif pa.types.is_floating(kind):
        words = _floats(array)
    else:
        words = _fixed(name, pc.cast(array, pa.uint8()) if pa.types.is_boolean(kind) else array, start)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        words[:, missing] = finalize(start + _ODD)
    return words


def _dictionary(name: str, array: pa.DictionaryArray, start: Words) -> Words:
    values = _lanes(name, array.dictionary, start)
    if not values.shape[1]:
        return np.zeros((2, len(array)), dtype=np.uint64)
    return np.asarray(values[:, array.indices.fill_null(0).to_numpy(zero_copy_only=False)])


def _floats(array: pa.Array) -> Words:
    values = pc.fill_null(pc.cast(array, pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    values = values + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan  # NaN has many bit patterns
    return np.stack([values.view(np.uint64)] * 2)


def _fixed(name: str, array: pa.Array, start: Words) -> Words:
    """Return the words of numbers, times and decimals, whose values all have the same width in bytes."""
    try:
        width = array.type.bit_width // 8
    except ValueError:
        raise DataError(
            f'The column "{name}" is {array.type}, whose values cannot be compared to find duplicates.',
            fix="Name the columns to compare: --dedup a,b.",
        ) from None
    data = array.buffers()[1]
    if data is None or not width:
        return np.zeros((2, len(array)), dtype=np.uint64)
    raw = np.frombuffer(data, dtype=np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    if width in (1, 2, 4, 8):
        return np.stack([raw.view(f"u{width}").astype(np.uint64)] * 2)
    padded = np.zeros((len(array), -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = raw.reshape(len(array), width)
    words = padded.view(np.uint64)
    return _fold([np.stack([words[:, index]] * 2) for index in range(words.shape[1])], start)


def _text(array: pa.Array, start: Words) -> Words:
    array = pc.cast(array, pa.large_binary())
    offsets = _buffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    if len(array) > 1 and offsets[-1] - offsets[0] > TEXT_BYTES:
        half = len(array) // 2
        return np.concatenate([_text(array.slice(0, half), start), _text(array.slice(half), start)], axis=1)
    lengths = np.diff(offsets)
    counts = (lengths + 7) // 8
    first = np.cumsum(counts) - counts
    padded = np.zeros(int(counts.sum()) * 8, dtype=np.uint8)
    if len(padded):
        text = _buffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        shift = first * 8 - (offsets[:-1] - offsets[0])
        padded[np.arange(len(text)) + np.repeat(shift, lengths)] = text
    return _sums(np.broadcast_to(padded.view(np.uint64), (2, len(padded) // 8)), counts, lengths, start)


def _list(name: str, array: pa.Array, start: Words) -> Words:
    if pa.types.is_map(array.type):  # the functions below do not know it
        offsets = array.offsets.to_numpy()
        lengths, values = np.diff(offsets).astype(np.int64), array.values.slice(offsets[0], offsets[-1] - offsets[0])
    else:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
        values = array.flatten()
    return _sums(_lanes(name, values, start), lengths, lengths, start)


def _sums(words: Words, counts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], start: Words) -> Words:
    """Return a digest for each run of `counts` words; their order and number matter."""
    ends = np.cumsum(counts)
    place = np.arange(words.shape[1]) - np.repeat(ends - counts, counts)
    mixed = finalize(words + start + place.astype(np.uint64) * _STEP)
    totals = np.zeros((2, words.shape[1] + 1), dtype=np.uint64)
    np.cumsum(mixed, axis=1, out=totals[:, 1:])
    return finalize(totals[:, ends] - totals[:, ends - counts] + lengths.astype(np.uint64) * _ODD)


def _buffer(buffer: pa.Buffer | None, kind: Any) -> npt.NDArray[Any]:
    return np.empty(0, dtype=kind) if buffer is None else np.frombuffer(buffer, dtype=kind)
