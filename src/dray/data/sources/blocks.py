"""From chunks of bytes to blocks of whole records, and from blocks to batches: in order, several at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from dray.errors import DataError

MOST_RECORD_BYTES = 64 << 20
_GROUP_RECORDS = 256
_PARTS = 8


@dataclass(frozen=True, slots=True)
class Block:
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

    @property
    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.read).slice(0, self.stop)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of a block that cannot be kept."""

    offset: int
    """Where it begins in the block."""
    reason: str
    text: str | bytes


@dataclass(slots=True)
class Parsed:
    """What became of a block."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)


def whole_records(chunks: Iterable[bytes], cut: Callable[[bytes], int], offset: int, name: str) -> Iterator[Block]:
    """Yield blocks that end where `cut` says that the last whole record of some bytes ends.

    The last block ends where the chunks do.
    """
    rest = b""
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        end = cut(data)
        rest = data[end:]
        if len(rest) > MOST_RECORD_BYTES:
            raise DataError(
                f"{name} has a record of more than {MOST_RECORD_BYTES >> 20} MB, beginning at byte {offset + end:,}.",
                fix="A quote or a bracket that is opened there is probably never closed: mend it.",
            )
        if end:
            yield Block(data, end, offset)
            offset += end
    if rest:
        yield Block(rest, len(rest), offset, last=True)


def parse_in_order(blocks: Iterable[Block], parse: Callable[[Block], Parsed]) -> Iterator[tuple[Block, Parsed]]:
    """Yield every block with what became of it, on as many threads as Arrow has, a block ahead on each."""
    threads = pa.cpu_count()
    if threads < 2:
        yield from ((block, parse(block)) for block in blocks)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        waiting: deque[tuple[Block, Future[Parsed]]] = deque()
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
    count: int,
    parse: Callable[[Sequence[int]], Parsed],
    refuse: Callable[[int, Exception], BadRow],
    row_named: Callable[[str], int | None],
) -> Parsed:
    """Return the records that can be parsed, and a BadRow for each that cannot, in order.

    `parse` takes the numbers of some records, and raises ArrowInvalid or UnicodeDecodeError when one of them is bad.
    That one is left out if the error names it (`row_named`: which of them, from 0); else they are divided.
    """
    kept = Parsed()
    bad: dict[int, BadRow] = {}

    def take(records: list[int]) -> None:
        while records:
            try:
                parsed = parse(records)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                place = 0 if len(records) == 1 else row_named(str(error))
                if place is None or place >= len(records):
                    step = -(-len(records) // _PARTS)
                    for start in range(0, len(records), step):
                        take(records[start : start + step])
                    return
                bad[records[place]] = refuse(records[place], error)
                del records[place]
            else:
                kept.batches += parsed.batches
                kept.bad += parsed.bad
                return

    for start in range(0, count, _GROUP_RECORDS):
        take(list(range(start, min(start + _GROUP_RECORDS, count))))
    kept.bad = sorted([*kept.bad, *bad.values()], key=lambda row: row.offset)
    return kept
