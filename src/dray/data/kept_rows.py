"""The rows of small data, decoded once: in one process, the sample reads them, and loading takes them from memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from dray.data.shards import Slice

MOST_BYTES = 128 << 20
"""Memory for rows: about a million with 30 numbers each."""

Joined = tuple[tuple[Slice, ...], pa.RecordBatch]
"""Rows with the slices that they are made of, in order."""


class KeptRows:
    """The rows of a data set in order, while `keep` got all of them and until `clear`. One thread at a time.

    Pickled without rows: the processes of workers read their own.
    """

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        """Position of the first row of each batch."""
        self._places: dict[tuple[str, int], int] = {}
        """Position of the first row of each row group: another data set may have the same files elsewhere."""

    def keep(self, read: Iterable[Joined]) -> Iterator[Joined]:
        """Yield the rows of all the data, and keep them unless they take too much memory."""
        self.clear()
        held_bytes = 0
        for pieces, batch in read:
            held_bytes += batch.nbytes
            if held_bytes > MOST_BYTES:
                self.clear()
            else:
                self._starts.append(pieces[0].position)
                self._batches.append(batch)
                self._places.update({(one.file, one.row_group): one.position - one.start for one in pieces})
            yield pieces, batch

    def holds(self, slices: Sequence[Slice], columns: Sequence[str]) -> bool:
        """Whether `rows_of` knows all these rows."""
        if not self._batches or not set(columns) <= set(self._batches[0].schema.names):
            return False
        stop = self._starts[-1] + self._batches[-1].num_rows
        return all(
            self._places.get((one.file, one.row_group)) == one.position - one.start and one.position + one.rows <= stop
            for one in slices
        )

    def rows_of(self, slices: Iterable[Slice], columns: Sequence[str]) -> Iterator[Joined]:
        """Yield the rows of slices, which `holds` has confirmed."""
        for at, found in groupby(self._pieces(slices), lambda piece: piece[0]):
            pieces = [piece for _, piece in found]
            for run in _runs(pieces):
                first = run[0].position - self._starts[at]
                rows = sum(piece.rows for piece in run)
                yield tuple(run), self._batches[at].slice(first, rows).select(columns)

    def clear(self) -> None:
        """Forget the rows."""
        self._batches, self._starts, self._places = [], [], {}

    def __reduce__(self) -> tuple[type[KeptRows], tuple[()]]:
        return KeptRows, ()

    def _pieces(self, slices: Iterable[Slice]) -> Iterator[tuple[int, Slice]]:
        """Yield the slices, cut where a batch ends, each with the number of its batch."""
        for whole in slices:
            rest = whole
            while rest.rows:
                at = bisect_right(self._starts, rest.position) - 1
                held = self._starts[at] + self._batches[at].num_rows - rest.position
                if held >= rest.rows:
                    yield at, rest
                    break
                yield at, replace(rest, stop=rest.start + held)
                rest = replace(rest, start=rest.start + held, position=rest.position + held)


def _runs(pieces: Iterable[Slice]) -> Iterator[list[Slice]]:
    """Yield pieces together whose rows follow each other."""
    run: list[Slice] = []
    for piece in pieces:
        if run and piece.position != run[-1].position + run[-1].rows:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run
