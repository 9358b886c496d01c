"""Where to look: pieces of a source that together are a sample of it, spread over all of it.

Sources whose pieces are known without reading (row groups, record batches, files, ranges of a key) are looked at from
the beginning of some of these on. In text files that can be entered anywhere, windows of some kB are cut out. Other
files (compressed ones, JSON arrays) can only be read from their beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dray.data.source import Piece, Source
from dray.data.sources.arrow import ArrowSource
from dray.data.sources.csv import CsvFile, CsvSource
from dray.data.sources.files import DataFile, RandomFile, head, in_parallel
from dray.data.sources.json import JsonFile, JsonSource
from dray.data.sources.json_records import items, last_line_end
from dray.data.sources.quotes import first_sure_start, last_end, records

MOST_PLACES = 64
MOST_STREAMS = 8
"""Places in files that are read from the beginning on: each costs some MB."""
WINDOW_BYTES = 1 << 20
LEAST_WINDOW_BYTES = 32 << 10
MOST_WINDOW_BYTES = 64 << 20
PREFIX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A piece to look at."""

    piece: Piece
    share: float
    """How much of the sample shall come from here."""
    window: bool = False
    """It was cut out of a file, to be read to its end."""
    every: bool = False
    """The source has no other pieces than those that were chosen."""


def spread(weights: Sequence[int], count: int) -> list[tuple[int, float]]:
    """Return which of some weighted things to look at, with their share of the looks, evenly over the weights.

    >>> spread([10, 10, 60, 20], 4)
    [(1, 0.25), (2, 0.5), (3, 0.25)]
    """
    ends = np.cumsum(np.maximum(1, np.asarray(weights, np.float64)))
    hits = np.searchsorted(ends, (np.arange(count) + 0.5) / count * ends[-1], side="right")
    found, times = np.unique(hits, return_counts=True)
    return [(int(index), int(hit) / count) for index, hit in zip(found, times, strict=True)]


def text_bytes(source: Source) -> int:
    """Bytes to go through to read all; compressed ones count several times."""
    if not isinstance(source, CsvSource | JsonSource):
        return source.bytes
    return sum(file.file.bytes * (1 if file.file.compression is None else 5) for file in source.files)


