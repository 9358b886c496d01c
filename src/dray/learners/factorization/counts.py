"""Whole numbers, each once, and how often each occurs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dray.learners.factorization.factors import Longs

_LEAST_RANGE = 1 << 16


def count_numbers(numbers: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Longs]:
    """Return the different ones of whole numbers (also as floats), in no certain order, and how often each occurs."""
    if len(numbers) == 0:
        return numbers, np.zeros(0, np.int64)
    low, high = numbers.min(), numbers.max()
    if int(high) - int(low) >= max(_LEAST_RANGE, 2 * len(numbers)):
        counted = pc.value_counts(pa.array(numbers))
        return counted.field("values").to_numpy(), counted.field("counts").to_numpy()
    # They lie close together: counting places is ten times faster than a hash table.
    if numbers.dtype.kind == "i":  # a distance may be twice what a narrow type holds
        numbers, low = numbers.astype(np.int64, copy=False), np.int64(low)
    counts = np.bincount((numbers - low).astype(np.int64, copy=False))
    used = np.flatnonzero(counts)
    return used.astype(numbers.dtype) + low, counts[used]
