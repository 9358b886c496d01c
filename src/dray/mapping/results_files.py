"""Write the results of `dray map`: tables as Parquet, anything else as JSON lines."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dray.batch.output import Output
from dray.clusters.scratch import command_files
from dray.errors import DataError, ItemError
from dray.events.telemetry import as_json, dumps
from dray.storage import StorageOptions, absolute, join, write_atomically

_FAILURES = ".failures.jsonl"
"""Ends the name of the list of failures beside a single file of results."""


class ResultFiles:
    """What a map has given so far, in files of this machine; `publish` makes them appear at the output, whole."""

    def __init__(
        self, out: str, storage: StorageOptions, scratch: Path, overwrite: bool = False, reads: Sequence[str] = ()
    ) -> None:
        """Refuse an output that is not free."""
        self.rows = 0
        self.results = 0
        self.failed = 0
        self._out = out
        self._single = out.endswith((".parquet", ".jsonl"))
        failures = absolute(out).rstrip("/") + _FAILURES
        self._output = Output(out, storage, is_file=self._single, overwrite=overwrite, companion=failures, reads=reads)
        self._storage = storage
        self._scratch = scratch
        self._table: pq.ParquetWriter | None = None
        self._lines: IO[str] | None = None
        self._failures: IO[str] | None = None

    def add(self, value: Any) -> None:
        """Write one result. The first one decides whether these are tables or lines; the others must be alike."""
        table = as_table(value)
        if self.results and (table is None) != (self._table is None):
            raise DataError(
                f"Result {self.results:,} is a {type(value).__name__}; those before it were "
                f"{'tables' if self._table is not None else 'none'}.",
                fix="Return a table (Arrow, pandas) for every item, or for none.",
            )
        self.results += 1
        if table is not None:
            self._add_table(table)
        else:
            if self._lines is None:
                self._lines = (self._scratch / "results").open("w", encoding="utf-8")
            self._lines.write(as_json(value) + "\n")  # as it is: it belongs to the user

    def fail(self, error: ItemError) -> None:
        self.failed += 1
        if self._failures is None:
            self._failures = (self._scratch / "failures").open("w", encoding="utf-8")
        told = {"index": error.index, "item": error.item, "kind": error.kind, "what": error.what}
        self._failures.write(dumps({**told, "traceback": error.traceback}) + "\n")

    def publish(self) -> list[str]:
        """Put the files where they belong; return their names."""
        for file in (self._table, self._lines, self._failures):
            if file is not None:
                file.close()
        name, out = "results.parquet" if self._table is not None else "results.jsonl", self._output.out
        found = [("results", out if self._single else join(out, name))]
        found.append(("failures", out + _FAILURES if self._single else join(out, "failures.jsonl")))
        written = []
        with self._output as output:
            for source, location in found:
                local = self._scratch / source
                if local.exists():
                    place = output.writing(location)
                    write_atomically(place, self._storage, lambda sink, local=local: _copy(local, sink))  # type: ignore[misc]
                    written.append(location)
            if self._failures is None:
                output.remove_companion()
        return written

    def _add_table(self, table: pa.Table) -> None:
        if self._table is None:
            self._table = pq.ParquetWriter(self._scratch / "results", table.schema)
        if not table.schema.equals(self._table.schema):
            try:
                table = table.cast(self._table.schema)
            except (pa.ArrowInvalid, ValueError) as error:
                raise DataError(
                    f"The columns of result {self.results:,} differ from the first one's: "
                    f"{table.schema.names} {table.schema.types}.",
                    fix="Return the same columns with the same types for every item.",
                ) from error
        self._table.write_table(table)
        self.rows += table.num_rows


@contextmanager
def result_files(
    out: str, storage: StorageOptions, *, overwrite: bool = False, reads: Sequence[str] = ()
) -> Iterator[ResultFiles]:
    """Give the files of an output that is free, or may be replaced; what is not published goes away."""
    with command_files("map") as scratch:
        yield ResultFiles(out, storage, scratch, overwrite, reads)


def as_table(value: Any) -> pa.Table | None:
    """Return a result as a table if it is one: Arrow's, or what pandas and polars have."""
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, pa.Table):
        return value
    if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "columns"):
        return pa.Table.from_pandas(value, preserve_index=False)
    if type(value).__module__.partition(".")[0] == "polars" and hasattr(value, "to_arrow"):
        found = value.to_arrow()
        return found if isinstance(found, pa.Table) else None
    return None


def _copy(local: Path, sink: Any) -> None:
    with local.open("rb") as source:
        shutil.copyfileobj(source, sink, 1 << 20)
