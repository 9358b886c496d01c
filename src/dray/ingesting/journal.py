"""The journal of an unfinished ingest, beside its output: the same command continues it, any other is refused.

OUT/_ingest/plan.json         recipe, source, tasks
OUT/_ingest/owner.json        the process that writes; it refreshes `alive` and holds `lock`
OUT/_ingest/task-00000.json   one for each finished task, after its files are in place
OUT/_ingest/rejects-00000     the rows that the task could not read
OUT/_ingest/staged/           rows to be sorted or compared, if any
OUT/_ingest.json              at the end: the result; then the directory is removed

Each document has a digest of itself: a damaged one is reported, or its task is done again. Nothing is masked: a
directory such as has_password=true must keep its name for the ingest to continue.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dray.batch.output import entries
from dray.data.sources.files import in_parallel
from dray.errors import DAMAGE, DrayError, StorageError
from dray.events.telemetry import dumps
from dray.ingesting.written import Report
from dray.runs.alive import HEARTBEAT_S, beat, is_alive, this_process
from dray.runs.files import RunFiles
from dray.storage import StorageOptions, is_s3, join, remove_directory, translate_errors

FOLDER = "_ingest"
RESULT = "_ingest.json"
REJECTS = "_rejects.jsonl"
VERSION = 3
"""Of the journal and of the files that tasks write: files of two versions do not fit together."""
_PLAN, _OWNER, _LOCK, _DIGEST = "plan.json", "owner.json", "lock", "digest"


class BusyError(StorageError):
    """Another process writes to the output."""


class Journal(RunFiles):
    """The directory `_ingest` of an output. The driver owns it; tasks write their own files in it."""

    def __init__(self, out: str, storage: StorageOptions) -> None:
        super().__init__(join(out, FOLDER), storage)
        self.out = RunFiles(out, storage)
        self.document: dict[str, Any] = {}
        """Of the process that writes, for `is_alive`."""
        self._over = threading.Event()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the exclusive right to write to this output until the block ends."""
        with self._locked(), self._owned():
            yield

    def plan(self) -> dict[str, Any] | None:
        """Return the plan of an unfinished ingest, if there is one."""
        if not self.exists(_PLAN):
            return None
        found = _parsed(self.read_bytes(_PLAN))
        if found is None or (found.get("version") == VERSION and not is_sealed(found)):
            raise StorageError(f"{self.path(_PLAN)} is damaged.", fix=f"Remove {self.out.location} and start again.")
        return found

    def begin(self, plan: dict[str, Any]) -> None:
        self.write_exactly(_PLAN, sealed(plan))

    def record(self, report: Report) -> None:
        """Record that a task is done: its files are in place."""
        self.write_exactly(f"task-{report.task:05}.json", sealed(report.to_json()))

    def reports(self, tasks: int) -> dict[int, Report]:
        """Return the records of the finished tasks."""
        names = [name for name in self.names("") if name.startswith("task-") and name.endswith(".json")]
        found = in_parallel(self._report, names)
        return {report.task: report for report in found if report is not None and report.task < tasks}

    def rejects_name(self, task: int) -> str:
        return f"rejects-{task:05}"

    def require_free(self) -> None:
        """Refuse an output that holds anything but the remains of an ingest that ended before it had a plan."""
        there = entries(self.out.location, self.options)
        if set(there) - {FOLDER}:
            done = ": it holds a finished ingest" if RESULT in there else ""
            raise StorageError(
                f"The output {self.out.location} exists and is not empty{done}.",
                fix="Name another output, or remove it.",
            )

    def clear(self) -> None:
        """Remove the output with its journal, unless another process writes there."""
        with self._locked():
            self.document = self._owner()
            if is_alive(self):
                raise self._taken()
            remove_directory(self.out.location, self.options)

    def end(self, result: dict[str, Any]) -> None:
        """Write the result, and remove the journal."""
        self._over.set()  # a heartbeat would create the directory again
        self.out.write_exactly(RESULT, sealed(result))
        self.out.delete_folder(FOLDER, RESULT)

    def _report(self, name: str) -> Report | None:
        found = _parsed(self.read_bytes(name))
        if found is None or not is_sealed(found):  # it is done again
            return None
        with suppress(*DAMAGE):
            return Report.from_json({key: value for key, value in found.items() if key != _DIGEST})
        return None

    def _owner(self) -> dict[str, Any]:
        """Return the process that wrote last; empty if that cannot be read."""
        with suppress(DrayError):
            found = _parsed(self.read_bytes(_OWNER)) if self.exists(_OWNER) else None
            return found if found is not None and is_sealed(found) else {}
        return {}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock that the system releases when the process ends. S3 has no locks."""
        if is_s3(self.location):
            yield
            return
        with translate_errors(self.location):
            Path(self.location).mkdir(parents=True, exist_ok=True)
            file = Path(self.path(_LOCK)).open("wb")  # noqa: SIM115  (open as long as it is held)
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._taken() from None
            except OSError:  # a network mount without locks: only the owner's heartbeat is left
                pass
            yield

    @contextmanager
    def _owned(self) -> Iterator[None]:
        self.document = self._owner()
        if is_alive(self):
            raise self._taken()
        self.document = sealed({"status": "running", "process": this_process(), "token": secrets.token_hex(8)})
        self.write_exactly(_OWNER, self.document)
        beat(self)
        if self._owner() != self.document:  # two started at the same time, on S3: the later one continues
            raise self._taken()
        heart = threading.Thread(target=self._live, name="dray-ingest-alive", daemon=True)
        heart.start()
        try:
            yield
        finally:
            self._over.set()
            heart.join()
            with suppress(DrayError):
                if self.exists(_OWNER):  # not after a finished ingest
                    self.write_exactly(_OWNER, sealed({**self.document, "status": "stopped"}))

    def _live(self) -> None:
        while not self._over.wait(HEARTBEAT_S):
            with suppress(DrayError):  # the next one may succeed
                beat(self)

    def _taken(self) -> BusyError:
        self.document = self._owner()
        process = self.document.get("process")
        writer = ""
        if isinstance(process, dict) and process.keys() >= {"pid", "host"}:
            writer = f" (process {process['pid']} on {process['host']})"
        return BusyError(
            f"Another dray data ingest is writing to {self.out.location}{writer}.",
            fix="Wait for it, end it, or name another output.",
        )


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with a digest of itself, so that damage is found when it is read again."""
    plain = {name: value for name, value in json.loads(dumps(document, show=str)).items() if name != _DIGEST}
    return {**plain, _DIGEST: _digest(plain)}


def is_sealed(document: dict[str, Any]) -> bool:
    """Whether a document is as it was written."""
    plain = {name: value for name, value in document.items() if name != _DIGEST}
    return bool(document.get(_DIGEST) == _digest(plain))


def _digest(plain: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).hexdigest()


def _parsed(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
