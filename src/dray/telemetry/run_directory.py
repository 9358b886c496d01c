"""A run is a directory that explains itself, on local disk or on an object store.

    run.json          what was asked, with which versions, where, and the result
    model.ubj         the model
    events.jsonl      every step, one JSON document a line
    rounds.parquet    one row a round: round, seconds, one column a metric
    workers.parquet   one row a second and process: cores, memory, network

Every file but events.jsonl appears whole or not at all. No file holds a secret or a pickle.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from dray import __version__
from dray.errors import ModelError, StorageError
from dray.storage import (
    DEFAULT,
    StorageOptions,
    absolute,
    is_s3,
    join,
    open_storage,
    remove_directory,
    translate_errors,
    write_atomically,
)
from dray.telemetry.events import Event, Sample, dumps
from dray.telemetry.recording import Recording

FLUSH_S = 30.0
MANIFEST = "run.json"
# Progress is for the eyes: it would be most of the file, and workers.parquet tells more.
_NOT_STORED = {"worker_progress", "progress"}


def new_run_id() -> str:
    """Return an id that sorts by time, such as 20261116-014500-3f2a."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class RunDirectory:
    """The files of one run. As a sink it records events and samples; `create` makes one, `open_run` reads one.

    The methods that write raise StorageError. A thread of its own saves what was recorded every 30 seconds, so
    that a slow store never holds up training; its failure is raised by the next `event` or `sample`.
    """

    def __init__(self, location: str, options: StorageOptions, document: dict[str, Any]) -> None:
        self.location = absolute(location).rstrip("/")
        self.options = options
        self.document = document
        self._made: Path | None = None
        self._recording = Recording()
        self._log: IO[str] | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._saver: threading.Thread | None = None
        self._failure: Exception | None = None

    @classmethod
    def create(
        cls, location: str, options: StorageOptions = DEFAULT, *, run: str | None = None, **fields: Any
    ) -> RunDirectory:
        """Make the directory and write its first run.json; refuse one that has anything in it.

        Writing at once shows wrong credentials or a missing permission before any work is done. `fields` go
        into run.json (config, versions, cluster).
        """
        document = {
            "dray_version": __version__,
            "run": run or new_run_id(),
            "status": "running",
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "process": _this_process(),
            "config": None,
            "versions": None,
            "cluster": None,
            "result": None,
        }
        directory = cls(location, options, {**document, **fields})
        directory._claim()
        try:
            directory.write_json(MANIFEST, directory.document)
            directory._start()
        except BaseException:
            with suppress(StorageError):  # the first failure is the one to tell
                directory.remove()
            raise
        return directory

    @property
    def run(self) -> str:
        return str(self.document["run"])

    def path(self, name: str) -> str:
        """Return the location of a file of the run."""
        return join(self.location, name)

    def exists(self, name: str) -> bool:
        filesystem, path = open_storage(self.path(name), self.options)
        with translate_errors(self.path(name)):
            return bool(filesystem.get_file_info(path).type == pafs.FileType.File)

    def write(self, name: str, write: Callable[[pa.NativeFile], None]) -> None:
        """Let `write` fill a file of the run, atomically."""
        write_atomically(self.path(name), self.options, write)

    def write_bytes(self, name: str, data: bytes) -> None:
        self.write(name, lambda file: file.write(data))

    def write_json(self, name: str, document: Any) -> None:
        self.write_bytes(name, (dumps(document, indent=2) + "\n").encode())

    def write_table(self, name: str, table: pa.Table) -> None:
        self.write(name, lambda file: pq.write_table(table, file))

    def read_bytes(self, name: str) -> bytes:
        filesystem, path = open_storage(self.path(name), self.options)
        with translate_errors(self.path(name)), filesystem.open_input_stream(path) as file:
            return bytes(file.read())

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def read_table(self, name: str) -> pa.Table:
        return pq.read_table(pa.BufferReader(self.read_bytes(name)))

    def describe(self, **fields: Any) -> None:
        """Put `fields` (versions, cluster, ...) into run.json."""
        self.document |= fields
        self.write_json(MANIFEST, self.document)

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result: the run is finished once this has returned."""
        self.describe(status="finished", ended=datetime.now(UTC).isoformat(timespec="seconds"), result=result)

    def fail(self, error: str, fix: str = "") -> None:
        """Say in run.json that and why the run ended without a result."""
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        self.describe(status="failed", ended=ended, error={"what": error, "fix": fix})

    def remove(self) -> None:
        """Take away everything that `create` made, the parents it had to make included."""
        self._stop()
        if is_s3(self.location):
            remove_directory(self.location, self.options)
        elif self._made is None:  # an empty directory that was there before
            with translate_errors(self.location):
                pafs.LocalFileSystem().delete_dir_contents(self.location)
        else:
            remove_directory(self.location)
            place = Path(self.location)
            with suppress(OSError):  # a parent that holds something else by now stays
                while place != self._made:
                    place = place.parent
                    place.rmdir()

    def event(self, event: Event) -> None:
        self._raise_failure()
        match event.kind:
            case "run_started" if self.document.get("config") is None:
                self.describe(config=event.data.get("config"))
            case "run_finished" if self.document["status"] == "running":
                self.finish(event.data.get("result") or {})
            case "run_failed" if self.document["status"] == "running":
                self.fail(str(event.data.get("error", "")), str(event.data.get("fix", "")))
        self._recording.event(event)
        if event.kind in _NOT_STORED:
            return
        line = event.to_json() + "\n"
        if self._log is None:
            self._recording.lines.append(line)
        else:
            with translate_errors(self.path("events.jsonl")):
                self._log.write(line)
                self._log.flush()

    def sample(self, samples: list[Sample]) -> None:
        self._raise_failure()
        self._recording.sample(samples)

    def close(self) -> None:
        """Save what is recorded and stop. The directory can still be read and written afterwards."""
        if self._saver is None:
            return
        self._stop()
        self.save()
        self._raise_failure()

    def save(self) -> None:
        """Write what has been recorded so far, where it has changed."""
        with self._lock:
            for name, table in self._recording.changed_tables():
                self.write_table(name, table)
            if is_s3(self.location) and (lines := self._recording.changed_lines()) is not None:
                self.write_bytes("events.jsonl", "".join(lines).encode())

    def _claim(self) -> None:
        filesystem, path = open_storage(self.location, self.options)
        with translate_errors(self.location):
            kind = filesystem.get_file_info(path).type
            occupied = kind == pafs.FileType.File
            if not occupied:
                with suppress(FileNotFoundError):  # listing also tells a missing bucket, which is an error
                    occupied = bool(filesystem.get_file_info(pafs.FileSelector(path)))
            if occupied:
                raise StorageError(
                    f"The output {self.location} exists and is not empty.",
                    fix="Name another directory with --out, or remove this one.",
                )
            if not is_s3(self.location) and kind == pafs.FileType.NotFound:
                self._made = _make(Path(path))

    def _start(self) -> None:
        if not is_s3(self.location):
            with translate_errors(self.path("events.jsonl")):
                self._log = Path(self.path("events.jsonl")).open("a", encoding="utf-8")  # noqa: SIM115  (till close)
        self._saver = threading.Thread(target=self._save_now_and_then, name="run-directory", daemon=True)
        self._saver.start()

    def _save_now_and_then(self) -> None:
        wait_s = FLUSH_S
        while not self._closing.wait(wait_s):
            started = time.monotonic()
            try:
                self.save()
            except Exception as error:
                self._failure = error
                return
            # Tables grow and are rewritten: never spend more than a fiftieth of the time on it.
            wait_s = max(FLUSH_S, 50 * (time.monotonic() - started))

    def _stop(self) -> None:
        self._closing.set()
        if self._saver is not None:
            self._saver.join()
            self._saver = None
        if self._log is not None:
            with suppress(OSError):  # every line was flushed, and its failure told, when it was written
                self._log.close()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def open_run(location: str, options: StorageOptions = DEFAULT) -> RunDirectory:
    """Return the run at `location` for reading."""
    directory = RunDirectory(location, options, {})
    if not directory.exists(MANIFEST):
        raise ModelError(
            f"{location} is not a run: it has no {MANIFEST}.",
            fix="Name a run directory (dray runs lists them) or a model file.",
        )
    try:
        document = directory.read_json(MANIFEST)
    except ValueError as error:
        raise ModelError(f"{directory.path(MANIFEST)} is damaged: {error}.", fix="Train again.") from error
    if not isinstance(document, dict) or "run" not in document or "status" not in document:
        raise ModelError(f"{directory.path(MANIFEST)} is not a run's description.", fix="Name another run.")
    directory.document = document
    return directory


def _make(path: Path) -> Path:
    """Make `path` and its parents; return the topmost directory that was not there before."""
    topmost = path
    while not topmost.parent.exists():
        topmost = topmost.parent
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir()  # fails if another run took the place just now
    return topmost


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "created": psutil.Process().create_time()}
