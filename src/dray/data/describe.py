"""Describe data: rows, columns, layout, and warnings before training on it.

Rows, nulls and ranges come from Parquet's footers; everything else from a sample that is spread over all the data, so
that a description of a billion rows takes seconds. `sample=0` reads every row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from dray.data.describing.concerns import concerns_about, leak_concerns
from dray.data.describing.figures import NOTHING_KNOWN, ColumnProfile, Concern, Description, Figure, Known, Layout
from dray.data.describing.footers import Footers, read_footers
from dray.data.describing.layout import other_layout, parquet_layout
from dray.data.describing.profile import profile_column
from dray.data.describing.sampling import Sample, take_sample
from dray.data.features import require_column
from dray.data.open_source import open_source
from dray.data.source import Source
from dray.data.sources.parquet import ParquetSource
from dray.errors import ConfigError, DataError
from dray.hints import speaks_python
from dray.storage import takes_paths

SAMPLE_ROWS = 100_000


@speaks_python
@takes_paths
def describe(
    source: Any,
    *,
    label: str | None = None,
    workers: int | None = None,
    sample: int = SAMPLE_ROWS,
    format: str | None = None,
    read: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Description:
    """Describe a source, or anything that `open_source` opens: files, directories, tables in memory.

    With a `label`, warns about columns that alone nearly decide it. With `workers`, judges the layout for that number.
    `sample`: about how many rows are read for what the footers lack; 0 reads all. `format` and `read` say how to read
    the source, as for `dray.train`.

    >>> found = dray.describe("data/", label="y", workers=8)
    >>> found.rows.value, [warning.message for warning in found.warnings]
    """
    if sample < 0:
        raise ConfigError(
            f"A sample of {sample} rows cannot be taken.", fix="Use --sample with a number of rows, or 0 for all."
        )
    if workers is not None and workers < 1:
        raise ConfigError(f"{workers} is not a number of workers.", fix="Use --workers 1 or more.")
    begun = time.perf_counter()
    opened = source if isinstance(source, Source) else open_source(source, format=format, **(read or {}))
    if label is not None:
        _require_label(opened, label)
    footers = read_footers(opened.dataset) if isinstance(opened, ParquetSource) else None
    taken = take_sample(opened, sample, progress or _no_report)
    if not taken.table.num_rows:
        raise _nothing_readable(opened, taken)
    known = (footers.columns if footers else {}) | taken.known
    return _description(opened, taken, known, footers, label, workers, begun)


def _require_label(source: Source, label: str) -> None:
    """Refuse a label that is not there; what was noticed may say why."""
    try:
        require_column(source.schema, label, role="the label")
    except DataError as error:
        noticed = [f"{note.what} {note.fix}" for note in source.notes]
        raise DataError(error.what, fix=" ".join([error.fix, *noticed])) from None


def _description(
    source: Source,
    taken: Sample,
    known: dict[str, Known],
    footers: Footers | None,
    label: str | None,
    workers: int | None,
    begun: float,
) -> Description:
    table = taken.table
    whole = taken.complete and table.num_rows == taken.rows.value

    def profile(name: str) -> ColumnProfile:
        return profile_column(name, table[name], taken.rows.value, whole, known.get(name, NOTHING_KNOWN))

    with ThreadPoolExecutor(pa.cpu_count()) as pool:  # sorting and counting release the GIL
        columns = list(pool.map(profile, table.column_names))
    warnings = [Concern("looks", None, f"{note.what} {note.fix}".strip()) for note in source.notes]
    for column in columns:
        warnings += concerns_about(column, table[column.name], is_label=column.name == label)
    if label is not None:
        target = next(column for column in columns if column.name == label)
        warnings += leak_concerns(target, table, columns)
    if taken.rejected:
        first = taken.rejects[0]
        count = f"{taken.rejected:,} row{'s' * (taken.rejected != 1)}"
        message = f"{count} cannot be read; the first: {first.place}: {first.reason}"
        warnings.append(Concern("rejects", None, message, float(taken.rejected)))
    return Description(
        name=source.name,
        format=source.format,
        rows=taken.rows,
        bytes=source.bytes,
        sample_rows=table.num_rows,
        complete=taken.complete,
        columns=tuple(columns),
        layout=_layout(source, footers, workers),
        label=label,
        warnings=tuple(warnings),
        rejected=Figure(taken.rejected, "exact" if taken.complete else "sample"),
        rejects=taken.rejects,
        seconds=time.perf_counter() - begun,
    )


def _layout(source: Source, footers: Footers | None, workers: int | None) -> Layout:
    if isinstance(source, ParquetSource) and footers is not None:
        groups = [group.rows for group in source.dataset.row_groups]
        return parquet_layout(groups, len(source.dataset.contents), footers.largest_group_bytes, workers)
    files = getattr(source, "files", None) or getattr(source, "sizes", None)
    return other_layout(source.format, None if files is None else len(files), workers)


def _no_report(done: int, total: int) -> None:
    """Ignore the progress."""


def _nothing_readable(source: Source, taken: Sample) -> DataError:
    if not taken.rejected:
        return DataError(f"There are no rows in {source.name}.", fix="Name data that holds rows.")
    first = taken.rejects[0]
    noticed = " ".join(f"{note.what} {note.fix}" for note in source.notes)
    return DataError(
        f"No row of {source.name} can be read: {taken.rejected:,} were tried. The first: {first.place}: {first.reason}",
        fix=noticed or "Check the format and how it is read, such as --read 'delimiter=;' or --read header=false.",
    )
