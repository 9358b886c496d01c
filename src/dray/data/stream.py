"""A shard as encoded batches, read again at every pass.

Decoding local Parquet again costs less than keeping it decoded: a pass over 2 million rows x 28 columns takes
0.3 s on two cores, and memory stays that of two batches. From an object store, and where the rows are in many small
row groups, the first pass leaves the encoded rows in a local file for the later ones.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.features import Column, Encoder, stored_names
from dray.data.kept_rows import Joined
from dray.data.parquet_rows import are_small, joined, read_slices, rows_of_batch
from dray.data.prepare import Preparation
from dray.data.scan import require_no_missing_groups, run_starts
from dray.data.shards import Slice, Units, rows_of
from dray.retry import OnWait, no_report
from dray.storage import is_s3, translate_errors

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Item = TypeVar("Item")

KEPT_BYTES = 1 << 30
"""Encoded rows of small local row groups, above which they are decoded again at every pass: a disk may be small."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of a shard: features, label, and the other columns that the task needs."""

    features: Floats
    label: Floats
    weight: Floats | None
    group_starts: Bools | None
    """True where a ranking group begins."""
    positions: Positions
    """Numbers of the rows in the whole data set."""


class Stream:
    """The train or the eval rows of a shard; can be iterated several times.

    Rows without a label are left out, wherever the shard was cut: they keep their positions, so that the split of the
    others does not change. A ranking group goes on without them; one that has no other rows is no group.

    `on_rows` gets the number of rows read, kept or not; `on_wait` is called when the store fails and is retried.
    Either may raise to end the reading. One thread iterates at a time. With `any_type` features may be of other types
    than those that training has.
    """

    def __init__(
        self,
        shard: Units,
        preparation: Preparation,
        part: Literal["all", "train", "eval"],
        on_rows: Callable[[int], None] = lambda _: None,
        on_wait: OnWait = no_report,
        *,
        any_type: bool = False,
    ) -> None:
        self._any_type = any_type
        self.encoder = Encoder(preparation.features, any_type=any_type)
        self._shard = shard
        self._preparation = preparation
        self._part = part
        self._on_rows = on_rows
        self._on_wait = on_wait
        self._spool: _Spool | None = None
        self._rows_read = 0
        """In the first pass, kept or not."""
        self._dropped: list[Positions] = []

    @property
    def dropped(self) -> Positions:
        """Positions of the rows that the first pass left out."""
        return np.concatenate([np.empty(0, np.int64), *self._dropped])

    def batches(self) -> Iterator[Batch]:
        """The first pass: features, labels and the rest."""
        self._spool = _Spool(len(self._preparation.features)) if self._is_slow_to_read() else None
        for batch in ahead(self._batches()):
            if self._spool is not None:
                self._spool.append(batch.features)
            yield batch

    def matrices(self) -> Iterator[Floats]:
        """A later pass: the features alone."""
        if self._spool is None:
            yield from ahead(self._matrices())
        else:
            yield from self._spooled(self._spool)

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()

    def _spooled(self, spool: _Spool) -> Iterator[Floats]:
        """Tell as many rows as the first pass read: those that were left out are told with the kept ones."""
        all_kept, kept, told = spool.rows, 0, 0
        for matrix in spool.read():
            kept += len(matrix)
            rows = self._rows_read * kept // all_kept - told
            told += rows
            self._on_rows(rows)
            yield matrix

    def _is_slow_to_read(self) -> bool:
        slices = [slice_ for unit in self._shard for slice_ in unit]
        if any(is_s3(slice_.file) for slice_ in slices):
            return True
        return 4 * len(self._preparation.features) * rows_of(self._shard) <= KEPT_BYTES and are_small(slices)

    def _batches(self) -> Iterator[Batch]:
        label, weight = self._preparation.label, self._preparation.weight
        self._rows_read = 0
        others = Encoder([label] if weight is None else [label, Column(weight, "number")])
        self._dropped.clear()
        for batch, positions, starts in self._rows([*self.encoder.columns, *others.columns], self._dropped):
            beside = [others.column(batch.column(column.name), column) for column in others.columns]
            yield Batch(
                features=self.encoder.matrix(batch),
                label=beside[0],
                weight=None if weight is None else beside[1],
                group_starts=starts,
                positions=positions,
            )

    def _matrices(self) -> Iterator[Floats]:
        # Another encoder: an unseen category is counted once, not at every pass.
        encoder = Encoder(self._preparation.features, any_type=self._any_type)
        label = [self._preparation.label] if self._dropped else []
        for batch, _, _ in self._rows([*encoder.columns, *label], []):
            yield encoder.matrix(batch)

    def _rows(
        self, columns: Sequence[Column], dropped: list[Positions]
    ) -> Iterator[tuple[pa.RecordBatch, Positions, Bools | None]]:
        """Read this stream's rows: batches with their positions and the beginnings of ranking groups.

        The label is looked at where it is read; positions of rows without one are added to `dropped`.
        """
        group, label = self._preparation.group, self._preparation.label.name
        names = stored_names(columns) + ([group] if group else [])
        looks = self._preparation.missing_label == "drop" and label in names
        categories = [column.name for column in columns if column.kind == "category"]
        slices = [slice_ for unit in self._shard for slice_ in unit]
        unit_starts = {unit[0].position for unit in self._shard}
        groups = _Groups(group)
        for pieces, batch in ahead(self._read(slices, names, categories)):
            starts = groups.starts(batch, _first_rows(pieces, unit_starts)) if group else None
            positions = np.concatenate([np.arange(piece.position, piece.position + piece.rows) for piece in pieces])
            chosen = self._chosen(positions, starts, groups)
            if looks and (missing := _missing(batch.column(label))) is not None:
                dropped.append(positions[missing if chosen is None else chosen & missing])
                chosen = ~missing if chosen is None else chosen & ~missing
            if chosen is not None:
                batch, positions = batch.filter(pa.array(chosen)), positions[chosen]
            if starts is not None:
                starts = groups.starts_among(starts, chosen)
            if batch.num_rows:
                yield batch, positions, starts

    def _read(self, slices: Sequence[Slice], names: Sequence[str], categories: Sequence[str]) -> Iterator[Joined]:
        kept = self._preparation.kept
        if kept is not None and kept.holds(slices, names):
            return self._told(kept.rows_of(slices, names))
        read = self._told(read_slices(slices, names, categories, self._preparation.storage, self._on_wait))
        return joined(read, rows_of_batch(len(names)))

    def _told(self, read: Iterator[tuple[Item, pa.RecordBatch]]) -> Iterator[tuple[Item, pa.RecordBatch]]:
        for whence, batch in read:
            self._rows_read += batch.num_rows
            self._on_rows(batch.num_rows)
            yield whence, batch

    def _chosen(self, positions: Positions, starts: Bools | None, groups: _Groups) -> Bools | None:
        """Pick this stream's subset: by the row's position; in ranking, by the position of its group's first row."""
        split = self._preparation.split
        if split is None or self._part == "all":
            return None
        if starts is not None:
            positions = groups.first_positions(positions, starts)
        chosen: Bools = split.picks(positions) == (self._part == "eval")
        return chosen


