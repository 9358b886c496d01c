"""Whether the row groups of a data set feed a number of workers well. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from dray.data.describing.figures import Dealing, Layout
from dray.data.shards import deal_evenly

EVEN = 1.05
"""A worker with so many times the rows of another lets it wait in every round."""
USUAL_WORKERS = (2, 4, 8, 16, 32, 64)
LARGE_GROUP_BYTES = 1 << 30
INGEST = "dray data ingest DATA OUT"


def dealing(rows: Sequence[int], workers: int) -> Dealing:
    held = [sum(rows[index] for index in indices) for indices in deal_evenly(rows, workers)]
    largest, smallest = max(held), min(held)
    return Dealing(workers, largest, smallest, smallest > 0 and largest <= EVEN * smallest)


def parquet_layout(rows: Sequence[int], files: int, largest_group_bytes: int, workers: int | None) -> Layout:
    """Judge row groups by their rows, for so many workers or for the usual numbers."""
    dealings = tuple(dealing(rows, count) for count in ([workers] if workers else USUAL_WORKERS))
    return Layout(
        files=files,
        row_groups=len(rows),
        rows_per_group=(min(rows), int(median(rows)), max(rows)),
        largest_group_bytes=largest_group_bytes,
        dealings=dealings,
        advice=_advice(rows, dealings, largest_group_bytes, asked=workers is not None),
    )


def other_layout(format: str, files: int | None, workers: int | None) -> Layout:
    """Of what has no row groups."""
    whom = f" {workers} workers" if workers else " workers"
    name = {"csv": "CSV", "json": "JSON", "arrow": "Arrow", "delta": "Delta Lake", "sql": "SQL"}.get(format, format)
    advice = f"{name} has no row groups to deal to{whom}: write it once as Parquet that has, {INGEST}"
    return Layout(files=files, row_groups=None, advice=advice)


def _advice(rows: Sequence[int], dealings: Sequence[Dealing], largest_bytes: int, asked: bool) -> str | None:
    if asked and not dealings[0].even:
        return _uneven(rows, dealings[0])
    if not asked and not dealings[0].even and sum(rows) > 1:
        return f"{_uneven(rows, dealings[0])} (Training in one process needs nothing.)"
    if largest_bytes > LARGE_GROUP_BYTES:
        return (
            f"Row groups take up to {largest_bytes / 1e9:.1f} GB when read, and whoever reads one needs that memory: "
            f"write smaller ones, {INGEST}"
        )
    return None


def _uneven(rows: Sequence[int], found: Dealing) -> str:
    groups = f"{len(rows):,} row group{'s' * (len(rows) != 1)}"
    if len(rows) < found.workers:
        return f"{groups} cannot feed {found.workers} workers: write the data with smaller ones, {INGEST}"
    spread = f"{min(rows):,} to {max(rows):,} rows"
    shares = f"the largest share has {found.largest:,} rows, the smallest {found.smallest:,}"
    return (
        f"{groups} of {spread} do not feed {found.workers} workers evenly ({shares}): "
        f"write the data with more and smaller ones, {INGEST}"
    )
