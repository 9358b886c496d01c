"""Read a sample of a source, or all of it: what the profiles of its columns are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dray.data.describing.figures import BadRow, Figure, Known
from dray.data.describing.probes import Probe, can_be_entered, choose_probes, rows_per_byte, text_bytes
from dray.data.describing.tally import Tally
from dray.data.fitted import completed, held
from dray.data.source import ExtraField, Piece, Reject, Source, make_reject
from dray.data.sources.csv import CsvSource
from dray.data.sources.csv_blocks import BlockReader
from dray.data.sources.files import RandomFile
from dray.data.sources.json import JsonSource
from dray.data.sources.lines import lines_before
from dray.data.sources.record_blocks import RecordBlock
from dray.storage import is_s3

Progress = Callable[[int, int], None]

READ_ALL_BYTES = 32 << 20
"""Files of up to so many bytes with an unknown number of rows are read as a whole: it takes about a second."""
MOST_BYTES = 256 << 20
MOST_VALUES = 10_000_000
LEAST_ROWS = 10_000
"""Size of the sample: of very wide rows, fewer are kept."""
MOST_VALUES_READ = 20_000_000
MOST_THINNING = 10
"""Up to so many times the rows of the sample are read and thinned out: better than consecutive rows."""
FULL_SAMPLE = 100_000
"""Rows kept for histograms when all rows are read."""
THREADS = 8
BUFFERS = 256
FIRST_REJECTS = 5
COUNTED_BYTES = 2 << 30
COUNTED_BYTES_S3 = 64 << 20
"""Lines are counted up to this offset, to name a bad row's line; beyond it, the byte is named."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a source, and what reading them showed."""

    table: pa.Table
    rows: Figure
    """Of the whole source."""
    complete: bool
    """Every row of the source was read, though the table may hold fewer."""
    known: dict[str, Known] = field(default_factory=dict)
    rejected: int = 0
    rejects: tuple[BadRow, ...] = ()


