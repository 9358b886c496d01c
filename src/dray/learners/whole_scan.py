"""A look through columns of whole numbers for their different values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.data.whole_numbers import Wholes
from dray.learners.learner import Op
from dray.retry import OnWait, no_report
from dray.storage import StorageOptions


def scan_wholes(
    slices: Sequence[Slice], ranges: Mapping[str, Wholes], storage: StorageOptions, on_wait: OnWait = no_report
) -> dict[str, Wholes]:
    """Return the different values of columns. `ranges` has what is known of each: a range, or nothing.

    A column that has more values than a category can is not read on where its range is known.
    """
    found = dict(ranges)
    for _, batch in read_slices(slices, list(found), [], storage, on_wait):
        for name, known in found.items():
            found[name] = known.joined(_in(batch.column(name), known))
        if all(found[name].more and ranges[name].low is not None for name in found):
            break
    return found


class Waiting(Protocol):
    """A worker that can look through columns."""

    def on_wait(self, error: Any, wait_s: float) -> None:
        """A store does not answer; it is asked again."""


@dataclass(frozen=True)
class ScanWholes(Op[..., dict[str, Wholes]]):
    """Find the different values of columns of whole numbers."""

    def __call__(self, side: Waiting, *inputs: Any, **_: Any) -> dict[str, Wholes]:
        slices, ranges, storage = inputs
        return scan_wholes(slices, ranges, storage, side.on_wait)


def _in(values: pa.Array, known: Wholes) -> Wholes:
    values = values.drop_null()
    if len(values) == 0:
        return Wholes()
    ends = pc.min_max(values).as_py()
    low, high = int(ends["min"]), int(ends["max"])
    if known.more:
        return Wholes(low=low, high=high)
    return Wholes(frozenset(map(int, pc.unique(values).to_pylist())), low, high)
