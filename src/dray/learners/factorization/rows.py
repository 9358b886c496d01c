"""From Parquet to what is trained on: a first pass over all ids, then the rows, divided by block of users.

Workers scan their row groups (`scan`); the driver merges what they found (`merge`); then the same rows are read again,
as indices and values (`by_unit`). No row becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.features import is_text
from dray.data.fitted import with_given
from dray.data.parquet import with_fields
from dray.data.parquet_footer import read_footer, schema_of
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.data.times import has_text
from dray.errors import DataError
from dray.learners.factorization.counts import count_numbers
from dray.learners.factorization.events import (
    Mask,
    RowRule,
    Trouble,
    UnitRows,
    Wrong,
    count_types,
    first_example,
    ratings_of,
    require_columns,
    weights_of,
    with_ids_of_model,
    without_ids,
    wrong_ratings,
)
from dray.learners.factorization.factors import Floats, Ints, Longs
from dray.learners.factorization.ids import UNKNOWN
from dray.learners.factorization.known import Found, IdCounts, Ids, Known, found_before, merge
from dray.learners.factorization.times import TimeSketch, seconds_of
from dray.learners.ids import as_ids
from dray.retry import OnWait, no_report
from dray.storage import StorageOptions

__all__ = [
    "Found",
    "Ids",
    "Known",
    "RowRule",
    "UnitRows",
    "by_unit",
    "found_before",
    "merge",
    "read_as_one",
    "require_columns",
    "scan",
]

OnRows = Callable[[int], None]
_LEAST_ROWS = 1 << 20
_MOST_ROWS = 1 << 22
"""Rows that are looked up at once: about as many as there are ids, whose hash table is built each time."""


def _no_rows(_: int) -> None:
    pass


def scan(
    slices: Sequence[Slice],
    rule: RowRule,
    storage: StorageOptions,
    on_rows: OnRows = _no_rows,
    on_wait: OnWait = no_report,
    *,
    test: bool = False,
) -> Found:
    """Return what is in these rows. Rows that cannot be used are counted; `merge` refuses them, with all there are."""
    found = Found(IdCounts("user"), IdCounts("item"), test=test)
    if rule.event:
        found.weights = dict(rule.weights)
    for piece, whole in _read(slices, rule, storage, on_wait):
        batch = _with_ids(whole, rule)
        found.dropped += whole.num_rows - batch.num_rows
        _count_ids(found, found.users, piece, rule.user, batch.column(rule.user), "no user")
        _count_ids(found, found.items, piece, rule.item, batch.column(rule.item), "no item")
        if rule.rating:
            column = batch.column(rule.rating)
            for wrong, mask in wrong_ratings(column).items():
                _note(found, wrong, piece, rule.rating, column, mask)
        elif rule.event:
            count_types(batch.column(rule.event), rule.event, found.events)
        if rule.time:
            _look_at_times(found, piece, rule, batch.column(rule.time))
        found.rows += batch.num_rows
        on_rows(whole.num_rows)
    for side in (found.users, found.items):
        side.result()  # what travels is small
    return found


def by_unit(
    slices: Sequence[Slice],
    rule: RowRule,
    ids: Ids,
    block_of_user: np.ndarray[tuple[int], np.dtype[np.integer]],
    blocks: int,
    storage: StorageOptions,
    on_rows: OnRows = _no_rows,
    on_wait: OnWait = no_report,
    *,
    test: bool = False,
) -> list[tuple[UnitRows, ...]]:
    """Return these rows by block of users, each in some pieces in the order of the data.

    In pieces, since to join them would need memory for a block's rows twice, scattered over the heap.
    """
    users, items = _Finder(ids.user_ids, rule.user), _Finder(ids.item_ids, rule.item)
    pieces: list[list[UnitRows]] = [[] for _ in range(blocks)]
    at_once = min(_MOST_ROWS, max(_LEAST_ROWS, len(ids.user_ids), len(ids.item_ids)))
    block_type = np.uint16 if blocks <= 1 << 16 else np.int32  # numpy sorts 16 bits in one pass
    for wholes in _gathered(_read(slices, rule, storage, on_wait), at_once, on_rows):
        batches = [batch for batch in (_with_ids(whole, rule) for whole in wholes) if batch.num_rows]
        if not batches:
            continue
        user = users.find([batch.column(rule.user) for batch in batches])
        item = items.find([batch.column(rule.item) for batch in batches])
        value = np.concatenate([_values(batch, rule) for batch in batches])
        if not np.isfinite(value.sum(dtype=np.float64)):
            raise _changed()
        time = (
            np.concatenate([seconds_of(batch.column(rule.time), rule.time_form) for batch in batches])
            if rule.time
            else None
        )
        block = block_of_user[user].astype(block_type)
        order = np.argsort(block, kind="stable")
        ends = np.cumsum(np.bincount(block, minlength=blocks))
        for number, rows in enumerate(np.split(order, ends[:-1])):
            if len(rows):
                own = None if time is None else time[rows]
                pieces[number].append(UnitRows(user[rows], item[rows], value[rows], own, test))
    return [tuple(held) for held in pieces]


def read_as_one(slices: Sequence[Slice], rule: RowRule, ids: Ids, storage: StorageOptions) -> tuple[UnitRows, ...]:
    """Return these rows as those of a single block of users."""
    (pieces,) = by_unit(slices, rule, ids, np.zeros(len(ids.user_ids), np.int64), 1, storage)
    return pieces


def _read(
    slices: Sequence[Slice], rule: RowRule, storage: StorageOptions, on_wait: OnWait
) -> Iterator[tuple[Slice, pa.RecordBatch]]:
    if slices:  # before a reader meets a column that is not there; what one file of a data set lacks is given to it
        first = with_fields(schema_of(read_footer(slices[0].file, storage).metadata), slices[0].constants)
        require_columns(with_given(first, slices[0].given), rule)
    checked = ""
    for piece, batch in read_slices(slices, rule.columns, rule.texts, storage, on_wait):
        if piece.file != checked:
            require_columns(batch.schema, rule)
            checked = piece.file
        yield piece, with_ids_of_model(batch, rule)


def _with_ids(batch: pa.RecordBatch, rule: RowRule) -> pa.RecordBatch:
    missing = without_ids(batch, rule)
    return batch if missing is None else batch.filter(pa.array(~missing))


def _gathered(
    batches: Iterator[tuple[Slice, pa.RecordBatch]], rows: int, on_rows: OnRows
) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches some together, so that each time has about so many rows."""
    held: list[pa.RecordBatch] = []
    count = 0
    for _, batch in batches:
        if held and count + batch.num_rows > rows:
            yield held
            on_rows(count)
            held, count = [], 0
        held.append(batch)
        count += batch.num_rows
    if held:
        yield held
        on_rows(count)


