"""What the end of a job means: in words, as an exit code, and whether it is worth another try. Pure."""

from __future__ import annotations

from typing import Any

from dray import errors
from dray.errors import ClusterError, DrayError, WorkerError
from dray.jobs.client import JobInfo
from dray.jobs.start import TIME_LIMIT_CODE

_MISTAKE = 2
_NO_PROGRAM = 127
_LAST_LINES = 3


class JobFailed(DrayError):  # noqa: N818  (says what it is)
    """A job ended without success."""

    exit_code = 1


class JobStopped(JobFailed):
    """The job was stopped on request."""


def error_of(told: dict[str, Any]) -> DrayError:
    """Return the error that a job told as its last word, as it would have been raised here."""
    kind = getattr(errors, str(told.get("type")), None)
    mistake = told.get("exit_code") == _MISTAKE
    if not (isinstance(kind, type) and issubclass(kind, DrayError)) or kind.exit_code != told.get("exit_code"):
        kind = ClusterError if mistake else WorkerError
    return kind(str(told.get("what") or "The job failed."), str(told.get("fix") or ""))


def failure(info: JobInfo, log_command: str, time_limit_s: float | None = None) -> DrayError | None:
    """Return what to raise for a job that is over; None after a success."""
    if info.status == "SUCCEEDED":
        return None
    if info.status == "STOPPED":
        return JobStopped(f"The job {info.id} was stopped.", fix=f"Its log: {log_command}")
    if time_limit_s is not None or info.exit_code == TIME_LIMIT_CODE:
        limit = f" of {time_limit_s:g} s" if time_limit_s is not None else ""
        return JobFailed(
            f"The job {info.id} was ended at its time limit{limit}.", fix="Give it more with --timeout SECONDS."
        )
    if info.exit_code == _NO_PROGRAM:
        return ClusterError(
            f"The head of the cluster has no Python on its path (job {info.id}).",
            fix="Start Ray there with the directory of its Python first in PATH.",
        )
    if info.exit_code is not None:
        return JobFailed(f"The job {info.id} ended with exit code {info.exit_code}.", fix=f"Its log: {log_command}")
    return JobFailed(f"The job {info.id} failed: {_words(info)}.", fix=f"Its log: {log_command}")


def worth_retrying(info: JobInfo, told: dict[str, Any] | None) -> bool:
    """Whether another try may end better: not after a success, a stop, a time limit or a mistake of the user's."""
    if info.status != "FAILED" or info.exit_code in (_MISTAKE, _NO_PROGRAM, TIME_LIMIT_CODE):
        return False
    return (told or {}).get("exit_code") != _MISTAKE


def retry_id(job: str, attempt: int) -> str:
    """Return the id of a further try: every one has its own."""
    return job if attempt == 0 else f"{job}-try{attempt + 1}"


def _words(info: JobInfo) -> str:
    lines = [line.strip() for line in info.message.splitlines() if line.strip()]
    text = " ".join(lines[:1] + lines[1:][-_LAST_LINES:]) or info.error_type or "for no known reason"
    return text[:500].rstrip(".")
