"""A run in trouble: `dray` as a process, what shall happen to its workers and when, and what is left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from dray_process import DRAY, DrayProcess, start_dray

FAULTS = Path(__file__).parent / "faults"
MARK = "DRAY_CHAOS"
"""A variable that every process of a scene inherits, whatever its parent is by now."""
ROUNDS = 12
FLAGS = ["--label", "label", "--rounds", str(ROUNDS), "--eval-fraction", "0.2", "--param", "max_depth=4"]
OFTEN = {"dray.learners.xgboost.worker:CHECKPOINT_S": 0.0, "dray.learners.xgboost.worker:CHECKPOINT_SHARE": 1.0}
"""A copy of the model after every round, so that a run of a second has some."""
GONE_S = 10.0


@dataclass(frozen=True)
class Fault:
    """What happens at a moment, in the processes themselves. See faults/sitecustomize.py for the moments."""

    do: Literal["kill", "stop", "raise", "hog", "wait"]
    at: str
    worker: int | None = None
    round: int | None = None
    times: int = 1
    """How often, in all processes together."""


@dataclass(frozen=True)
class Strike:
    """A fault that has happened."""

    pid: int
    worker: int
    time: float


class Faults:
    """A plan in a file that the processes read when they start, and what has come of it."""

    def __init__(self, folder: Path, is_over: Callable[[], bool]) -> None:
        self.folder = folder
        self._is_over = is_over
        self.path = folder / "plan.json"
        folder.mkdir()
        self.plan([])

    def plan(self, faults: Sequence[Fault], constants: Mapping[str, Any] | None = None) -> None:
        """Replace the plan, for processes that start from now on."""
        for old in self.folder.glob("*.*"):
            old.unlink()
        self.path.write_text(json.dumps({"faults": [asdict(fault) for fault in faults], "constants": constants or {}}))

    def strikes(self, fault: int = 0) -> list[Strike]:
        """Return how often a fault of the plan has happened so far."""
        found = []
        for path in sorted(self.folder.glob(f"{fault}.[0-9]*")):
            with suppress(json.JSONDecodeError):  # half written
                found.append(Strike(**json.loads(path.read_text())))
        return found

    def wait(self, times: int = 1, fault: int = 0, timeout_s: float = 60) -> list[Strike]:
        """Return when a fault has happened so often."""
        wait_until(
            lambda: len(self.strikes(fault)) >= times or self._is_over(), timeout_s, f"fault {fault} has not happened"
        )
        found = self.strikes(fault)
        assert len(found) >= times, f"The run is over, and fault {fault} has not happened."
        return found

    def release(self, fault: int = 0) -> None:
        """Let the processes go on that wait by this fault."""
        (self.folder / f"{fault}.released").touch()


class Scene:
    """One test's runs, with a temporary directory of their own and a mark on all their processes."""

    def __init__(self, data: str, cwd: Path) -> None:
        self.data = data
        self.cwd = cwd
        self.mark = uuid.uuid4().hex
        # Short, or an embedded cluster would not take it (its sockets' paths are limited).
        self.temporary = Path(tempfile.mkdtemp(prefix="dc-", dir="/tmp"))
        self._runs: list[DrayProcess] = []
        self.faults = Faults(cwd / "faults", lambda: self.is_over)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {
            **inherited,
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(FAULTS),
            "DRAY_FAULTS": str(self.faults.path),
        }

    def train(
        self,
        *flags: str,
        faults: Sequence[Fault] = (),
        constants: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> DrayProcess:
        """Start `dray train` on the data, on 2 workers unless the flags say otherwise."""
        self.faults.plan(faults, constants)
        arguments = ["train", self.data, *FLAGS, *(() if "--workers" in flags else ("--workers", "2")), *flags]
        return self._keep(start_dray(arguments, cwd=self.cwd, env={**self.environment, **(env or {})}))

    def resume(
        self,
        *flags: str,
        faults: Sequence[Fault] = (),
        constants: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> DrayProcess:
        """Start `dray resume` on what `train` made. Its events follow those from before."""
        self.faults.plan(faults, constants)
        command = [DRAY, "resume", "run", *flags, "--json"]
        environment = {**self.environment, **(env or {})}
        return self._keep(DrayProcess(command, self.cwd / "run", cwd=self.cwd, env=environment))

    @property
    def is_over(self) -> bool:
        """All drivers have ended."""
        return all(run.process.poll() is not None for run in self._runs)

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the scene that live."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def wait_for_nobody(self, timeout_s: float = GONE_S) -> None:
        """Return when no process of the scene is left."""
        wait_until(lambda: not self.processes(), timeout_s, lambda: f"left behind: {_told(self.processes())}")

    def end(self) -> None:
        """End what a failed test left."""
        for run in self._runs:
            run.stop()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _keep(self, run: DrayProcess) -> DrayProcess:
        self._runs.append(run)
        return run


def wait_until(holds: Callable[[], bool], timeout_s: float, complaint: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"After {timeout_s:g} s: {complaint if isinstance(complaint, str) else complaint()}")
        time.sleep(0.02)


def kill(*pids: int) -> None:
    """End processes with SIGKILL, as close together as can be."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _told(processes: Sequence[psutil.Process]) -> str:
    told = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            told.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:100]}")
    return "; ".join(told)
