"""From chunks of bytes to blocks of whole records, and from blocks to batches: in order, several at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from dray.data.source import REJECTED, all_kept
from dray.errors import DataError

MOST_RECORD_BYTES = 64 << 20
_GROUP_RECORDS = 256
_PARTS = 8


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Whole records of a file."""

    read: bytes
    """The bytes that were read; the records are those before `stop`, so that nothing is copied."""
    stop: int
    offset: int
    """Where it begins in the contents of the file."""
    last: bool = False
    """Nothing of the piece follows."""

    @property
    def data(self) -> bytes:
        return self.read[: self.stop]

    def count(self, text: bytes) -> int:
        return self.read.count(text, 0, self.stop)

    @property
    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.read).slice(0, self.stop)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a block that cannot be parsed."""

    offset: int
    """Where it begins in the block."""
    reason: str
    text: str | bytes
    row: int | None = None
    """Which of the block's rows it is, good and bad ones counted; None: no row was lost."""


@dataclass(slots=True)
class Parsed:
    """The parsed rows of a block, and its bad ones."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    extra: Counter[str] = field(default_factory=Counter)
    """Rows by the field that was left out."""

    @property
    def rows(self) -> int:
        """Good rows and bad ones."""
        good = sum(int(batch.num_rows) for batch in self.batches)
        return good + sum(1 for row in self.bad if row.row is not None)

    def followed_by(self, other: Parsed, offset: int) -> Parsed:
        """Return the rows of both; those of the other begin at this offset in the block."""
        rows = self.rows
        later = [
            replace(bad, offset=bad.offset + offset, row=None if bad.row is None else bad.row + rows)
            for bad in other.bad
        ]
        return Parsed([*self.batches, *other.batches], [*self.bad, *later], self.extra + other.extra)


def whole_records(
    chunks: Iterable[bytes], cut: Callable[[bytes], int], offset: int, name: str
) -> Iterator[RecordBlock]:
    """Yield blocks of whole records; `cut` returns where the last whole record of some bytes ends.

    The last block ends where the chunks end.
    """
    rest = b""
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        end = cut(data)
        rest = data[end:]
        if len(rest) > MOST_RECORD_BYTES:
            raise DataError(
                f"{name} has a record of more than {MOST_RECORD_BYTES >> 20} MB, beginning at byte {offset + end:,}.",
                fix="A quote or a bracket that opens there is probably never closed: correct it.",
            )
        if end:
            yield RecordBlock(data, end, offset)
            offset += end
    if rest:
        yield RecordBlock(rest, len(rest), offset, last=True)


def parse_in_order(
    blocks: Iterable[RecordBlock], parse: Callable[[RecordBlock], Parsed]
) -> Iterator[tuple[RecordBlock, Parsed]]:
    """Parse on as many threads as Arrow has, one block ahead on each; yield every block with its result, in order."""
    threads = pa.cpu_count()
    if threads < 2:
        yield from ((block, parse(block)) for block in blocks)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        waiting: deque[tuple[RecordBlock, Future[Parsed]]] = deque()
        for block in blocks:
            waiting.append((block, pool.submit(parse, block)))
            if len(waiting) > threads:
                first, parsed = waiting.popleft()
                yield first, parsed.result()
        while waiting:
            first, parsed = waiting.popleft()
            yield first, parsed.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def keep_good(
    numbers: Sequence[int],
    parse: Callable[[Sequence[int]], Parsed],
    refuse: Callable[[int, Exception], BadRow],
    row_named: Callable[[str], int | None],
) -> Parsed:
    """Return the records of these numbers that can be parsed, and a BadRow for each that cannot, in order.

    `parse` takes the numbers of some, and raises ArrowInvalid or UnicodeDecodeError when one of them is bad.
    That one is left out if the error names it (`row_named`: its index); else the records are divided and tried again.
    """
    kept = Parsed()
    bad: dict[int, BadRow] = {}

    def take(records: list[int]) -> None:
        while records:
            try:
                parsed = parse(records)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                number = 0 if len(records) == 1 else row_named(str(error))
                if number is None or number >= len(records):
                    step = -(-len(records) // _PARTS)
                    for start in range(0, len(records), step):
                        take(records[start : start + step])
                    return
                index = records.pop(number)
                bad[index] = replace(refuse(index, error), row=index)
            else:
                kept.batches += parsed.batches
                kept.bad += parsed.bad
                kept.extra += parsed.extra
                return

    for start in range(0, len(numbers), _GROUP_RECORDS):
        take(list(numbers[start : start + _GROUP_RECORDS]))
    kept.bad = sorted([*kept.bad, *bad.values()], key=lambda row: row.offset)
    return kept


def in_their_places(parsed: Parsed, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return all rows of a block in order, a row of nulls for each bad one, marked in the column `REJECTED`.

    `schema`: the columns that were read.
    """
    bad = [row.row for row in parsed.bad if row.row is not None]
    if not bad:
        return [all_kept(batch) for batch in parsed.batches]
    good = pa.Table.from_batches(parsed.batches, schema)
    rejected = np.zeros(good.num_rows + len(bad), bool)
    rejected[bad] = True
    taken = pa.array(np.cumsum(~rejected) - 1, mask=rejected)
    return list(good.take(taken).append_column(REJECTED, pa.array(rejected)).combine_chunks().to_batches())
