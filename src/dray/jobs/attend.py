"""Submit a task and stay with it: what it says, its end, another try, and Ctrl-C."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dray.clusters.scratch import command_files
from dray.errors import DrayError
from dray.jobs.client import JobInfo, Jobs
from dray.jobs.ending import JobFailed, JobStopped, error_of, failure, retry_id, worth_retrying
from dray.jobs.follow import Follower
from dray.jobs.marks import Part, Reader
from dray.jobs.package import pack, refuse_large
from dray.jobs.start import GRACE_S
from dray.jobs.task import ENTRYPOINT, Options, Task
from dray.runs.directory import new_run_id

STOP_S = 15.0
"""How long a job is seen off after Ctrl-C; Ray kills it after 3 s."""
LATE_S = GRACE_S + 20.0
"""A job that is so much over its time limit is stopped from here: the process that should have is not there."""
_LONGEST_S = 1e8
_RAYS_OWN = re.compile(r"Running entrypoint for job \S+: |.{,80} job_manager\.py:\d+ -- Runtime env is setting up\.")

Hear = Callable[[Part], None]
Tell = Callable[[str], None]
Listen = Callable[[Callable[[], bool]], None]


@dataclass
class Outcome:
    """What became of a job, as far as it was heard."""

    job: str
    info: JobInfo | None = None
    result: dict[str, Any] | None = None
    told: dict[str, Any] | None = None
    """The error that it told itself."""
    time_limit_s: float | None = None

    def hear(self, document: dict[str, Any]) -> None:
        """Take what a marked line says of the end; what is not as dray writes it is passed over."""
        result, told, limit_s = (document.get(name) for name in ("result", "error", "time_limit"))
        self.result = result if isinstance(result, dict) else self.result
        self.told = told if isinstance(told, dict) else self.told
        if isinstance(limit_s, int | float) and 0 < limit_s < _LONGEST_S:
            self.time_limit_s = float(limit_s)

    def failure(self, log_command: str) -> DrayError | None:
        """Return what to raise for it; None when it went well."""
        if self.result is not None:
            return None
        stopped = self.info is not None and self.info.status == "STOPPED"
        if self.time_limit_s is None and self.told is not None and not stopped:
            return error_of(self.told)
        if self.info is None:
            return JobFailed(
                f"The job {self.job} could not be followed: its status is not known.", fix=f"Its log: {log_command}"
            )
        return failure(self.info, log_command, self.time_limit_s)


def is_rays_own(line: str) -> bool:
    """Whether Ray wrote a line into the log that says nothing about the job."""
    return _RAYS_OWN.match(line) is not None


def new_job_id() -> str:
    """Return an id that sorts by time and that no other job has."""
    return f"dray-{new_run_id()}"


def log_command(jobs: Jobs, job: str) -> str:
    return f"dray job logs {job} --follow {jobs.endpoint.option}"


def submit(jobs: Jobs, task: Task, options: Options, job: str, attempt: int = 0) -> None:
    """Pack the task's files and start a try of the job."""
    with command_files("job") as place:
        package = place / "job.zip"
        packed = pack(package, task.root, task.files, task.contents(job, options.timeout_s))
        refuse_large(packed, package.stat().st_size)
        jobs.submit(
            retry_id(job, attempt),
            ENTRYPOINT,
            package=package,
            variables=options.variables,
            pip=options.pip,
            metadata={"dray_kind": task.kind, "dray_name": task.name},
        )


def see_through(jobs: Jobs, task: Task, options: Options, job: str, hear: Hear, tell: Tell) -> Outcome:
    """Submit a task, stay with it to its end, and try again as often as it may be."""
    for attempt in range(options.retries + 1):
        name = retry_id(job, attempt)
        try:
            submit(jobs, task, options, job, attempt)
        except (KeyboardInterrupt, SystemExit):
            with suppress(DrayError):  # it may have been taken already
                jobs.stop(name)
            raise
        outcome = attend(jobs, name, hear, tell, options.timeout_s)
        left = options.retries - attempt
        if not left or outcome.info is None or not worth_retrying(outcome.info, outcome.told):
            break
        tell(f"{(outcome.failure('') or JobFailed('')).what} Trying again as {retry_id(job, attempt + 1)}.")
    return outcome


def attend(jobs: Jobs, job: str, hear: Hear, tell: Tell, timeout_s: float | None = None) -> Outcome:
    """Hear a job to its end. An interruption stops it, and is raised again once it is over."""
    outcome, reader = Outcome(job), Reader()
    follower = Follower(jobs, job, how_to_follow=log_command(jobs, job))
    begun = time.monotonic()

    def take(part: Part) -> None:
        if isinstance(part, dict):
            outcome.hear(part)
        if isinstance(part, dict) or not is_rays_own(part):
            hear(part)

    def listen(until: Callable[[], bool]) -> None:
        for piece in follower.pieces(until):
            for part in reader.feed(piece):
                take(part)
        for part in reader.rest():
            take(part)
        outcome.info = follower.info

    def enough() -> bool:
        nonlocal begun
        if follower.info is not None and follower.info.status == "PENDING":
            begun = time.monotonic()
        if timeout_s is not None and outcome.time_limit_s is None and time.monotonic() - begun > timeout_s + LATE_S:
            outcome.time_limit_s = timeout_s
            jobs.stop(job)
        return outcome.result is not None

    try:
        listen(enough)
    except (KeyboardInterrupt, SystemExit):
        _see_off(jobs, job, follower, listen, tell)
        raise
    return outcome


def _see_off(jobs: Jobs, job: str, follower: Follower, listen: Listen, tell: Tell) -> None:
    tell(f"Stopping the job {job}. Press Ctrl-C again to leave it running.")
    insist, deadline = _Insisting(jobs, job), time.monotonic() + STOP_S

    def until() -> bool:
        insist()
        return time.monotonic() > deadline

    try:
        listen(until)
    except DrayError as error:
        tell(f"The job {job} could not be stopped: {error}")
        return
    over = follower.info is not None and follower.info.over
    tell(f"The job {job} is {follower.info.status.lower()}." if over and follower.info else f"{job} was asked to stop.")


def stop(jobs: Jobs, job: str, wait_s: float = STOP_S) -> JobInfo:
    """Stop a job and return how it ended; one that is over already stays as it is."""
    info = jobs.info(job)
    insist, deadline = _Insisting(jobs, info.id), time.monotonic() + wait_s
    while not info.over:
        insist()
        time.sleep(0.2)
        info = jobs.info(info.id)
        if time.monotonic() > deadline:
            raise JobStopped(
                f"The job {job} was asked to stop and is still {info.status}.",
                fix=f"Look again: dray job status {job} {jobs.endpoint.option}",
            )
    return info


class _Insisting:
    """Asks a job to stop, every second: Ray does not hear it while a job is only being prepared."""

    def __init__(self, jobs: Jobs, job: str) -> None:
        self._jobs = jobs
        self._job = job
        self._asked = 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._asked >= 1.0:
            self._jobs.stop(self._job)
            self._asked = time.monotonic()
