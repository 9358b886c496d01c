"""A run is a directory that explains itself, on local disk or on an object store.

    run.json          what was asked, with which versions, where, and the result
    model.ubj         the model
    events.jsonl      every step, one JSON document a line
    rounds.parquet    one row a round: round, seconds, one column a metric
    workers.parquet   one row a second and process: cores, memory, network
    checkpoints/      what `dray resume` needs, as long as the run is not finished (checkpoints.py)
    alive             a sign of life, as long as the process is there (alive.py)

Every file but events.jsonl appears whole or not at all. No file holds a secret or a pickle.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from dray import __version__
from dray.durable import make_directories, sync_directory
from dray.errors import DAMAGE, DrayError, ModelError, StorageError
from dray.events.kinds import Event, Progress, RunFailed, RunFinished, RunStarted, WorkerProgress
from dray.events.log import EventLog, LocalLog, StoredLog
from dray.events.telemetry import Sample, to_line
from dray.runs.alive import ALIVE, HEARTBEAT_S, LOST_AFTER_S, beat, is_alive, is_here, this_process
from dray.runs.checkpoints import WrittenCheckpoint
from dray.runs.files import MANIFEST, RunFiles
from dray.runs.migrations import VERSION, migrated
from dray.runs.own_files import foreign_in_run
from dray.runs.recording import ROUNDS, WORKERS, Recording
from dray.runs.replacing import take_the_place
from dray.storage import DEFAULT, StorageOptions, is_s3, open_storage, remove_directory, translate_errors

FLUSH_S = HEARTBEAT_S
EVENTS = "events.jsonl"
REPLACES = "replaces"
"""Key of run.json: the directory whose place the run takes when it is finished."""
_SECTIONS = ("config", "versions", "cluster", "result", "process", "error", "files")
"""Keys of run.json that hold keys and values, or nothing yet."""
# Progress is for the eyes: it would be most of the file, and workers.parquet tells more.
_NOT_STORED = (WorkerProgress, Progress)


def new_run_id() -> str:
    """Return an id that sorts by time, such as 20261116-014500-3f2a91c0: a night's runs begin in the same second."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