def choose_places(source: Source, sample: int) -> list[Place]:
    """Return where to look for a sample of so many rows."""
    if isinstance(source, CsvSource | JsonSource):
        return _in_text(source, sample)
    # Of Arrow, single record batches: how many rows they have tells about the others.
    pieces = source.pieces(1 if isinstance(source, ArrowSource) else max(1, source.bytes // MOST_PLACES))
    chosen = spread([piece.bytes for piece in pieces], min(MOST_PLACES, _most_requests(source.schema)))
    every = len(chosen) == len(pieces)
    return [Place(pieces[index], share, every=every) for index, share in chosen]


def _most_requests(schema: pa.Schema) -> int:
    """Every column of a row group is a request of its own: of wide data, fewer places are looked at."""
    return max(8, 8_000 // max(1, len(schema)))


def _in_text(source: CsvSource | JsonSource, sample: int) -> list[Place]:
    files = [file for file in source.files if file.file.bytes]
    total = sum(file.file.bytes for file in files) or 1
    open_files = [file for file in files if can_be_entered(file)]
    closed = [file for file in files if not can_be_entered(file)]
    places: list[Place] = []
    if closed:
        weight = sum(file.file.bytes for file in closed) / total
        for index, share in spread([file.file.bytes for file in closed], MOST_STREAMS):
            file = closed[index].file
            places.append(Place(Piece(file.location, 0, 0, file.bytes, file.bytes), share * weight))
    if open_files:
        weight = sum(file.file.bytes for file in open_files) / total
        size = _window_bytes(source, open_files[0], sample)
        offsets = _offsets([file.file.bytes for file in open_files], MOST_PLACES, size)
        windows = in_parallel(lambda place: cut_window(source, open_files[place[0]], place[1], size), offsets)
        found = [window for window in windows if window.start < window.stop]
        places += [Place(window, weight / max(1, len(found)), window=True) for window in found]
    return places


def can_be_entered(file: CsvFile | JsonFile) -> bool:
    """Whether records can be found in the middle of a file."""
    return file.divisible if isinstance(file, JsonFile) else file.file.compression is None


def _offsets(sizes: Sequence[int], count: int, window: int) -> list[tuple[int, int]]:
    """Return files and offsets, evenly over all bytes: the very first is the beginning, the very last near the end."""
    ends = np.cumsum(sizes)
    positions = np.linspace(0, max(0, int(ends[-1]) - window), count)
    files = np.searchsorted(ends, positions, side="right")
    found = {(int(file), int(at - (ends[file] - sizes[file]))) for file, at in zip(files, positions, strict=True)}
    kept: list[tuple[int, int]] = []
    for file, at in sorted(found):
        if not kept or kept[-1][0] != file or at - kept[-1][1] >= 2 * window:  # windows must not overlap
            kept.append((file, at))
    return kept


def _window_bytes(source: CsvSource | JsonSource, file: CsvFile | JsonFile, sample: int) -> int:
    text = head(file.file, source.storage, 2 * LEAST_WINDOW_BYTES)
    row_bytes = len(text) / max(1, text.count(b"\n"))
    return int(min(WINDOW_BYTES, max(LEAST_WINDOW_BYTES, sample * row_bytes / MOST_PLACES)))


def cut_window(source: CsvSource | JsonSource, file: CsvFile | JsonFile, offset: int, size: int) -> Piece:
    """Return whole records of a file from about an offset on; empty if there are none.

    Within quotes that hold more than a window, the beginning of a line may be none of a record.
    """
    quoting = source.form.quoting(file.newline) if isinstance(source, CsvSource) and isinstance(file, CsvFile) else None
    newline = quoting.newline if quoting else b"\n"
    with RandomFile(file.file, source.storage) as opened:
        while True:
            start = max(file.begin, offset)
            data = opened.read(start, min(file.file.bytes, start + size))
            skipped = 0
            if start > file.begin:
                skipped = data.find(newline) + 1
                if skipped and quoting and quoting.quote is not None:
                    skipped += first_sure_start(data[skipped:], quoting) or 0
            rest = data[skipped:]
            at_end = start + len(data) >= file.file.bytes
            end = len(rest) if at_end else last_end(rest, quoting) if quoting else last_line_end(rest)
            if (end and (skipped or start == file.begin)) or at_end or size >= MOST_WINDOW_BYTES:
                break
            size *= 4
    if start > file.begin and not skipped:
        return Piece(file.file.location, 0, start, start)
    return Piece(file.file.location, 0, start + skipped, start + skipped + end, end)


def rows_per_byte(source: CsvSource | JsonSource, location: str) -> float:
    """Return how many rows a stored byte holds in a file that can only be read from the beginning: by its first MB."""
    file = next(file for file in source.files if file.file.location == location)
    with RandomFile(file.file, source.storage) as opened:
        stored = opened.read(0, min(PREFIX_BYTES, file.file.bytes))
    text = stored if file.file.compression is None else _inflate(stored, file.file)
    if isinstance(source, CsvSource) and isinstance(file, CsvFile):
        quoting = source.form.quoting(file.newline)
        text = text[file.begin :]
        count = len(records(text[: last_end(text, quoting)], quoting)[0])
    else:
        text = text[file.begin :]
        count = len(items(text)) if isinstance(file, JsonFile) and file.layout == "array" else text.count(b"\n")
    return count / len(stored)


def _inflate(stored: bytes, file: DataFile) -> bytes:
    """Return as much of the contents as the first stored bytes give."""
    parts: list[bytes] = []
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), file.compression) as stream:
            while part := stream.read(64 << 10):
                parts.append(part)
    except (OSError, pa.ArrowException):  # the bytes end before the stream does
        pass
    return b"".join(parts)
