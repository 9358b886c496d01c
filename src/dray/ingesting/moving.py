"""Sort rows and remove duplicates with Ray Data. The only file that imports it.

Rows move between workers only; the driver gets a sample of the sort keys and one bit for each row.

    duplicates:  keys -> digests (16 bytes a row) -> to one part each by digest -> which rows of each piece stay
    sort:        sample of the keys -> where parts begin -> rows to their part -> sorted and written
    no sort:     an output file is some ranges of pieces, in their order: read, without duplicates, and written

Rows are exchanged by Ray Data's sort by the number of the part, with given boundaries: it needs plain tasks only. Hash
shuffles have actors that hold CPUs until the end, and since Ray 2.56 they need runtime environments, which an embedded
cluster lacks (`clusters/lean.py`).
"""

from __future__ import annotations

import logging
import pickle
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from dray.batch.engine import Emit
from dray.batch.open_executor import joined
from dray.clusters.connect import connect
from dray.clusters.environment import environment_for_ray
from dray.errors import ConfigError, DrayError, WorkerError
from dray.events.kinds import PhaseStarted, Progress
from dray.ingesting import moving_rows
from dray.ingesting.moving_rows import PART, POSITION, Order
from dray.ingesting.row_digest import digests, first_rows
from dray.ingesting.staged import Staged, open_staged, to_bits
from dray.storage import StorageOptions
from dray.threads.limits import cpus_of_this_process

WrittenT = TypeVar("WrittenT")
Write = Callable[[int, pa.Table], WrittenT]

DIGESTS_TOGETHER = 1_000_000
"""Rows whose digests are compared in one task."""
SAMPLED_FOR_A_FILE = 1000
"""Sampled rows for each output file: their sizes then differ by a few percent."""
PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Moved(Generic[WrittenT]):
    """The written files and the counts of rows."""

    written: tuple[WrittenT, ...]
    """What `write` returned, by output file."""
    rows_in: int
    rows_out: int


