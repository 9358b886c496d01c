"""What the end of a job means."""

from __future__ import annotations

import pytest

from dray.errors import ClusterError, DataError, WorkerError
from dray.jobs.client import JobInfo
from dray.jobs.ending import JobFailed, JobStopped, error_of, failure, retry_id, worth_retrying


def test_an_error_there_is_the_same_error_here() -> None:
    error = error_of({"type": "DataError", "what": "No label.", "fix": "Add one.", "exit_code": 2})
    assert isinstance(error, DataError)
    assert (error.what, error.fix, error.exit_code) == ("No label.", "Add one.", 2)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"type": "RunStopped", "exit_code": 1}, WorkerError),
        ({"type": "UnexpectedError", "exit_code": 1}, WorkerError),
        ({"type": "Interrupted", "exit_code": 143}, WorkerError),
        ({"type": "SomethingNew", "exit_code": 2}, ClusterError),
        ({"type": "nearest", "exit_code": 2}, ClusterError),
        ({}, WorkerError),
    ],
)
def test_an_unknown_error_keeps_its_exit_code(told: dict[str, object], kind: type) -> None:
    assert type(error_of(told)) is kind


def test_every_end_has_its_words() -> None:
    assert failure(JobInfo("j", "SUCCEEDED", exit_code=0), "logs") is None
    assert isinstance(failure(JobInfo("j", "STOPPED"), "logs"), JobStopped)
    limited = failure(JobInfo("j", "FAILED", exit_code=124), "logs", 60.0)
    assert limited is not None and "time limit of 60 s" in limited.what
    ended = failure(JobInfo("j", "FAILED", exit_code=3), "logs")
    assert isinstance(ended, JobFailed) and "exit code 3" in ended.what and ended.exit_code == 1
    outside = failure(JobInfo("j", "FAILED", message="runtime_env setup failed: x\n\nno pip"), "logs")
    assert outside is not None and "runtime_env setup failed: x no pip." in outside.what
    missing = failure(JobInfo("j", "FAILED", exit_code=127), "logs")
    assert missing is not None and missing.exit_code == 2


@pytest.mark.parametrize(
    ("info", "told", "again"),
    [
        (JobInfo("j", "SUCCEEDED", exit_code=0), None, False),
        (JobInfo("j", "STOPPED"), None, False),
        (JobInfo("j", "FAILED", exit_code=2), None, False),
        (JobInfo("j", "FAILED", exit_code=124), None, False),
        (JobInfo("j", "FAILED", exit_code=1), {"exit_code": 2}, False),
        (JobInfo("j", "FAILED", exit_code=1), None, True),
        (JobInfo("j", "FAILED", exit_code=-9), None, True),
        (JobInfo("j", "FAILED", error_type="JOB_SUPERVISOR_ACTOR_DIED"), None, True),
    ],
)
def test_only_what_may_end_better_is_tried_again(info: JobInfo, told: dict[str, object] | None, again: bool) -> None:
    assert worth_retrying(info, told) is again


def test_every_try_has_its_own_id() -> None:
    assert [retry_id("j", attempt) for attempt in range(3)] == ["j", "j-try2", "j-try3"]


def told(info: JobInfo, time_limit_s: float | None = None) -> tuple[str, str]:
    error = failure(info, "dray job logs j", time_limit_s)
    assert error is not None
    return error.what, error.fix


def test_every_end_is_told_whole() -> None:
    more = "Give it more with --timeout SECONDS."
    assert told(JobInfo("j", "FAILED", exit_code=124)) == ("The job j was ended at its time limit.", more)
    assert told(JobInfo("j", "FAILED", exit_code=1), 0.5) == ("The job j was ended at its time limit of 0.5 s.", more)
    assert told(JobInfo("j", "STOPPED"), 60.0) == ("The job j was stopped.", "Its log: dray job logs j")
    assert told(JobInfo("j", "FAILED", exit_code=0))[0] == "The job j ended with exit code 0."
    assert told(JobInfo("j", "FAILED"))[0] == "The job j failed: for no known reason."
    assert told(JobInfo("j", "FAILED", error_type="ACTOR_DIED"))[0] == "The job j failed: ACTOR_DIED."
    assert told(JobInfo("j", "FAILED", message="a\nb\nc\nd\ne.", error_type="X"))[0] == "The job j failed: a c d e."
    assert told(JobInfo("j", "FAILED", message="x" * 600))[0] == f"The job j failed: {'x' * 500}."


def test_an_error_without_words_has_some() -> None:
    error = error_of({"type": "DataError", "exit_code": 2})
    assert (type(error), error.what, error.fix) == (DataError, "The job failed.", "")
    assert type(error_of({"type": "DataError", "exit_code": 1})) is WorkerError