class RunDirectory(RunFiles):
    """The files of one run. As a sink it records events and samples.

    `create` makes one, `reopen` goes on with one, `open_run` reads one. The methods that write a file raise
    StorageError. As a sink it does not: what cannot be written (a full disk, a store out of reach) waits in memory,
    `problem` says why, and a thread of its own tries again every 30 seconds, so that a slow store never holds up
    training. Only `close` raises what could not be written till the end.
    """

    def __init__(self, location: str, options: StorageOptions, document: dict[str, Any]) -> None:
        super().__init__(location, options)
        self.document = document
        self.problem: str | None = None
        """What cannot be written at the moment."""
        self.on_problem: Callable[[str, str], object] | None = None
        """Called with the first problem and its fix, by the thread that reports: it may emit a warning."""
        self._problem_fix = ""
        self._problem_told = False
        self._created = False
        self._made: Path | None = None
        self._recording = Recording()
        self._log: EventLog | None = None
        self._manifest_lock = threading.RLock()
        self._manifest_saved = True
        self._save_lock = threading.Lock()
        self._closing = threading.Event()
        self._saver: threading.Thread | None = None

    @classmethod
    def create(
        cls, location: str, options: StorageOptions = DEFAULT, *, run: str | None = None, **fields: Any
    ) -> RunDirectory:
        """Make the directory and write its first run.json; refuse one that has anything in it.

        Writing at once shows wrong credentials or a missing permission before any work is done. `fields` go
        into run.json (config, versions, cluster).
        """
        document = {
            "version": VERSION,
            "dray_version": __version__,
            "run": run or new_run_id(),
            "status": "running",
            "started": datetime.now(UTC).isoformat(timespec="milliseconds"),  # runs of one second have an order
            "process": this_process(),
            "config": None,
            "versions": None,
            "cluster": None,
            "result": None,
        }
        directory = cls(location, options, {**document, **fields})
        directory._claim()
        directory._created = True
        try:
            directory._begin()
        except BaseException:
            with suppress(StorageError):  # the first failure is the one to tell
                directory.remove()
            raise
        return directory

    @classmethod
    def reopen(
        cls, location: str, options: StorageOptions = DEFAULT, checkpoint: WrittenCheckpoint | None = None
    ) -> RunDirectory:
        """Go on with a run that ended without a result, after the rounds of `checkpoint` (None: from the start).

        Refuses what `open_resumable` refuses. All that was recorded stays, but for rounds that will be done again.
        """
        directory = open_resumable(location, options)
        directory._restore(checkpoint)
        ended = {"error", "ended"}
        directory.document = {name: value for name, value in directory.document.items() if name not in ended} | {
            "status": "running",
            "process": this_process(),
            "resumed": int(directory.document.get("resumed") or 0) + 1,
        }
        try:
            directory._begin()
        except BaseException:
            directory._release()
            raise
        return directory

    @property
    def run(self) -> str:
        return str(self.document["run"])

    @property
    def final(self) -> str:
        """Where the run is when it is finished."""
        return str(self.document.get(REPLACES) or self.location)

    def describe(self, **fields: Any) -> None:
        """Put `fields` (versions, cluster, ...) into run.json; what cannot be written is not taken over."""
        with self._manifest_lock:
            document = self.document | fields
            self.write_json(MANIFEST, document)
            self.document, self._manifest_saved = document, True

    def write_result(self, name: str, data: bytes) -> None:
        """Write a file of the result; `finish` puts its digest into run.json."""
        self.write_bytes(name, data)
        with self._manifest_lock:
            files = {**_files_of(self.document), name: hashlib.sha256(data).hexdigest()}
            self.document = self.document | {"files": files}

    def read_result(self, name: str) -> tuple[bytes, bool]:
        """Return a file of the result, and whether it is known to be what the run wrote: older runs kept no digest."""
        content, digest = self.read_bytes(name), _files_of(self.document).get(name)
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise ModelError(
                f"{self.path(name)} is not what the run wrote: its {len(content):,} bytes have another digest than "
                f"{MANIFEST} says.",
                fix="Put the file back if there is a copy, or train again.",
            )
        return content, digest is not None

    def finish(self, result: dict[str, Any]) -> None:
        """Write the result: the run is finished once this has returned, and in its place."""
        final = self.final
        with self._manifest_lock:
            self.document = {key: value for key, value in self.document.items() if key != REPLACES}
            self.describe(**_ending("finished", result=result))
        if final != self.location:
            with self._save_lock, self._manifest_lock:
                take_the_place(final, foreign_in_run)
                self.location = final

    def fail(self, error: str, fix: str = "") -> None:
        """Say in run.json that and why the run ended without a result."""
        self.describe(**_ending("failed", error={"what": error, "fix": fix}))

    def interrupt(self, why: str, fix: str = "") -> None:
        """Say in run.json that the run was stopped before its end, on purpose or as configured; it can be resumed."""
        self.describe(**_ending("stopped", error={"what": why, "fix": fix}))

    def remove(self) -> None:
        """Take away everything that `create` made, the parents it had to make included; never an earlier run."""
        self._stop()
        if not self._created:
            self._release()
            return
        if self._log is not None:
            self._log.close()
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
        self._recording.event(event)
        if not isinstance(event, _NOT_STORED) and self._log is not None:
            try:
                self._log.append(to_line(event) + "\n")
            except StorageError as error:  # it waits in the log
                self._note_problem(error)
        running = self.document["status"] == "running"
        match event:
            case RunStarted() if self.document.get("config") is None:
                self._describe_sooner_or_later(config=event.config)
            case RunFinished() if running:
                self._describe_sooner_or_later(**_ending("finished", result=event.result))
            case RunFailed() if running:
                status = event.status or "failed"
                reason = {"what": event.error, "fix": event.fix}
                self._describe_sooner_or_later(**_ending(status, error=reason))
        self._tell_problem()

    def sample(self, samples: list[Sample]) -> None:
        self._recording.sample(samples)
        self._tell_problem()

    def close(self) -> None:
        """Save what is recorded and stop. The directory can still be read and written afterwards."""
        if self._saver is None:
            return
        self._stop()
        try:
            self.save()
        finally:
            self._release()

    def save(self) -> None:
        """Write what has been recorded so far, where it has changed; what fails does not keep the rest from it."""
        problem: Exception | None = None
        with self._save_lock:
            for step in (self._save_manifest, self._save_lines, self._save_tables):
                try:
                    step()
                except Exception as error:
                    problem = problem or error
        if problem is not None:
            self._note_problem(problem)
            raise problem
        self.problem = None

    def _save_manifest(self) -> None:
        if not self._manifest_saved:
            self.describe()

    def _save_lines(self) -> None:
        if self._log is not None:
            self._log.save()

    def _save_tables(self) -> None:
        for unsaved in self._recording.unsaved():
            self.write_table(unsaved.name, unsaved.table)
            self._recording.saved(unsaved)

    def _describe_sooner_or_later(self, **fields: Any) -> None:
        try:
            self.describe(**fields)
        except StorageError as error:
            with self._manifest_lock:
                self.document, self._manifest_saved = self.document | fields, False
            self._note_problem(error)

    def _note_problem(self, error: Exception) -> None:
        what, fix = (error.what, error.fix) if isinstance(error, DrayError) else (repr(error), "")
        self.problem, self._problem_fix = what, fix

    def _tell_problem(self) -> None:
        # Here and not where it is noted: the saver must not wait for the reporting thread, which may wait for it.
        if self.problem is None or self.on_problem is None or self._problem_told:
            return
        self._problem_told = True  # before the call, which may come back as an event
        self.on_problem(
            f"Files of the run cannot be written now: {self.problem}",
            f"{self._problem_fix} The run goes on, and writes what is missing as soon as it can.".lstrip(),
        )

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
                    fix="Name another directory with --out, or replace a run that is there with --overwrite.",
                )
            if not is_s3(self.location) and kind == pafs.FileType.NotFound:
                self._made = _make(Path(path))

    def _restore(self, checkpoint: WrittenCheckpoint | None) -> None:
        """Read what the run's earlier process recorded. Nothing is written."""
        history, last = (checkpoint.rounds, checkpoint.round) if checkpoint is not None else ((), 0)
        try:
            self._recording.restore_rounds(self._earlier_table(ROUNDS), history, last)
        except DAMAGE:  # of the table: a checkpoint is whole
            self._recording.restore_rounds(None, history, last)
        samples = self._earlier_table(WORKERS)
        if samples is not None:
            with suppress(pa.ArrowException, *DAMAGE):  # of a dray with other columns
                self._recording.restore_samples(samples)
        if is_s3(self.location):
            self._log = self._stored_log(self.read_bytes(EVENTS) if self.exists(EVENTS) else b"")

    def _stored_log(self, earlier: bytes) -> EventLog:
        return StoredLog(earlier, lambda content: self.write_bytes(EVENTS, content))

    def _earlier_table(self, name: str) -> pa.Table | None:
        if self.exists(name):
            with suppress(ModelError):  # a damaged record is no reason to lose the run
                return self.read_table(name)
        return None

    def _begin(self) -> None:
        """Become the run's process: everything that can fail, and then the thread."""
        if self._log is None:
            self._log = self._stored_log(b"") if is_s3(self.location) else LocalLog(self.path(EVENTS))
        beat(self)
        self.write_json(MANIFEST, self.document)
        self._saver = threading.Thread(target=self._save_now_and_then, name="run-directory", daemon=True)
        self._saver.start()

    def _save_now_and_then(self) -> None:
        due = 0.0
        while not self._closing.wait(FLUSH_S):
            try:
                with self._save_lock:  # not while the run takes the place of another
                    beat(self)
            except StorageError as error:
                self._note_problem(error)
            started = time.monotonic()
            if started < due:
                continue
            with suppress(Exception):  # noted, and tried again
                self.save()
            # Tables grow and are rewritten: never spend more than a fiftieth of the time on it.
            due = time.monotonic() + 50 * (time.monotonic() - started)

    def _stop(self) -> None:
        self._closing.set()
        if self._saver is not None:
            self._saver.join()
            self._saver = None

    def require_finished(self) -> None:
        """Refuse a run that has no model: it failed, was stopped, or still runs."""
        if (status := self.document["status"]) != "finished":
            raise ModelError(
                f"The run {self.location} is {status}: it has no model.",
                fix=f"Name a finished run; dray resume {self.location} goes on with one that ended early.",
            )

    def _release(self) -> None:
        """Close the files, as the last thing. Nothing happens to a run that was opened for reading only."""
        if self._log is None:
            return
        self._log.close()
        with suppress(StorageError):  # it grows stale by itself
            self.delete([ALIVE], beside=MANIFEST)