def move(
    staged: Sequence[str],
    *,
    dedup: tuple[str, ...] | None,
    sort: tuple[str, ...],
    files: int,
    write: Write[WrittenT],
    cluster: str | None,
    storage: StorageOptions,
    emit: Emit,
) -> Moved[WrittenT]:
    """Sort the staged rows, without duplicates if `dedup` is given, and have workers write them to output files.

    `write(index, table)` is called once for each of `files` output files of about equal rows, or as many as there are
    rows; not at all when there are none. Equal rows in the sort, and all without one, stay in the order of the source.
    """
    opened = open_staged(staged, storage)
    if opened is None:
        return Moved((), 0, 0)
    order = moving_rows.order_of(sort, opened.schema)
    keys = list(dedup or opened.columns)
    moving_rows.require_columns(keys, opened.schema, "find duplicates")
    _require_ray_data()
    name = cluster or "local"
    workers = cpus_of_this_process() if name == "local" and not joined() else 1
    with connect(name, workers=workers, threads=1), _settings(), _unwrapped():
        kept = [_Kept(piece, opened.rows_of(piece)) for piece in range(len(opened.pieces))]
        if dedup is not None:
            emit(PhaseStarted("dedup"))
            kept = _without_duplicates(opened, keys, _Progress(emit, opened.rows))
        rows = sum(piece.rows for piece in kept)
        files = min(files, rows)
        if sort:
            emit(PhaseStarted("sort"))
            found = _sorted(opened, order, kept, files, write, _Progress(emit, rows))
        else:
            emit(PhaseStarted("write"))
            found = _in_order(opened, kept, files, write, _Progress(emit, rows))
    return Moved(tuple(found), opened.rows, rows)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The rows of a piece that are kept."""

    piece: int
    rows: int
    bits: bytes | None = None
    """One for each row of the piece; None when all rows are kept."""


class _Progress:
    """Reports how many rows are done."""

    def __init__(self, emit: Emit, total: int) -> None:
        self._emit, self._total = emit, total
        self._done = 0
        self._told_at = 0.0
        self.add(0)

    def add(self, rows: int) -> None:
        self._done += rows
        now = time.monotonic()
        if now - self._told_at >= PROGRESS_EVERY_S or self._done >= self._total:
            self._told_at = now
            self._emit(Progress(done=self._done, total=self._total, unit="rows"))


def _without_duplicates(staged: Staged, columns: list[str], progress: _Progress) -> list[_Kept]:
    """Return which rows are the first of their duplicates."""
    seed = secrets.randbits(64)
    parts = -(-staged.rows // DIGESTS_TOGETHER)
    pieces = len(staged.pieces)

    def digest(item: dict[str, Any]) -> pa.Table:
        words = digests(staged.read(item["piece"], columns), seed)
        first = first_rows(words)  # a frequent value would otherwise fill one part
        high, low = words[:, first]
        table = pa.table({"high": high, "low": low, "row": first})
        return moving_rows.pack(table, (high % np.uint64(parts)).astype(np.uint32), parts, item["piece"])

    def compare(part: int, senders: list[tuple[int, pa.Table]]) -> pa.Table:
        together = pa.concat_tables([table for _, table in senders])
        words = np.stack([together.column(name).to_numpy() for name in ("high", "low")])
        stays = np.zeros(together.num_rows, dtype=bool)
        stays[first_rows(words)] = True
        ends = np.cumsum([table.num_rows for _, table in senders])
        rows = [
            table.select(["row"]).filter(pa.array(mask))
            for (_, table), mask in zip(senders, np.split(stays, ends[:-1]), strict=True)
        ]
        return moving_rows.packed([piece for piece, _ in senders], [part] * len(senders), rows)

    def gather(piece: int, senders: list[tuple[int, pa.Table]]) -> pa.Table:
        stays = np.zeros(staged.rows_of(piece), dtype=bool)
        for _, table in senders:
            stays[table.column("row").to_numpy()] = True
        return _rows({"piece": piece, "rows": int(stays.sum()), "bits": to_bits(stays)})

    compared = _for_each_part(_for_each([{"piece": piece} for piece in range(pieces)], digest), parts, compare)
    kept = []
    for row in _for_each_part(compared, pieces, gather).iter_rows():
        kept.append(_Kept(row["piece"], row["rows"], row["bits"]))
        progress.add(staged.rows_of(row["piece"]))
    return sorted(kept, key=lambda entry: entry.piece)


def _sorted(
    staged: Staged, order: Order, kept: list[_Kept], files: int, write: Write[WrittenT], progress: _Progress
) -> list[WrittenT]:
    items = [{"piece": entry.piece, "rows": entry.rows, "bits": entry.bits} for entry in kept if entry.rows]
    columns = staged.columns
    begins = moving_rows.splitters(_sample(staged, order, items, files), order, files)

    def divide(item: dict[str, Any]) -> pa.Table:
        table = staged.read(item["piece"], [*columns, POSITION], item["bits"])
        parts = moving_rows.parts_of(order.keys(table), begins, order)
        return moving_rows.pack(table.select(columns), parts, files, item["piece"])

    def sort(part: int, senders: list[tuple[int, pa.Table]]) -> pa.Table:
        # The pieces come in the order of the source, so that equal rows stay in it.
        table = moving_rows.join([table for _, table in senders])
        return _written(write, part, table.take(order.indices(order.keys(table))))

    return _results(_for_each_part(_for_each(items, divide), files, sort), progress)


def _sample(staged: Staged, order: Order, items: list[dict[str, Any]], files: int) -> pa.Table:
    """Return the sort keys of some rows of every piece; of all rows when they are few."""
    share = min(1.0, files * SAMPLED_FOR_A_FILE / sum(item["rows"] for item in items))

    def pick(item: dict[str, Any]) -> pa.Table:
        columns = list(dict.fromkeys([*order.columns, POSITION]))
        keys = order.keys(staged.read(item["piece"], columns, item["bits"]))
        # The same rows every time, so that the same data gives the same files.
        chosen = np.random.default_rng(item["piece"]).permutation(keys.num_rows)[: round(share * keys.num_rows)]
        return moving_rows.packed([0], [item["piece"]], [keys.take(np.sort(chosen))])

    found = list(_for_each(items, pick).iter_batches(batch_size=None, batch_format="pyarrow"))
    return moving_rows.join([table for _, table in moving_rows.unpack(pa.concat_tables(found))])


def _in_order(
    staged: Staged, kept: list[_Kept], files: int, write: Write[WrittenT], progress: _Progress
) -> list[WrittenT]:
    bounds = [index * sum(entry.rows for entry in kept) // files for index in range(files + 1)]
    items = []
    for index, (first, last) in enumerate(pairwise(bounds)):
        ranges, begin = [], 0
        for entry in kept:
            start, stop = max(first - begin, 0), min(last - begin, entry.rows)
            if start < stop:
                ranges.append((entry.piece, entry.bits, start, stop))
            begin += entry.rows
        items.append({"index": index, "ranges": pickle.dumps(ranges)})

    def copy(item: dict[str, Any]) -> pa.Table:
        tables = [
            staged.read(piece, staged.columns, bits).slice(start, stop - start)
            for piece, bits, start, stop in pickle.loads(item["ranges"])  # noqa: S301  (from the driver)
        ]
        return _written(write, item["index"], moving_rows.join(tables))

    return _results(_for_each(items, copy), progress)


def _written(write: Write[WrittenT], index: int, table: pa.Table) -> pa.Table:
    try:
        result = write(index, table)
    except DrayError:
        raise
    except Exception as error:
        raise WorkerError(f"Output file {index} was not written: {type(error).__name__}: {error}") from error
    return _rows({"index": index, "rows": table.num_rows, "result": pickle.dumps(result)})


def _results(dataset: Any, progress: _Progress) -> list[Any]:
    results = {}
    for row in dataset.iter_rows():
        results[row["index"]] = pickle.loads(row["result"])  # noqa: S301  (from a worker of ours)
        progress.add(row["rows"])
    return [results[index] for index in sorted(results)]


def _rows(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows))


def _for_each(items: list[dict[str, Any]], function: Callable[[dict[str, Any]], pa.Table]) -> Any:
    """Return the function's result for each item, one task per item."""
    import ray.data

    def call(batch: pa.Table) -> pa.Table:
        with _carried():
            return pa.concat_tables([function(item) for item in batch.to_pylist()])

    dataset = ray.data.from_items(items, override_num_blocks=len(items))
    return dataset.map_batches(call, batch_size=None, batch_format="pyarrow")


