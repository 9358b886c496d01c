"""`dray` as a process of its own: start it, follow its run's events, have its result, and leave nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

DRAY = str(Path(sys.executable).with_name("dray"))
_LOOK_S = 0.02

Event = dict[str, Any]


class DrayProcess:
    """A running `dray train`. Use as a context manager, or call `stop`; the end of this process stops it too."""

    def __init__(
        self, command: Sequence[str], directory: Path, *, cwd: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        """Of the run, local."""
        self._told: list[Event] = []
        self._read_bytes = 0
        # Files, since a pipe that nobody reads stops who writes into it.
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115  (till the process is forgotten)
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        # A session of its own, as under a scheduler: a Ctrl-C in the terminal of the tests is not for it.
        self.process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=self._out, stderr=self._err, start_new_session=True
        )
        self._finalizer = weakref.finalize(self, _end, self.process)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        return _content(self._out)

    @property
    def stderr(self) -> str:
        return _content(self._err)

    def events(self, kind: str | None = None) -> list[Event]:
        """Return what the run has told so far, in order; of one kind, if it is given."""
        self._read()
        return [event for event in self._told if kind is None or event["kind"] == kind]

    def wait_event(
        self, kind: str, where: Callable[[Event], bool] = lambda _: True, *, after: float = 0, timeout_s: float = 60
    ) -> Event:
        """Return the first event of the kind that `where` accepts, told later than `after` (seconds since 1970).

        One that is not told by a process that has ended, or in time, is an AssertionError with what it said.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self.process.poll() is not None  # asked before reading, so that the last events are seen
            for event in self.events(kind):
                if event["time"] > after and where(event):
                    return event
            assert not ended, self._complaint(f"ended with {self.process.returncode} and told no such {kind}")
            assert time.monotonic() < deadline, self._complaint(f"told no such {kind} within {timeout_s} s")
            time.sleep(_LOOK_S)

    def wait_round(self, number: int, timeout_s: float = 120) -> Event:
        """Return when that round, or a later one, is done."""
        return self.wait_event("round", lambda event: event["round"] >= number, timeout_s=timeout_s)

    def workers(self) -> dict[int, int]:
        """Return each worker's pid as it was started last; those lost since are left out."""
        pids: dict[int, int] = {}
        for event in self.events():
            if event["kind"] == "worker_started":
                pids[event["worker"]] = event["pid"]
            elif event["kind"] == "worker_lost" and pids.get(event["worker"]) == event.get("pid"):
                pids.pop(event["worker"], None)
        return pids

    def hosts(self) -> dict[int, str]:
        """Return each worker's host as it was started last."""
        return {event["worker"]: event["host"] for event in self.events("worker_started")}

    def wait(self, timeout_s: float = 120) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._complaint(f"did not end within {timeout_s} s")) from None

    def finish(self, timeout_s: float = 120) -> dict[str, Any]:
        """Wait for its good end; return its result."""
        code = self.wait(timeout_s)
        assert code == 0, self._complaint(f"ended with {code}")
        result: dict[str, Any] = json.loads(self.stdout)
        return result

    def stop(self) -> None:
        """End it and what it started on this machine, if it has not ended. May be called again."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._out.close()
        self._err.close()

    def _read(self) -> None:
        with suppress(FileNotFoundError), (self.directory / "events.jsonl").open("rb") as file:
            file.seek(self._read_bytes)
            content = file.read()
            whole = content[: content.rfind(b"\n") + 1]  # the last line may be half written
            self._read_bytes += len(whole)
            self._told += [json.loads(line) for line in whole.splitlines()]

    def _complaint(self, what: str) -> str:
        last = "\n".join(json.dumps(event)[:300] for event in self.events()[-20:])
        return f"dray {what}.\nIt said:\n{self.stderr[-3000:]}\nLast events:\n{last}"


def start_dray(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> DrayProcess:
    """Start `dray ARGUMENTS --json` behind a prefix (`Host.prefix`), with `--out run` where it has none."""
    command = [*prefix, DRAY, *arguments]
    if "--json" not in command:
        command.append("--json")
    if "--out" not in command:
        command += ["--out", "run"]
    return DrayProcess(command, cwd / command[command.index("--out") + 1], cwd=cwd, env=env)


def _content(file: Any) -> str:
    # By a descriptor of its own: the process writes at the position of the shared one.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def _end(process: subprocess.Popen[bytes], patience_s: float = 10) -> None:
    """Ask the process to end, then end it and all its descendants."""
    if process.poll() is None:
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for descendant in family:
            with suppress(psutil.NoSuchProcess):
                descendant.kill()  # psutil knows whether the pid is still the same process's
