"""What an unfinished ingest has done so far, beside its output: so that the same command goes on, and no other does.

OUT/_ingest/plan.json         recipe, source, tasks
OUT/_ingest/owner.json        the process at work; `alive` is refreshed by it, `lock` is held
OUT/_ingest/task-00000.json   one for each task that is done, after its files are in place
OUT/_ingest/rejects-00000     the rows that the task could not read
OUT/_ingest/staged/           rows on their way, if they must move
OUT/_ingest.json              in the end: what was done; then the directory goes
"""

from __future__ import annotations

import fcntl
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyarrow import fs as pafs

from dray.data.sources.files import in_parallel
from dray.errors import DrayError, StorageError
from dray.ingesting.written import Report
from dray.storage import StorageOptions, is_s3, join, open_storage, translate_errors
from dray.telemetry.alive import HEARTBEAT_S, beat, is_alive, this_process
from dray.telemetry.run_files import RunFiles

FOLDER = "_ingest"
RESULT = "_ingest.json"
REJECTS = "_rejects.jsonl"
_PLAN, _OWNER, _LOCK = "plan.json", "owner.json", "lock"


class BusyError(StorageError):
    """Another process is at work on the output."""


class Journal(RunFiles):
    """The directory `_ingest` of an output. The driver owns it; tasks write their own files in it."""

    def __init__(self, out: str, storage: StorageOptions) -> None:
        super().__init__(join(out, FOLDER), storage)
        self.out = RunFiles(out, storage)
        self.document: dict[str, Any] = {}
        """Of the process at work, for `is_alive`."""
        self._over = threading.Event()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Be the only one at work on this output, till the end of the block."""
        with self._locked(), self._owned():
            yield

    def plan(self) -> dict[str, Any] | None:
        """Return the plan of an unfinished ingest, if there is one."""
        if not self.exists(_PLAN):
            return None
        try:
            found = json.loads(self.read_bytes(_PLAN))
            return found if isinstance(found, dict) else None
        except ValueError:  # written atomically, so it is none of ours
            raise StorageError(
                f"{self.path(_PLAN)} is damaged.", fix=f"Remove {self.out.location} and start again."
            ) from None

    def begin(self, plan: dict[str, Any]) -> None:
        self.write_json(_PLAN, plan)

    def record(self, report: Report) -> None:
        """Note that a task is done: its files are in place."""
        self.write_json(f"task-{report.task:05}.json", report.to_json())

    def reports(self, tasks: int) -> dict[int, Report]:
        """Return what is known of the tasks that are done."""
        names = [name for name in self.names("") if name.startswith("task-") and name.endswith(".json")]
        found = in_parallel(self._report, names)
        return {report.task: report for report in found if report is not None and report.task < tasks}

    def rejects_name(self, task: int) -> str:
        return f"rejects-{task:05}"

    def require_free(self) -> None:
        """Refuse an output that holds something else than the remains of a start that did not come to a plan."""
        filesystem, path = open_storage(self.out.location, self.options)
        with translate_errors(self.out.location):
            info = filesystem.get_file_info(path)
            taken = info.type == pafs.FileType.File
            if info.type == pafs.FileType.Directory:
                entries = filesystem.get_file_info(pafs.FileSelector(path))
                taken = any(entry.base_name != FOLDER for entry in entries)
        if taken:
            done = self.out.exists(RESULT) if info.type == pafs.FileType.Directory else False
            raise StorageError(
                f"The output {self.out.location} exists and is not empty"
                f"{': an ingest into it has ended well' if done else ''}.",
                fix="Name another place, or remove it.",
            )

    def end(self, result: dict[str, Any]) -> None:
        """Say what was done, for good, and remove what was needed on the way."""
        self._over.set()  # a sign of life would make the directory again
        self.out.write_json(RESULT, result)
        self.out.delete_folder(FOLDER, RESULT)

    def _report(self, name: str) -> Report | None:
        try:
            return Report.from_json(json.loads(self.read_bytes(name)))
        except (ValueError, KeyError, TypeError):  # one that cannot be read is done again
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock that the system takes back from a process that dies. Not on S3, which has none."""
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
            except OSError:  # a network mount without locks: the owner's sign of life is what there is
                pass
            yield

    @contextmanager
    def _owned(self) -> Iterator[None]:
        with suppress(DrayError):
            self.document = dict(self.read_json(_OWNER))
        if is_alive(self):
            raise self._taken()
        self.document = {"status": "running", "process": this_process(), "token": secrets.token_hex(8)}
        self.write_json(_OWNER, self.document)
        beat(self)
        if self.read_json(_OWNER) != self.document:  # two at the same moment, on S3: the later one goes on
            raise self._taken()
        heart = threading.Thread(target=self._live, name="dray-ingest-alive", daemon=True)
        heart.start()
        try:
            yield
        finally:
            self._over.set()
            heart.join()
            with suppress(DrayError):
                if self.exists(_OWNER):  # not after a good end
                    self.write_json(_OWNER, {**self.document, "status": "stopped"})

    def _live(self) -> None:
        while not self._over.wait(HEARTBEAT_S):
            with suppress(DrayError):  # the next one may come through
                beat(self)

    def _taken(self) -> BusyError:
        with suppress(DrayError):
            self.document = dict(self.read_json(_OWNER))
        process = self.document.get("process") or {}
        who = f" (process {process['pid']} on {process['host']})" if "pid" in process else ""
        return BusyError(
            f"Another dray data ingest is writing to {self.out.location}{who}.",
            fix="Wait for it, end it, or name another output.",
        )