def _count_ids(found: Found, side: IdCounts, piece: Slice, name: str, column: pa.Array, missing: Wrong) -> None:
    if pt.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if column.null_count:
        _note(found, missing, piece, name, column, pc.is_null(column).to_numpy(zero_copy_only=False))
        column = column.drop_null()
    if pt.is_dictionary(column.type):
        counts = np.bincount(column.indices.to_numpy(), minlength=len(column.dictionary))
        used = np.flatnonzero(counts)  # a row group's dictionary comes with each of its batches
        side.add(column.dictionary.take(pa.array(used)), counts[used], piece.file)
    elif pt.is_integer(column.type):
        numbers, counts = count_numbers(column.to_numpy())
        side.add(pa.array(numbers), counts, piece.file)
    elif len(column):
        counted = pc.value_counts(column)
        side.add(counted.field("values"), counted.field("counts").to_numpy(), piece.file)


def _look_at_times(found: Found, piece: Slice, rule: RowRule, column: pa.Array) -> None:
    assert rule.time is not None
    times = seconds_of(column, rule.time_form)
    finite = np.isfinite(times)
    if not finite.all():
        text = has_text(column) if is_text(_plain(column.type)) else np.zeros(len(column), np.bool_)
        _note(found, "text time", piece, rule.time, column, ~finite & text)
        _note(found, "no time", piece, rule.time, column, ~finite & ~text)
        times = times[finite]
    if found.times is None:
        found.times = TimeSketch()
    if len(times):
        found.latest = max(float(times.max()), -np.inf if found.latest is None else found.latest)
        found.times.add(times)


