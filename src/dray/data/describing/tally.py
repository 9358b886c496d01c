"""Exact figures when all rows are read: counted batch by batch, in constant memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dray.data.describing import values as v
from dray.data.describing.distinct import Sketch
from dray.data.describing.figures import Figure, Known

MOST_COUNTED = 1000
"""Up to so many different values of a column are counted exactly; beyond, only those of a sample."""


class Tally:
    """One column. One thread at a time."""

    def __init__(self, name: str, arrow: pa.DataType) -> None:
        self._kind = v.kind(name, arrow)
        self._nulls = self._nan = self._infinite = 0
        self._low: Any = None
        self._high: Any = None
        countable = v.can_be_counted(arrow) and not pa.types.is_null(arrow)
        self._sketch = Sketch() if countable else None
        self._counts: Counter[Any] | None = Counter() if countable else None

    def add(self, column: pa.Array) -> None:
        array = v.plain_array(column)
        self._nulls += array.null_count
        nan = v.nan_count(array)
        self._nan += nan
        self._infinite += v.infinite_count(array)
        present = array.drop_null()
        if nan:
            present = present.filter(pc.invert(pc.is_nan(present)))
        if not len(present):
            return
        if self._kind != "other":
            lengths = self._kind == "text"
            self._extend(*v.extremes(pc.utf8_length(present.cast(pa.string())) if lengths else present))
        values = self._count(present)
        if self._sketch is not None:
            self._sketch.add(present if values is None else values)

    def known(self) -> Known:
        distinct = None
        if self._sketch is not None:
            distinct = Figure(self._sketch.distinct, "exact" if self._sketch.exact else "estimate")
        return Known(
            nulls=self._nulls,
            nan=self._nan,
            infinite=self._infinite,
            low=self._low,
            high=self._high,
            distinct=distinct,
            counts=self._counts,
        )

    def _extend(self, low: Any, high: Any) -> None:
        if low is not None:
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)

    def _count(self, present: pa.Array) -> pa.Array | None:
        """Count single values while they are few; return the different ones, if they were looked for."""
        if self._counts is None:
            return None
        found = pc.value_counts(present)
        values = found.field("values")
        if len(found) <= MOST_COUNTED:
            self._counts.update(dict(zip(values.to_pylist(), found.field("counts").to_pylist(), strict=True)))
        if max(len(found), len(self._counts)) > MOST_COUNTED:
            self._counts = None
        return values
