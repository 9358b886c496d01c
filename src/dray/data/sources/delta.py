"""Delta Lake tables, at one version: every piece is a file of that version, and all workers read the same one.

The log is read by the `deltalake` library, which also says what a file's rows are (partition values, new columns).
Tables with deletion vectors or column mapping are read by its own engine, as one piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from dray.data.source import PIECE_BYTES, Note, OnReject, Piece, all_kept
from dray.data.sources.columns import chosen
from dray.data.sources.extras import load
from dray.errors import ConfigError, DataError
from dray.s3 import redact
from dray.storage import StorageOptions, absolute, is_s3, open_storage, s3_variables, translate_errors

BATCH_ROWS = 64 << 10


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """Rows of a Delta Lake table. Every row has the types of the table."""

    name: str
    version: int
    schema: pa.Schema
    rows: int | None
    bytes: int
    sizes: tuple[tuple[str, int], ...]
    """Path and bytes of every file, in reading order; empty if only the engine can read the table."""
    storage: StorageOptions
    format: str = "delta"
    notes: tuple[Note, ...] = ()

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:  # noqa: ARG002  (a file is what can be read alone)
        if not self.sizes:
            return [Piece(self.name, 0, 0, 0, self.bytes)]
        return [Piece(self.name, index, index, index + 1, size) for index, (_, size) in enumerate(self.sizes)]

    def read(
        self, piece: Piece, columns: Sequence[str] | None, _reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        schema = chosen(columns, self.schema)
        try:
            with translate_errors(self.name):
                for batch in self._batches(piece, schema.names):
                    if batch.num_rows:
                        batch = batch if batch.schema.equals(schema) else batch.cast(schema)
                        yield all_kept(batch) if in_place else batch
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.name, error) from error

    def _batches(self, piece: Piece, names: list[str]) -> Iterator[pa.RecordBatch]:
        if not self.sizes:
            table = _load(self.name, self.version, self.storage)
            yield from pa.RecordBatchReader.from_stream(table.scan(columns=names))
            return
        path, _ = self.sizes[piece.start]
        dataset = _dataset(self.name, self.version, self.storage)
        fragment = next(found for found in dataset.get_fragments() if found.path == path)
        yield from fragment.to_batches(schema=dataset.schema, columns=names, batch_size=BATCH_ROWS)


def open_delta(locations: Sequence[str], storage: StorageOptions, *, version: int | None = None) -> DeltaSource:
    """Read the log of a table; the newest version if none is named."""
    if len(locations) != 1:
        raise ConfigError(f"{len(locations)} Delta Lake tables were named.", fix="Name one table.")
    location = absolute(locations[0])
    table = _load(location, version, storage)
    actions = pa.table(table.get_add_actions(flatten=True))
    # The log writes paths percent-encoded, as in URLs.
    sizes = dict(zip(map(unquote, actions["path"].to_pylist()), actions["size_bytes"].to_pylist(), strict=True))
    if not sizes:
        raise DataError(f"There are no rows in {location}, version {table.version()}.", fix="Name another version.")
    schema = pa.schema(table.schema().to_arrow()).remove_metadata()
    counts = actions["num_records"].to_pylist() if "num_records" in actions.column_names else [None]
    rows = None if None in counts else sum(counts)
    files: tuple[tuple[str, int], ...] = ()
    if _needs_engine(table):
        rows = None
    else:
        paths = [fragment.path for fragment in _dataset(location, table.version(), storage).get_fragments()]
        files = tuple((path, sizes.get(path, sum(sizes.values()) // len(sizes))) for path in paths)
    return DeltaSource(location, table.version(), schema, rows, sum(sizes.values()), files, storage)


def _needs_engine(table: Any) -> bool:
    features = set(table.protocol().reader_features or ())
    mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    return mapped or bool({"deletionVectors", "columnMapping"} & features)


@lru_cache(maxsize=8)
def _dataset(location: str, version: int, storage: StorageOptions) -> Any:
    """Return the files of a version; the log is read once in a process, not once a piece."""
    filesystem, path = open_storage(location, storage)
    from pyarrow.fs import SubTreeFileSystem

    return _load(location, version, storage).to_pyarrow_dataset(filesystem=SubTreeFileSystem(path, filesystem))


def _load(location: str, version: int | None, storage: StorageOptions) -> Any:
    deltalake = load("deltalake")
    options = s3_variables(location, storage) if is_s3(location) else None
    try:
        return deltalake.DeltaTable(location, version=version, storage_options=options)
    except deltalake.exceptions.TableNotFoundError as error:
        raise DataError(
            f"There is no Delta Lake table at {location}.", fix="Name the directory that holds _delta_log."
        ) from error
    except (deltalake.exceptions.DeltaError, OSError, ValueError) as error:
        what = f"version {version} of {location}" if version is not None else location
        raise _unreadable(what, error) from None  # the original may quote the options, and with them the keys


def _unreadable(what: str, error: BaseException) -> DataError:
    reason = redact((str(error).splitlines() or ["no reason given"])[0])
    return DataError(
        f"Cannot read {what} as a Delta Lake table: {reason}",
        fix="Check the version, that no file was vacuumed away, and the access to the store.",
    )