def _plain(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if pt.is_dictionary(arrow) else arrow


def _note(found: Found, wrong: Wrong, piece: Slice, name: str, column: pa.Array, mask: Mask) -> None:
    """Keep how many rows are wrong, and the first of them."""
    if count := int(np.count_nonzero(mask)):
        row, value = first_example(column, mask)
        trouble = Trouble(count, name, value, piece.file, piece.position + row)
        found.trouble[wrong] = found.trouble[wrong].joined(trouble) if wrong in found.trouble else trouble


def _values(batch: pa.RecordBatch, rule: RowRule) -> Floats:
    if rule.rating:
        return ratings_of(batch.column(rule.rating))
    if rule.event:
        return weights_of(batch.column(rule.event), rule.weights)
    return np.ones(batch.num_rows, np.float32)


class _Finder:
    """Finds the index of every row's id."""

    def __init__(self, ids: pa.Array, name: str) -> None:
        self._ids, self._name = ids, name
        self._low = 0
        self._table: Ints | None = None
        if pt.is_int64(ids.type) and len(ids):
            low, high = ids[0].as_py(), ids[-1].as_py()
            if high - low < 4 * len(ids) + _LEAST_ROWS:  # nearly every number is an id: no search at all
                self._low = low
                self._table = np.full(high - low + 1, UNKNOWN, np.int32)
                self._table[ids.to_numpy() - low] = np.arange(len(ids), dtype=np.int32)

    def find(self, columns: Sequence[pa.Array]) -> Ints:
        if any(pt.is_dictionary(column.type) for column in columns):
            found = self._of_dictionaries(columns)
        elif self._table is not None:
            found = np.concatenate([self._in_table(column) for column in columns])
        else:
            found = self._searched(pa.chunked_array([as_ids(column, self._name) for column in columns]))
        if found.min() < 0:
            raise _changed()
        return found

    def _of_dictionaries(self, columns: Sequence[pa.Array]) -> Ints:
        """Look up what is different only."""
        columns = [_encoded(column) for column in columns]
        if any(column.null_count for column in columns):
            raise _changed()
        local = [as_ids(column.dictionary, self._name) for column in columns]
        code_of = self._searched(pa.chunked_array(local))
        starts: Longs = np.cumsum([0, *(len(dictionary) for dictionary in local)])
        codes = (column.indices.to_numpy() for column in columns)
        return np.concatenate([code_of[start:][code] for start, code in zip(starts, codes, strict=False)])

    def _in_table(self, column: pa.Array) -> Ints:
        assert self._table is not None
        numbers = as_ids(column, self._name).to_numpy() - self._low
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self._table):
            raise _changed()
        found: Ints = self._table[numbers]
        return found

    def _searched(self, wanted: pa.ChunkedArray) -> Ints:
        if wanted.type != self._ids.type:
            raise _changed()
        found = pc.index_in(wanted, value_set=self._ids)
        return np.asarray(pc.fill_null(found, UNKNOWN).to_numpy(), np.int32)


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    if not pt.is_dictionary(column.type):
        return column.dictionary_encode()
    return column.dictionary_decode().dictionary_encode() if column.dictionary.null_count else column


def _changed() -> DataError:
    return DataError(
        "The data was changed while it was read: there are ids or values that were not there before.",
        fix="Start again when no process writes the data.",
    )