def take_sample(source: Source, sample: int, progress: Progress) -> Sample:
    """Return about so many rows, from all over the source; 0 reads every row.

    Small files are read as a whole too: it is as fast as probes, and all figures are exact.
    """
    rows = source.rows
    small = rows <= sample if rows is not None else 0 < text_bytes(source) <= READ_ALL_BYTES
    most = min(sample or FULL_SAMPLE, max(LEAST_ROWS, MOST_VALUES // max(1, len(source.schema))))
    if sample == 0 or small:
        return _read_all(source, most, progress)
    return _look_around(source, most, progress)


@dataclass(slots=True)
class _Rejects:
    """Counts bad rows and keeps the first. `offsets` has the byte of those whose line was not counted."""

    count: int = 0
    first: list[Reject] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)

    def add(self, reject: Reject | ExtraField, offset: int | None = None) -> None:
        if isinstance(reject, ExtraField):  # of a sample, the count says little: it is told where all rows are read
            return
        self.count += 1
        if len(self.first) < FIRST_REJECTS:
            self.first.append(reject)
            self.offsets.append(offset)


class _Kept:
    """Keeps at most so many random rows: half of them are dropped whenever there are too many.

    Not every n-th row: rows may repeat in a pattern, some of which would never be seen.
    """

    def __init__(self, most: int, seed: int, most_bytes: float) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._share = 1.0
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._random = np.random.default_rng(seed)

    def add(self, batch: pa.RecordBatch) -> None:
        if not self._batches:  # of wide rows fewer
            self._most = min(self._most, max(1, int(self._most_bytes * batch.num_rows / max(1, batch.nbytes))))
        self._append(batch, self._share)
        while self._rows > 2 * self._most:
            self._share /= 2
            batches, self._batches, self._rows = self._batches, [], 0
            for part in batches:
                self._append(part, 0.5)

    def batches(self) -> list[pa.RecordBatch]:
        if self._rows <= self._most:
            return self._batches
        rows = np.sort(self._random.choice(self._rows, self._most, replace=False))
        found: list[pa.RecordBatch] = pa.Table.from_batches(self._batches).take(pa.array(rows)).to_batches()
        return found

    def _append(self, batch: pa.RecordBatch, share: float) -> None:
        if share < 1:  # copied, so that the rest can be freed
            batch = batch.take(pa.array(np.flatnonzero(self._random.random(batch.num_rows) < share)))
        if batch.num_rows or not self._batches:
            self._batches.append(batch)
            self._rows += batch.num_rows


def _read_all(source: Source, most: int, progress: Progress) -> Sample:
    rejects = _Rejects()
    kept = _Kept(most, 0, MOST_BYTES)
    # Rows that fit into the sample need no tallies: the profile of the sample is exact.
    tallied = source.rows is None or source.rows > most
    tallies = {field.name: Tally(field.name, field.type) for field in source.schema} if tallied else {}
    pieces = source.pieces()
    rows = 0
    for index, piece in enumerate(pieces):
        for batch in source.read(piece, None, rejects.add):
            rows += batch.num_rows
            kept.add(batch)
            for name, tally in tallies.items():
                tally.add(batch.column(name))
        progress(index + 1, len(pieces))
    known = {name: tally.known() for name, tally in tallies.items()}
    table = pa.Table.from_batches(kept.batches(), source.schema)
    return Sample(table, Figure(rows, "exact"), True, known, rejects.count, _located(source, [rejects]))


@dataclass(slots=True)
class _Looked:
    """What one probe found."""

    probe: Probe
    rejects: _Rejects
    batches: list[pa.RecordBatch] = field(default_factory=list)
    delivered: int = 0
    """Rows that the source gave, kept or not."""
    ended: bool = False
    """There are no more."""


def _look_around(source: Source, sample: int, progress: Progress) -> Sample:
    probes = choose_probes(source, sample)
    thinning = int(np.clip(MOST_VALUES_READ // (max(1, len(source.schema)) * sample), 1, MOST_THINNING))
    looks: list[_Looked] = []
    # A reader of Parquet holds a buffer for each column.
    with ThreadPoolExecutor(max(1, min(THREADS, BUFFERS // max(1, len(source.schema))))) as pool:
        try:
            for looked in pool.map(lambda probe: _look_at(source, probe, sample, thinning), probes):
                looks.append(looked)
                progress(len(looks), len(probes))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    table = pa.Table.from_batches([batch for looked in looks for batch in looked.batches], source.schema)
    complete = all(looked.ended and looked.probe.every for looked in looks)
    rejected = sum(looked.rejects.count for looked in looks)
    rejects = _located(source, [looked.rejects for looked in looks])
    return Sample(table, _estimate_rows(source, looks, complete), complete, {}, rejected, rejects)


def _look_at(source: Source, probe: Probe, sample: int, thinning: int) -> _Looked:
    """Read a probe: a window as a whole, anything else its first rows; keep some of them."""
    looked = _Looked(probe, _Rejects())
    quota = max(1, round(sample * probe.share))
    kept = _Kept(quota, probe.piece.start, MOST_BYTES * probe.share)
    batches = _csv_window(source, probe.piece, looked.rejects) if _is_csv_window(source, probe) else None
    looked.ended = True
    for batch in batches or source.read(probe.piece, None, looked.rejects.add):
        if not probe.window and looked.delivered >= quota * thinning:
            looked.ended = False
            break
        kept.add(batch)
        looked.delivered += batch.num_rows
        if source.rows is not None and looked.delivered >= quota * thinning:
            looked.ended = False  # there may be more, which are not needed
            break
    looked.batches = kept.batches()
    return looked


def _is_csv_window(source: Source, probe: Probe) -> bool:
    return probe.window and isinstance(source, CsvSource)


def _csv_window(source: Source, piece: Piece, rejects: _Rejects) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a window. Not by `read`, which would count the lines before every bad row."""
    assert isinstance(source, CsvSource)
    file = source.file_of(piece)
    with RandomFile(file.file, source.storage) as opened:
        data = opened.read(piece.start, piece.stop)
    at_end = piece.stop >= file.file.bytes
    stored = held(source.schema, source.schema, file.names)
    reader = BlockReader(source.form, file.names, source.schema, tuple(stored.names), at_end)
    parsed = reader.parse(RecordBlock(data, len(data), piece.start, last=True))
    for bad in parsed.bad:
        rejects.add(make_reject(piece.name, None, bad.reason, bad.text), piece.start + bad.offset)
    yield from (completed(batch, source.schema) for batch in parsed.batches)


def _located(source: Source, found: Sequence[_Rejects]) -> tuple[BadRow, ...]:
    """Return the first bad rows, in order, with the line where counting is fast, else with the byte."""
    pairs = [pair for rejects in found for pair in zip(rejects.first, rejects.offsets, strict=True)]
    located = []
    for reject, offset in pairs[:FIRST_REJECTS]:
        line, reason = reject.line, reject.reason
        if offset is not None and isinstance(source, CsvSource):
            file = next(file for file in source.files if file.file.location == reject.name)
            if offset <= (COUNTED_BYTES_S3 if is_s3(reject.name) else COUNTED_BYTES):
                line = lines_before(file.file, offset, file.newline, source.storage) + 1
            else:
                reason += f" (at byte {offset:,})"
        located.append(BadRow(reject.name, line, reason, reject.text))
    return tuple(located)


def _estimate_rows(source: Source, looks: Sequence[_Looked], complete: bool) -> Figure:
    """Return the rows of the source: known, counted, or estimated by the bytes of a row in the probes."""
    if source.rows is not None:
        return Figure(source.rows, "exact")
    if complete:
        return Figure(sum(looked.delivered for looked in looks), "exact")
    if isinstance(source, CsvSource | JsonSource):
        return Figure(_rows_of_text(source, looks), "estimate")
    density = _density([looked for looked in looks if looked.ended])
    return Figure(None if density is None else round(density * source.bytes), "estimate")


def _density(looks: Sequence[_Looked]) -> float | None:
    size = sum(looked.probe.piece.bytes for looked in looks)
    return sum(looked.delivered for looked in looks) / size if size else None


def _rows_of_text(source: CsvSource | JsonSource, looks: Sequence[_Looked]) -> int:
    """Return the estimated rows of text files, by their windows or by their first bytes."""
    windows = [looked for looked in looks if looked.probe.window]
    density = _density(windows) or 0.0
    closed = [looked.probe.piece.name for looked in looks if not looked.probe.window]
    streams = {name: rows_per_byte(source, name) for name in closed}
    other = sum(streams.values()) / max(1, len(streams))
    return round(
        sum(
            file.file.bytes * (density if can_be_entered(file) else streams.get(file.file.location, other))
            for file in source.files
        )
    )
