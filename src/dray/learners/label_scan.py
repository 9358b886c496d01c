"""What values a label has, and how many rows have each: a look through one column before the rows are loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.features import texts_of
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.learners.learner import Op
from dray.retry import OnWait, no_report
from dray.storage import StorageOptions


@dataclass
class LabelValues:
    """The values of some rows, as text; two of them add up."""

    counts: Counter[str] = field(default_factory=Counter)
    """Rows of each value. Missing and infinite ones are not among them."""
    more: bool = False
    """There are more values than were asked for; the counts are of some rows only."""

    @staticmethod
    def merge(parts: Iterable[LabelValues], most: int) -> LabelValues:
        """The same for any division of the rows: with `more`, only that is."""
        merged = LabelValues()
        for part in parts:
            merged.counts.update(part.counts)
            merged.more |= part.more
        merged.more |= len(merged.counts) > most
        return merged


def scan_label(
    slices: Sequence[Slice], name: str, most: int, storage: StorageOptions, on_wait: OnWait = no_report
) -> LabelValues:
    """Count the values of a column; stop where there are more than `most`."""
    found = LabelValues()
    for _, batch in read_slices(slices, [name], [name], storage, on_wait):
        for value, count in _counted(batch.column(0)):
            found.counts[value] += count
        if len(found.counts) > most:
            found.more = True
            break
    return found


class Waiting(Protocol):
    """A worker that can look through a column."""

    def on_wait(self, error: Any, wait_s: float) -> None:
        """A store does not answer; it is asked again."""


@dataclass(frozen=True)
class ScanLabel(Op[..., LabelValues]):
    """Count the values of a label."""

    def __call__(self, side: Waiting, *inputs: Any, **_: Any) -> LabelValues:
        slices, name, most, storage = inputs
        return scan_label(slices, name, most, storage, side.on_wait)


def _counted(labels: pa.Array) -> list[tuple[str, int]]:
    if pt.is_dictionary(labels.type):
        labels = labels.dictionary_decode()
    labels = labels.drop_null()
    if pt.is_floating(labels.type):
        labels = labels.filter(pc.is_finite(labels))
    counted = pc.value_counts(labels)
    texts = texts_of(counted.field("values"))
    return list(zip(texts.to_pylist(), counted.field("counts").to_pylist(), strict=True))