def open_run(location: str, options: StorageOptions = DEFAULT) -> RunDirectory:
    """Return the run at `location` for reading."""
    directory = RunDirectory(location, options, {})
    if not directory.exists(MANIFEST):
        raise ModelError(
            f"{location} is not a run: it has no {MANIFEST}.",
            fix="Name a run directory: dray runs lists them.",
        )
    document = directory.read_json(MANIFEST)
    if not isinstance(document, dict) or not all(isinstance(document.get(key), str) for key in ("run", "status")):
        raise ModelError(
            f"{directory.path(MANIFEST)} does not describe a run.", fix="Name another run: dray runs lists them."
        )
    for key in _SECTIONS:
        if not isinstance(document.get(key), dict | None):
            raise directory.damaged(MANIFEST, f'"{key}" is {str(document[key])[:40]!r}')
    directory.document = migrated(document, directory.path(MANIFEST))
    return directory


def open_resumable(location: str, options: StorageOptions = DEFAULT) -> RunDirectory:
    """Return the run at `location` for reading, if it is one to go on with: neither finished nor still alive."""
    directory = open_run(location, options)
    if directory.document["status"] == "finished":
        raise ModelError(
            f"The run {location} is finished: there is nothing to resume.",
            fix=f"Use its model (dray predict {location} ..., or of a recommender dray recommend {location} ...), "
            f"or train further: dray train DATA --continue-from {location}.",
        )
    if is_alive(directory):
        process = directory.document["process"]
        gone = (
            f"stop it: kill {process['pid']}"
            if is_here(process)
            else f"stop it there. If its host is gone, it counts as lost after {LOST_AFTER_S:.0f} seconds"
        )
        raise ModelError(
            f"The run {location} is still running: process {process.get('pid')} on {process.get('host')}.",
            fix=f"Wait for it to end, or {gone}.",
        )
    return directory


def _make(path: Path) -> Path:
    """Make `path` and its parents; return the topmost directory that was not there before."""
    topmost = path
    while not topmost.parent.exists():
        topmost = topmost.parent
    make_directories(path.parent)
    path.mkdir()  # fails if another run took the place just now
    sync_directory(path.parent)
    return topmost


def _files_of(document: dict[str, Any]) -> dict[str, Any]:
    files = document.get("files")
    return files if isinstance(files, dict) else {}


def _ending(status: str, **fields: Any) -> dict[str, Any]:
    return {"status": status, "ended": datetime.now(UTC).isoformat(timespec="seconds"), **fields}
