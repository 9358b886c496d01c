"""How many different values there are: estimated from a sample, or from hashes of all values.

Pure: arrays in, numbers out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from dray.data.splitmix import GOLDEN, splitmix64

Hashes = npt.NDArray[np.uint64]

KEPT_HASHES = 1 << 14
"""Exact up to so many different values; above, the standard error is 1 / sqrt(16384) = 0.8 %."""


def estimate_distinct(counts: npt.NDArray[np.int64], total: int | None) -> int:
    """Return an estimate for all `total` values from how often each different one occurs in a sample.

    Chao's estimator, bias-corrected: values that occur once (f1) and twice (f2) estimate how many were not seen,
    d + f1 (f1 - 1) / (2 (f2 + 1)). Close where values are about equally frequent, else on the low side. A sample
    without repetitions gives no bound but the number of rows.
    """
    seen = len(counts)
    once, twice = int(np.count_nonzero(counts == 1)), int(np.count_nonzero(counts == 2))
    estimate = seen + once * (once - 1) // (2 * (twice + 1))
    return max(seen, estimate if total is None else min(total, estimate))


class Sketch:
    """Counts different values in little memory: the smallest hashes are kept (KMV)."""

    def __init__(self) -> None:
        self._kept: Hashes = np.empty(0, np.uint64)
        self._full = False

    def add(self, values: pa.Array) -> None:
        """Add values, none of them missing."""
        # Text is slow to hash; numbers are faster to hash than to compare.
        found = hashes(values.unique() if _is_text(values.type) else values)
        if self._full:
            found = found[found < self._kept[-1]]
        if len(found):
            merged = np.unique(np.concatenate([self._kept, found]))
            self._full = self._full or len(merged) > KEPT_HASHES
            self._kept = merged[:KEPT_HASHES]

    @property
    def exact(self) -> bool:
        return not self._full

    @property
    def distinct(self) -> int:
        if not self._full:
            return len(self._kept)
        return int((KEPT_HASHES - 1) * 2.0**64 / float(self._kept[-1]))


def hashes(values: pa.Array) -> Hashes:
    """Return 64 well-mixed bits for every value; the same on every machine."""
    arrow = values.type
    if pt.is_floating(arrow):
        floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return splitmix64((floats + 0.0).view(np.uint64))  # -0.0 is 0.0
    if pt.is_boolean(arrow) or pt.is_integer(arrow):
        whole = values if pt.is_uint64(arrow) else values.cast(pa.int64())
        return splitmix64(whole.to_numpy(zero_copy_only=False).view(np.uint64))
    if pt.is_temporal(arrow):
        whole = values.cast(pa.int32()).cast(pa.int64()) if arrow.bit_width == 32 else values.cast(pa.int64())
        return splitmix64(whole.to_numpy(zero_copy_only=False).view(np.uint64))
    if not (pt.is_binary(arrow) or pt.is_fixed_size_binary(arrow)):
        values = values.cast(pa.string())
    return _of_bytes(values.cast(pa.binary()).cast(pa.large_binary()))


def _is_text(arrow: pa.DataType) -> bool:
    return not (pt.is_floating(arrow) or pt.is_integer(arrow) or pt.is_boolean(arrow) or pt.is_temporal(arrow))


def _of_bytes(values: pa.Array) -> Hashes:
    """Return the hash of each text: its bytes times powers of a number, added up, then mixed."""
    if not len(values):
        return np.empty(0, np.uint64)
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    lengths = np.diff(offsets)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(int(lengths.max()) + 1, GOLDEN))
        places = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
        sums = np.concatenate([[np.uint64(0)], np.cumsum((data.astype(np.uint64) + np.uint64(1)) * powers[places])])
        return splitmix64((sums[offsets[1:]] - sums[offsets[:-1]]) ^ splitmix64(lengths.astype(np.uint64)))