def _for_each_part(dataset: Any, parts: int, function: Callable[[int, list[tuple[int, pa.Table]]], pa.Table]) -> Any:
    """Bring packed rows to their parts; return the function's result for each part, one task per part."""

    def call(batch: pa.Table) -> Iterator[pa.Table]:
        if batch.num_rows:
            with _carried():
                yield function(batch.column(PART)[0].as_py(), moving_rows.unpack(batch))

    # With one part, a second one stays empty: without boundaries, Ray would choose its own.
    exchanged = dataset.sort(PART, boundaries=list(range(1, max(parts, 2))))
    return exchanged.map_batches(call, batch_size=None, batch_format="pyarrow")


def _require_ray_data() -> None:
    try:
        import ray.data  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"Sorting and finding duplicates need Ray Data, which lacks {error.name or error}.",
            fix="Install it with pip install 'dray[data]'.",
        ) from error


@contextmanager
def _settings() -> Iterator[None]:
    """Configure Ray Data and silence it; restore everything afterwards."""
    from ray.data import DataContext
    from ray.data.context import ShuffleStrategy

    wanted = {
        "shuffle_strategy": ShuffleStrategy.SORT_SHUFFLE_PULL_BASED,
        "enable_progress_bars": False,
        "print_on_execution_start": False,
        "raise_original_map_exception": True,
        # A block is a part, whatever its size.
        "target_max_block_size": None,
    }
    context = DataContext.get_current()
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    handlers = [(handler, handler.level) for handler in logging.getLogger("ray.data").handlers]
    try:
        for name in before:
            setattr(context, name, wanted[name])
        for handler, _ in handlers:
            handler.setLevel(logging.CRITICAL + 1)
        with environment_for_ray({"RAY_DATA_USAGE_DISABLED": "1"}):  # reported by one more process of the cluster
            yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        for handler, level in handlers:
            handler.setLevel(level)


class _CarriedError(Exception):
    """An error of dray on its way to the driver: Ray Data adds its own advice to the errors that it knows."""

    def __init__(self, text: str, error: bytes) -> None:
        super().__init__(text, error)

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def _carried() -> Iterator[None]:
    """Wrap an error of dray so that it arrives at the driver unchanged."""
    try:
        yield
    except DrayError as error:
        raise _CarriedError(error.what, pickle.dumps(error)) from error


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the error that a worker raised as itself."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, _CarriedError):
            raise pickle.loads(cause.args[1]) from error  # noqa: S301  (from a worker of ours)
        raise WorkerError(f"A worker failed while it sorted or compared rows: {_line(cause or error)}") from error
    except RayError as error:
        raise WorkerError(f"Ray Data could not sort or compare the rows: {_line(error)}") from error


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]
