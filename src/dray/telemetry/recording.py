"""What a run directory keeps in memory between two saves: rounds, samples and lines.

Written by whatever thread reports, read by the saving thread; each list is only ever appended to or swapped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pyarrow as pa

from dray.telemetry.events import Event, Sample

SAMPLES = pa.schema(
    {
        "time": pa.float64(),
        "worker": pa.int32(),
        "host": pa.string(),
        "cpu_cores": pa.float32(),
        "memory_bytes": pa.int64(),
        "host_cpu_percent": pa.float32(),
        "sent_bytes": pa.int64(),
        "received_bytes": pa.int64(),
    }
)


class Recording:
    """Rounds, samples and event lines of a run so far. Any thread may call it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._lock = threading.Lock()
        # By number: a round that is done again after a failure replaces the first try.
        self._rounds: dict[int, dict[str, Any]] = {}
        self._samples: list[Sample] = []
        self._batches: list[pa.RecordBatch] = []
        self._rounds_changed = False
        self._lines_saved = 0

    def event(self, event: Event) -> None:
        if event.kind == "round":
            row = {"round": event.data["round"], "seconds": event.data.get("seconds")}
            with self._lock:
                self._rounds[row["round"]] = row | event.data.get("metrics", {})
                self._rounds_changed = True

    def sample(self, samples: list[Sample]) -> None:
        with self._lock:
            self._samples.extend(samples)

    def changed_tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the name and whole contents of each table that has grown since the last call."""
        with self._lock:
            rounds = [self._rounds[number] for number in sorted(self._rounds)] if self._rounds_changed else []
            samples, self._samples = self._samples, []
            self._rounds_changed = False
        if rounds:
            yield "rounds.parquet", rounds_table(rounds)
        if samples:
            self._batches.append(_batch(samples))
            yield "workers.parquet", pa.Table.from_batches(self._batches)

    def changed_lines(self) -> list[str] | None:
        """Return all lines if there are new ones since the last call."""
        lines = self.lines[:]
        if len(lines) == self._lines_saved:
            return None
        self._lines_saved = len(lines)
        return lines


def rounds_table(rounds: list[dict[str, Any]]) -> pa.Table:
    """Return one row a round; a metric that a round lacks is null there."""
    metrics = list(dict.fromkeys(name for row in rounds for name in row if name not in ("round", "seconds")))
    schema = pa.schema([("round", pa.int32()), ("seconds", pa.float64()), *((name, pa.float64()) for name in metrics)])
    return pa.Table.from_pylist(rounds, schema=schema)


def _batch(samples: list[Sample]) -> pa.RecordBatch:
    columns = {field.name: [getattr(sample, field.name) for sample in samples] for field in fields(Sample)}
    return pa.RecordBatch.from_pydict(columns, schema=SAMPLES)
