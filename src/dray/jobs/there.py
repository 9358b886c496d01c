"""Executes a command as a job, on the head of the cluster: `python -m dray.jobs.there FILE`, begun by start.py.

What happens goes to standard output as marked lines, so that following it needs nothing but the log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dray.clusters.resolve import Attached
from dray.errors import DrayError, ItemError
from dray.events.kinds import Event, Progress, StepFinished, WorkerProgress
from dray.events.telemetry import Sample
from dray.jobs.marks import mark
from dray.jobs.task import versions

if TYPE_CHECKING:
    from dray.jobs.command import Result

ROUNDS_EVERY_S = 0.25
PROGRESS_EVERY_S = 1.0
SAMPLES_EVERY_S = 2.0
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    job = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    if not job["code"]:
        _keep_package_from_workers()
    try:
        say({"result": _run(job).to_json()})
    except DrayError as error:
        if isinstance(error, ItemError) and error.traceback:
            sys.stderr.write(f"{error.traceback.rstrip()}\n")
        return _tell(type(error).__name__, error.what, error.fix, error.exit_code)
    except KeyboardInterrupt:
        return _tell("Interrupted", "The run was interrupted.", "", 130)
    except SystemExit:
        return _tell("Interrupted", "The run was stopped.", "", 143)
    except Exception as error:
        sys.stderr.write(traceback.format_exc())
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return _tell("UnexpectedError", f"Unexpected {what}", "The traceback is in the job's log: dray job logs ID.", 1)
    return 0


def say(document: dict[str, Any]) -> None:
    """Write one line at once: whatever else prints into the log cannot come between its halves."""
    rest = memoryview(mark(document).encode())
    while rest:
        rest = rest[os.write(1, rest) :]


class Lines:
    """A sink that prints. Rounds and measurements are gathered for a moment: a small run has hundreds a second."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._written = 0.0
        self._samples: dict[int, Sample] = {}
        self._sampled = 0.0
        self._progress: dict[int | None, float] = {}
        """When that of each worker was last told; None: of all."""

    def event(self, event: Event) -> None:
        if isinstance(event, Progress | WorkerProgress):
            key = event.worker if isinstance(event, WorkerProgress) else None
            if event.time - self._progress.get(key, 0.0) < PROGRESS_EVERY_S:
                return
            self._progress[key] = event.time
        self._events.append({"time": event.time, "kind": event.kind, "data": event.data})
        if not isinstance(event, StepFinished) or time.monotonic() - self._written >= ROUNDS_EVERY_S:
            self._write()

    def sample(self, samples: list[Sample]) -> None:
        self._samples.update((sample.worker, sample) for sample in samples)
        if time.monotonic() - self._sampled >= SAMPLES_EVERY_S:
            self._sampled = time.monotonic()
            self._write(list(self._samples.values()))
            self._samples.clear()
        elif self._events:
            self._write()

    def close(self) -> None:
        if self._events:
            self._write()

    def _write(self, samples: list[Sample] | None = None) -> None:
        events, self._events = self._events, []
        self._written = time.monotonic()
        say({"events": events} | ({"samples": [asdict(sample) for sample in samples]} if samples else {}))


def _run(job: dict[str, Any]) -> Result:
    from dray.learners.lean import preload

    preload()
    from dray.jobs.command import read_command

    command = read_command(job)
    say({"versions": versions(command.libraries)})
    return command.execute(Attached(), [Lines()], job["job"])


def _keep_package_from_workers() -> None:
    """Take the job's files out of what Ray gives to its workers: they need none, and start from idle processes."""
    with suppress(KeyError, ValueError):
        config = json.loads(os.environ[_JOB_CONFIG])
        config["runtime_env"] = {
            name: value for name, value in config["runtime_env"].items() if name != "working_dir" and value
        }
        os.environ[_JOB_CONFIG] = json.dumps(config)


def _tell(kind: str, what: str, fix: str, exit_code: int) -> int:
    say({"error": {"type": kind, "what": what, "fix": fix, "exit_code": exit_code}})
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
