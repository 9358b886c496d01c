"""What must be known of all the data before it can be encoded, and is not in the footers.

Categories need one dictionary for all workers, and ranking groups must not be split: workers scan the text and group
columns of the row groups, and the driver merges what they found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from shlex import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.features import dictionary_of
from dray.data.parquet_rows import Rows, read_slices
from dray.data.shards import GroupEdges, Slice
from dray.errors import DataError
from dray.retry import OnWait, no_report
from dray.storage import StorageOptions

MOST_CATEGORIES = 65_536
"""A column with more distinct strings than this is an id or free text, not a category."""


@dataclass
class Found:
    """What the scan of some row groups found."""

    categories: dict[str, set[str]] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)
    """Columns whose categories are whole numbers."""
    edges: dict[int, GroupEdges] = field(default_factory=dict)
    """By the position of the row group."""
    group_values: list[object] = field(default_factory=list)
    """The group of every run of rows, in order."""


def scan(
    slices: Sequence[Slice],
    categories: Sequence[str],
    group: str | None,
    storage: StorageOptions,
    on_wait: OnWait = no_report,
) -> Found:
    found = Found({name: set() for name in categories})
    columns = [*categories, *([group] if group else [])]
    for whole, batches in _by_slice(slices, read_slices(slices, columns, categories, storage, on_wait)):
        runs: list[tuple[object, int]] = []
        for batch in batches:
            for name in categories:
                column = batch.column(batch.schema.get_field_index(name))
                _add_categories(found.categories[name], column, name)
                if _is_whole(column.type):
                    found.numbers.add(name)
            if group:
                _add_runs(runs, batch.column(batch.schema.get_field_index(group)), group)
        if group:
            found.edges[whole.position] = GroupEdges(runs[0][0], runs[-1][0], runs[0][1])
            found.group_values += [value for value, _ in runs]
    return found


def _by_slice(slices: Sequence[Slice], read: Iterable[Rows]) -> Iterator[tuple[Slice, Iterator[pa.RecordBatch]]]:
    """Yield each slice with its batches, which come in the order of the slices."""
    wholes = iter(slices)
    whole: Slice | None = None

    def slice_of(rows: Rows) -> Slice:
        nonlocal whole
        piece, _ = rows
        while whole is None or not whole.position <= piece.position < whole.position + whole.rows:
            whole = next(wholes)
        return whole

    for found, rows in groupby(read, slice_of):
        yield found, (batch for _, batch in rows)


def merge_categories(scans: Iterable[Found], name: str) -> tuple[str, ...]:
    """Return one dictionary for all workers, sorted: the order of scans does not matter. Numbers sort as numbers."""
    scans = list(scans)
    merged: set[str] = set().union(*(one.categories[name] for one in scans))
    _require_few(merged, name)
    whole = all(name in one.numbers for one in scans if one.categories[name])
    return tuple(sorted(merged, key=int if whole else None))


def require_groups_together(row_groups: Sequence[Slice], scans: Iterable[Found], group: str) -> list[GroupEdges]:
    """Return the edges in order, after checking that the rows of every group are consecutive."""
    edges: dict[int, GroupEdges] = {}
    values: list[object] = []
    for one in scans:
        edges |= one.edges
        values += one.group_values
    ordered = [edges[slice_.position] for slice_ in row_groups]
    crossing = sum(one.last == other.first for one, other in pairwise(ordered))
    if len(values) - crossing != len(set(values)):
        raise DataError(
            f'The rows of a group are not consecutive: a value of "{group}" appears again after other values.',
            fix=f'Sort the data by "{group}" before writing it.',
        )
    return ordered


def run_starts(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """True where a row's value differs from the row before; the first row is True."""
    starts = np.ones(len(values), dtype=np.bool_)
    if len(values) > 1:
        starts[1:] = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
    return starts


def require_no_missing_groups(values: pa.Array, group: str) -> None:
    missing = pc.sum(pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))).as_py()
    if missing:
        raise DataError(
            f'{missing:,} rows have no value in the group column "{group}".',
            fix="Give every row a group, or drop those rows.",
        )


def _add_categories(seen: set[str], values: pa.Array, name: str) -> None:
    seen.update(value for value in dictionary_of(values)[0].to_pylist() if value is not None)
    _require_few(seen, name)


def _is_whole(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow.value_type if pa.types.is_dictionary(arrow) else arrow))


def _require_few(seen: set[str], name: str) -> None:
    if len(seen) > MOST_CATEGORIES:
        raise DataError(
            f'Column "{name}" has more than {MOST_CATEGORIES:,} different values: it is an id or free text.',
            fix=f"Leave it out with --ignore {quote(name)}, or write it as a number.",
        )


def _add_runs(runs: list[tuple[object, int]], values: pa.Array, group: str) -> None:
    require_no_missing_groups(values, group)
    first_rows = np.flatnonzero(run_starts(values))
    lengths = np.diff(np.append(first_rows, len(values)))
    for row, length in zip(first_rows, lengths, strict=True):
        value = values[int(row)].as_py()
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + int(length))
        else:
            runs.append((value, int(length)))
