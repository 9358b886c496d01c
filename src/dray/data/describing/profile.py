"""The profile of one column. Pure: the values of a sample and what is known of all rows in, figures out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.describing import values as v
from dray.data.describing.distinct import estimate_distinct
from dray.data.describing.figures import Basis, ColumnProfile, Figure, Histogram, Kind, Known, ValueShare

TOP_VALUES = 10
FEW_VALUES = 20
"""A column of any type with at most so many different values is described by them."""
BINS = 12
_TAIL = 0.01


def profile_column(
    name: str, column: pa.ChunkedArray | pa.Array, rows: int | None, complete: bool, known: Known
) -> ColumnProfile:
    """Return the profile of a column from its values in a sample.

    `rows` are those of the whole data as far as known; `complete` says that the sample holds all of them.
    """
    arrow = column.type
    kind = v.kind(name, arrow)
    array = v.plain_array(column)
    basis: Basis = "exact" if complete else "sample"
    total = len(array) if complete else rows
    nulls = _share(known.nulls, total, array.null_count, len(array), basis)
    floating = pa.types.is_floating(array.type)
    nan = _share(known.nan, total, v.nan_count(array), len(array), basis) if floating else None
    present = array.drop_null()
    if nan is not None and nan.value:
        present = present.filter(pc.invert(pc.is_nan(present)))
    values, counts = _value_counts(present)
    low, high = _range(present, kind, known, basis)
    distinct = _distinct(counts, kind, total, nulls, low, high, complete, known)
    few = 0 < len(counts) <= FEW_VALUES or kind == "text"
    counted = known.counts is not None and few
    if known.counts is not None and few:
        top = _top(dict(known.counts), total)
    else:
        top = _top_seen(values, counts, len(array)) if few else ()
    return ColumnProfile(
        name=name,
        type=str(arrow),
        kind=kind,
        nulls=nulls,
        nan=nan,
        missing=nulls if nan is None or not nan.value else Figure(nulls.value + nan.value, _weaker(nulls, nan)),
        low=low,
        high=high,
        distinct=distinct,
        values=top,
        values_basis="exact" if counted else basis,
        infinite=_share(known.infinite, total, v.infinite_count(array), len(array), basis) if floating else None,
        histogram=_histogram(present, kind, counts),
        seen=len(present),
        distinct_seen=len(counts),
    )


def _share(known: int | None, total: int | None, seen: int, looked_at: int, basis: Basis) -> Figure:
    if known is not None and total:
        return Figure(known / total, "exact")
    return Figure(seen / looked_at if looked_at else 0.0, basis)


def _weaker(one: Figure, other: Figure) -> Basis:
    return "exact" if one.basis == other.basis == "exact" else "sample"


def _value_counts(present: pa.Array) -> tuple[pa.Array | None, npt.NDArray[np.int64]]:
    """Return the different values and their counts, the most frequent first; nothing for types without an order."""
    if not v.can_be_counted(present.type) or pa.types.is_null(present.type):
        return None, np.empty(0, np.int64)
    found = pc.value_counts(present)
    counts = found.field("counts").to_numpy(zero_copy_only=False)
    order = np.argsort(-counts, kind="stable")
    return found.field("values").take(pa.array(order)), counts[order]


def _top_seen(values: pa.Array | None, counts: npt.NDArray[np.int64], rows: int) -> tuple[ValueShare, ...]:
    if values is None:
        return ()
    seen = zip(values[:TOP_VALUES].to_pylist(), counts[:TOP_VALUES].tolist(), strict=True)
    return tuple(ValueShare(v.plain(value), count / rows) for value, count in seen)


def _top(counts: dict[Any, int], rows: int | None) -> tuple[ValueShare, ...]:
    most = sorted(counts.items(), key=lambda item: -item[1])[:TOP_VALUES]
    return tuple(ValueShare(v.plain(value), count / max(1, rows or 0)) for value, count in most)


def _range(present: pa.Array, kind: Kind, known: Known, basis: Basis) -> tuple[Figure | None, Figure | None]:
    if kind == "other":
        return None, None
    if known.low is not None and known.high is not None:
        return Figure(v.plain(known.low), "exact"), Figure(v.plain(known.high), "exact")
    low, high = v.extremes(pc.utf8_length(present.cast(pa.string())) if kind == "text" else present)
    if low is None:
        return None, None
    return Figure(v.plain(low), basis), Figure(v.plain(high), basis)


def _distinct(
    counts: npt.NDArray[np.int64],
    kind: Kind,
    total: int | None,
    nulls: Figure,
    low: Figure | None,
    high: Figure | None,
    complete: bool,
    known: Known,
) -> Figure | None:
    if known.distinct is not None:
        return known.distinct
    if kind == "other" and not len(counts):
        return None
    if complete:
        return Figure(len(counts), "exact")
    most = None if total is None else round(total * (1 - nulls.value))
    if low is not None and high is not None and low.basis == "exact" and isinstance(low.value, int) and kind != "text":
        between = int(high.value) - low.value + 1  # a whole number cannot have more values than its range
        if len(counts) == between:
            return Figure(between, "exact")
        most = between if most is None else min(most, between)
    return Figure(estimate_distinct(counts, most), "estimate")


def _histogram(present: pa.Array, kind: Kind, counts: npt.NDArray[np.int64]) -> Histogram | None:
    """Return bins of equal width between the outer quantiles; of text and booleans the most frequent values."""
    if kind == "other" or not len(present):
        return None
    if kind in ("text", "boolean"):
        return Histogram(tuple(counts[:TOP_VALUES].tolist()))
    numbers = v.numbers(present)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    numbers.sort()
    tail = int(_TAIL * len(numbers))
    low, high = numbers[tail], numbers[-1 - tail]
    if low == high:  # nearly all are one value: the rest decides the width
        low, high = numbers[0], numbers[-1]
    if low == high:
        found = np.array([len(numbers)])
    else:
        # From 0 on: between ids above 2^53 there are fewer doubles than edges of bins.
        found, _ = np.histogram(np.clip(numbers, low, high) - low, bins=BINS, range=(0, high - low))
    return Histogram(tuple(found.tolist()), v.from_number(low, kind), v.from_number(high, kind))
