"""Whether the row groups of a data set suit a number of workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from dray.data.describing.figures import Assignment, Layout
from dray.data.shards import EVEN, assign_evenly, cuts

USUAL_WORKERS = (2, 4, 8, 16, 32, 64)
LARGE_GROUP_BYTES = 1 << 30
INGEST = "dray data ingest DATA OUT"


def assignment(rows: Sequence[int], workers: int) -> Assignment:
    held = [sum(rows[index] for index in indices) for indices in assign_evenly(rows, workers)]
    largest, smallest = max(held), min(held)
    return Assignment(workers, largest, smallest, smallest > 0 and largest <= EVEN * smallest)


def parquet_layout(rows: Sequence[int], files: int, largest_group_bytes: int, workers: int | None) -> Layout:
    """Judge row groups by their rows, for this number of workers or for the usual numbers."""
    dealings = tuple(assignment(cut_rows(rows, count), count) for count in ([workers] if workers else USUAL_WORKERS))
    return Layout(
        files=files,
        row_groups=len(rows),
        rows_per_group=(min(rows), int(median(rows)), max(rows)),
        largest_group_bytes=largest_group_bytes,
        dealings=dealings,
        advice=_advice(rows, dealings, largest_group_bytes, asked=workers is not None),
    )


def cut_rows(rows: Sequence[int], workers: int) -> list[int]:
    """Return the rows of what is assigned: training cuts row groups where whole ones would be uneven."""
    return [stop - start for borders in cuts(rows, workers) for start, stop in pairwise(borders)]


def other_layout(format: str, files: int | None, workers: int | None) -> Layout:
    """The layout of formats without row groups."""
    readers = f"{workers} workers" if workers else "workers"
    name = {"csv": "CSV", "json": "JSON", "arrow": "Arrow", "delta": "Delta Lake", "sql": "SQL"}.get(format, format)
    advice = f"{name} has no row groups to assign to {readers}: convert it to Parquet with {INGEST}"
    return Layout(files=files, row_groups=None, advice=advice)


def _advice(rows: Sequence[int], dealings: Sequence[Assignment], largest_bytes: int, asked: bool) -> str | None:
    if asked and not dealings[0].even:
        return _uneven(rows, dealings[0])
    if not asked and not dealings[0].even and sum(rows) > 1:
        return f"{_uneven(rows, dealings[0])} (Training in one process needs no change.)"
    if largest_bytes > LARGE_GROUP_BYTES:
        return (
            f"Row groups take up to {largest_bytes / 1e9:.1f} GB in memory while a worker reads one: "
            f"write smaller ones with {INGEST}"
        )
    return None


def _uneven(rows: Sequence[int], found: Assignment) -> str:
    if (count := sum(rows)) < found.workers:
        return f"{count:,} row{' is' if count == 1 else 's are'} too few for {found.workers} workers"
    groups = f"{len(rows):,} row group{'s' * (len(rows) != 1)}"
    spread = f"{min(rows):,} to {max(rows):,} rows"
    shares = f"from {found.smallest:,} to {found.largest:,} rows per worker"
    return (
        f"{groups} of {spread} cannot be assigned evenly to {found.workers} workers ({shares}): "
        f"write more and smaller ones with {INGEST}"
    )
