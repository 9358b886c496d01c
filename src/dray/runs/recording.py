"""What a run directory keeps in memory for its tables: rounds and samples.

Written by whatever thread reports, read by the saving thread. What could not be saved is offered again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from dray.events.kinds import Event, StepFinished
from dray.events.telemetry import Sample

ROUNDS = "rounds.parquet"
WORKERS = "workers.parquet"
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


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The whole contents of a table that has changed since it was last saved."""

    name: str
    table: pa.Table
    version: int


class Recording:
    """Rounds and samples of a run so far. Any thread may call it; one at a time saves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By number: a round that is done again after a failure replaces the first try.
        self._rounds: dict[int, dict[str, Any]] = {}
        self._samples: list[Sample] = []
        self._batches: list[pa.RecordBatch] = []
        self._versions = {ROUNDS: 0, WORKERS: 0}
        self._saved = {ROUNDS: 0, WORKERS: 0}

    def event(self, event: Event) -> None:
        if isinstance(event, StepFinished):
            with self._lock:
                self._rounds[event.round] = _row(event.data)
                self._versions[ROUNDS] += 1

    def sample(self, samples: list[Sample]) -> None:
        with self._lock:
            self._samples.extend(samples)
            self._versions[WORKERS] += len(samples) > 0

    def restore_rounds(self, table: pa.Table | None, history: Iterable[dict[str, Any]], last: int) -> None:
        """Begin with the rounds of an earlier process, up to round `last`.

        `table` is what that process saved, `history` ({round, seconds, metrics}) what a checkpoint knows: either
        may have rounds that the other lacks.
        """
        rows = [] if table is None else table.to_pylist()
        rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
        rows += [_row(data) for data in history]
        with self._lock:
            self._rounds = {row["round"]: row for row in rows if row["round"] <= last}
            self._versions[ROUNDS] += 1

    def restore_samples(self, table: pa.Table) -> None:
        """Begin with the samples of an earlier process."""
        self._batches = table.select(SAMPLES.names).cast(SAMPLES).to_batches()

    def unsaved(self) -> list[Unsaved]:
        """Return the tables that have changed since they were saved."""
        with self._lock:
            versions = dict(self._versions)
            rounds = [self._rounds[number] for number in sorted(self._rounds)]
            samples, self._samples = self._samples, []
        if samples:
            self._batches.append(_batch(samples))
        changed = [name for name, version in versions.items() if version != self._saved[name]]
        tables = {
            ROUNDS: lambda: rounds_table(rounds),
            WORKERS: lambda: pa.Table.from_batches(self._batches, schema=SAMPLES),
        }
        return [Unsaved(name, tables[name](), versions[name]) for name in changed]

    def saved(self, table: Unsaved) -> None:
        """Take note that `table` has been written."""
        self._saved[table.name] = table.version


def rounds_table(rounds: list[dict[str, Any]]) -> pa.Table:
    """Return one row a round; a metric that a round lacks is null there."""
    metrics = list(dict.fromkeys(name for row in rounds for name in row if name not in ("round", "seconds")))
    schema = pa.schema([("round", pa.int32()), ("seconds", pa.float64()), *((name, pa.float64()) for name in metrics)])
    return pa.Table.from_pylist(rounds, schema=schema)


def _row(data: dict[str, Any]) -> dict[str, Any]:
    return {"round": data["round"], "seconds": data.get("seconds")} | (data.get("metrics") or {})


def _batch(samples: list[Sample]) -> pa.RecordBatch:
    columns = {field.name: [getattr(sample, field.name) for sample in samples] for field in fields(Sample)}
    return pa.RecordBatch.from_pydict(columns, schema=SAMPLES)
