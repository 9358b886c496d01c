"""Which pieces of a source to sample, spread over all of it.

Where pieces are known without reading (row groups, record batches, files, ranges of a key), the first rows of some of
them are read. In text files that can be read from any offset, windows of some kB are cut out. Other files (compressed
ones, JSON arrays) can only be read from their beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dray.data.source import Piece, Source
from dray.data.sources.arrow import ArrowSource
from dray.data.sources.csv import CsvFile, CsvSource
from dray.data.sources.csv_text import text_head
from dray.data.sources.files import DataFile, RandomFile, head, in_parallel
from dray.data.sources.json import JsonFile, JsonSource
from dray.data.sources.json_records import items, last_line_end
from dray.data.sources.quotes import first_sure_start, last_end

MOST_PROBES = 64
MOST_STREAMS = 8
"""Probes of files that are read from their beginning: each costs some MB."""
WINDOW_BYTES = 1 << 20
LEAST_WINDOW_BYTES = 32 << 10
MOST_WINDOW_BYTES = 64 << 20
PREFIX_BYTES = 1 << 20
_PACKED = 5
"""About how many times as large as a compressed file its text is."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A piece to sample."""

    piece: Piece
    share: float
    """The share of the sample that comes from here."""
    window: bool = False
    """A window, which is read to its end."""
    every: bool = False
    """All pieces of the source were chosen."""


def spread(weights: Sequence[int], count: int) -> list[tuple[int, float]]:
    """Return the indices to probe, each with its share of the probes, spread evenly over the weights.

    >>> spread([10, 10, 60, 20], 4)
    [(1, 0.25), (2, 0.5), (3, 0.25)]
    """
    ends = np.cumsum(np.maximum(1, np.asarray(weights, np.float64)))
    hits = np.searchsorted(ends, (np.arange(count) + 0.5) / count * ends[-1], side="right")
    found, times = np.unique(hits, return_counts=True)
    return [(int(index), int(hit) / count) for index, hit in zip(found, times, strict=True)]


def text_bytes(source: Source) -> int:
    """Bytes to read for all rows; compressed ones count several times."""
    if not isinstance(source, CsvSource | JsonSource):
        return source.bytes
    return sum(file.file.bytes * (1 if file.file.compression is None else _PACKED) for file in source.files)


def choose_probes(source: Source, sample: int) -> list[Probe]:
    """Return the probes for a sample of so many rows."""
    if isinstance(source, CsvSource | JsonSource):
        return _in_text(source, sample)
    # Of Arrow, single record batches: their rows estimate those of the rest.
    pieces = source.pieces(1 if isinstance(source, ArrowSource) else max(1, source.bytes // MOST_PROBES))
    chosen = spread([piece.bytes for piece in pieces], min(MOST_PROBES, _most_requests(source.schema)))
    every = len(chosen) == len(pieces)
    return [Probe(pieces[index], share, every=every) for index, share in chosen]


def _most_requests(schema: pa.Schema) -> int:
    """Every column of a row group is its own request: wide data gets fewer probes."""
    return max(8, 8_000 // max(1, len(schema)))


def _in_text(source: CsvSource | JsonSource, sample: int) -> list[Probe]:
    files = [file for file in source.files if file.file.bytes]
    total = sum(file.file.bytes for file in files) or 1
    open_files = [file for file in files if can_be_entered(file)]
    closed = [file for file in files if not can_be_entered(file)]
    probes: list[Probe] = []
    if closed:
        weight = sum(file.file.bytes for file in closed) / total
        for index, share in spread([file.file.bytes for file in closed], MOST_STREAMS):
            file = closed[index].file
            probes.append(Probe(Piece(file.name, 0, 0, file.bytes, file.bytes), share * weight))
    if open_files:
        weight = sum(file.file.bytes for file in open_files) / total
        size = _window_bytes(source, open_files[0], sample)
        offsets = _offsets([file.file.bytes for file in open_files], MOST_PROBES, size)
        windows = in_parallel(lambda probe: cut_window(source, open_files[probe[0]], probe[1], size), offsets)
        found = [window for window in windows if window.start < window.stop]
        probes += [Probe(window, weight / max(1, len(found)), window=True) for window in found]
    return probes


def can_be_entered(file: CsvFile | JsonFile) -> bool:
    """Whether reading can start in the middle of a file."""
    return file.divisible if isinstance(file, JsonFile) else not file.streamed


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
    return int(min(WINDOW_BYTES, max(LEAST_WINDOW_BYTES, sample * row_bytes / MOST_PROBES)))


def cut_window(source: CsvSource | JsonSource, file: CsvFile | JsonFile, offset: int, size: int) -> Piece:
    """Return whole records of a file from about an offset on; empty if there are none.

    Inside quotes that are longer than a window, the start of a line may not be the start of a record.
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
        return Piece(file.file.name, 0, start, start)
    return Piece(file.file.name, 0, start + skipped, start + skipped + end, end)


def rows_per_byte(source: CsvSource | JsonSource, location: str) -> float:
    """Return the rows per stored byte of a file that can only be read from its beginning, by its first MB."""
    file: CsvFile | JsonFile = next(file for file in source.files if file.file.name == location)
    encoding = None if isinstance(file, JsonFile) else file.encoding
    if encoding is not None or file.file.compression == "zip":
        text = text_head(file.file, encoding, source.storage, PREFIX_BYTES)
        stored_bytes = file.file.bytes if len(text) < PREFIX_BYTES else len(text) // _PACKED
    else:
        with RandomFile(file.file, source.storage) as opened:
            stored = opened.read(0, min(PREFIX_BYTES, file.file.bytes))
        text = stored if file.file.compression is None else _inflate(stored, file.file)
        stored_bytes = len(stored)
    if isinstance(source, CsvSource) and isinstance(file, CsvFile):
        quoting = source.form.quoting(file.newline)
        text = text[file.begin :]
        count = len(source.form.records(text[: last_end(text, quoting)])[0])
    else:
        text = text[file.begin :]
        count = len(items(text)) if isinstance(file, JsonFile) and file.layout == "array" else text.count(b"\n")
    return count / stored_bytes


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