def _missing(labels: pa.Array) -> Bools | None:
    """Return which rows have no label; None where all have one."""
    if pa.types.is_dictionary(labels.type) and labels.dictionary.null_count:
        labels = labels.dictionary_decode()
    floating = pa.types.is_floating(labels.type)
    if not floating and not labels.null_count:
        return None
    missing: Bools = pc.is_null(labels, nan_is_null=floating).to_numpy(zero_copy_only=False)
    return missing if missing.any() else None


def _first_rows(pieces: Sequence[Slice], unit_starts: Container[int]) -> list[int]:
    """Return the rows of a batch of these pieces in which a unit begins."""
    first, found = 0, []
    for piece in pieces:
        if piece.position in unit_starts:
            found.append(first)
        first += piece.rows
    return found


class _Groups:
    """Follows ranking groups over the batches of a shard; a unit begins with a new group."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self._last: object = None
        self._position = -1
        self._number = self._last_kept = 0

    def starts(self, batch: pa.RecordBatch, unit_starts: Sequence[int]) -> Bools:
        assert self.name is not None
        values = batch.column(self.name)
        require_no_missing_groups(values, self.name)
        starts = run_starts(values)
        starts[0] = values[0].as_py() != self._last
        starts[unit_starts] = True
        self._last = values[len(values) - 1].as_py()
        return starts

    def starts_among(self, starts: Bools, kept: Bools | None) -> Bools:
        """Return where a group begins among the rows that are kept: the first rows of one may be left out."""
        numbers = self._number + np.cumsum(starts)
        self._number = int(numbers[-1])
        if kept is not None:
            numbers = numbers[kept]
        begins: Bools = np.diff(numbers, prepend=self._last_kept) != 0
        if len(numbers):
            self._last_kept = int(numbers[-1])
        return begins

    def first_positions(self, positions: Positions, starts: Bools) -> Positions:
        """Return the position of the first row of each row's group."""
        first_row = np.maximum.accumulate(np.where(starts, np.arange(len(starts)), -1))
        first: Positions = np.where(first_row < 0, self._position, positions[first_row])
        self._position = int(first[-1])
        return first


class _Spool:
    """Encoded rows in an unnamed local file: gone when closed, also after a crash."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="dray-")  # noqa: SIM115  (until close)
        self._lengths: list[int] = []

    @property
    def rows(self) -> int:
        return sum(self._lengths)

    def append(self, matrix: Floats) -> None:
        with translate_errors(tempfile.gettempdir()):
            self._file.write(matrix.data)
        self._lengths.append(len(matrix))

    def read(self) -> Iterator[Floats]:
        self._file.seek(0)
        for rows in self._lengths:
            flat = np.fromfile(self._file, np.float32, rows * self._columns)
            yield flat.reshape(rows, self._columns)

    def close(self) -> None:
        self._file.close()


def ahead(items: Iterator[Item], on_abandon: Callable[[], None] | None = None) -> Iterator[Item]:
    """Yield the items; a thread makes the next one meanwhile.

    When the rest is not wanted, `on_abandon` is called, and the thread is waited for. Without `on_abandon` the thread
    ends by itself after its item: the garbage collector may close this generator while its own thread holds a lock that
    the item needs, such as that of all pools where the items are made ahead themselves.
    """
    end = object()
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dray-ahead")
    try:
        upcoming = pool.submit(next, items, end)
        while (item := upcoming.result()) is not end:
            upcoming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]
    except BaseException:
        if on_abandon is not None:
            on_abandon()
        raise
    finally:
        pool.shutdown(wait=on_abandon is not None)


def give_memory_back() -> None:
    """Return memory that allocators keep after batches were freed: about 250 MB that training does not need."""
    pa.default_memory_pool().release_unused()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc only; other allocators keep less
        libc.malloc_trim(0)
