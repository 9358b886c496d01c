"""Stay with a RayJob to its end. Nothing here ends a job: an API server that goes away is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

from dray.clusters.kubernetes import readiness
from dray.clusters.kubernetes.api import Api, UnreachableError
from dray.clusters.kubernetes.job_log import JobLog
from dray.clusters.kubernetes.settings import Settings
from dray.clusters.kubernetes.waiting import Watch, pods_of
from dray.clusters.provider import State, Tell
from dray.errors import ClusterError

Hear = Callable[[str], None]
"""Gets each line of a job's log."""
Answer = TypeVar("Answer")

PAUSE_S = 1.0
SLACK_S = 60.0
"""What the operator may take beyond a deadline before it is not waited for any longer."""
TAIL_S = 5.0
_OVER = ("Complete", "Failed", "ValidationFailed", "Suspended")
_STATES: Mapping[str, State] = {"SUCCEEDED": "done", "FAILED": "failed", "STOPPED": "failed"}


class HopelessError(ClusterError):
    """The job does not start, or is over its time limit and nothing in the cluster ends it."""


class JobGoneError(ClusterError):
    """The job was deleted while it was followed."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as it is now."""

    name: str
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    stage: str = ""
    """What KubeRay does with it: Initializing, Running, Retrying, Complete, Failed, ValidationFailed, Suspended."""
    reason: str = ""
    """Why it failed, in one word: PreRunningDeadlineExceeded, DeadlineExceeded, AppFailed, SubmissionFailed, ..."""
    message: str = ""
    started: str = ""
    ended: str = ""

    @property
    def over(self) -> bool:
        return self.stage in _OVER

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def status_of(job: Any) -> JobStatus:
    """Return what a RayJob says of itself."""
    status = job.get("status", {})
    stage = status.get("jobDeploymentStatus", "")
    ray = status.get("jobStatus", "")
    if stage in ("Failed", "ValidationFailed") and ray != "STOPPED":
        ray = "FAILED"  # it may have been running when its time was over
    elif stage == "Suspended":
        ray = "STOPPED"
    return JobStatus(
        name=job["metadata"]["name"],
        status=ray or "PENDING",
        stage=stage,
        reason=status.get("reason", ""),
        message=" ".join(status.get("message", "").split()),
        started=status.get("startTime", ""),
        ended=status.get("endTime", ""),
    )


class Patience:
    """Asks again for as long as the API server is away, and says so. Only an interrupt ends the waiting."""

    def __init__(self, name: str, tell: Tell) -> None:
        self._name, self._tell = name, tell
        self._away_s = 0.0

    def __call__(self, ask: Callable[[], Answer]) -> Answer:
        since: float | None = None
        while True:
            try:
                answer = ask()
            except UnreachableError as error:  # the API has tried for some seconds by now
                if since is None:
                    since = time.monotonic()
                    words = f"{error.what} Waiting for it since {datetime.now():%H:%M:%S}; the job is left as it is."
                    self._tell(self._name, "waiting", words)
                time.sleep(PAUSE_S)
                continue
            if since is not None:
                away_s = time.monotonic() - since
                self._away_s += away_s
                self._tell(self._name, "working", f"The Kubernetes API answers again, after {away_s:.0f} s.")
            return answer

    def clock(self) -> float:
        """Seconds that pass only while the API server answers: nothing is late because it was away."""
        return time.monotonic() - self._away_s


def follow(api: Api, settings: Settings, name: str, tell: Tell, hear: Hear) -> JobStatus:
    """Return how the job ended; raise HopelessError when it neither starts nor ends, JobGoneError when it is gone."""
    patiently = Patience(name, tell)
    watch = Watch(tell, patiently.clock)
    end_s = _longest(settings)
    limit = patiently.clock() + end_s if end_s else None
    starting_since: float | None = None
    for status, pods, lines in _looks(api, name, patiently):
        for line in lines:
            hear(line)
        if status.over:
            watch.tell(name, _STATES.get(status.status, "failed"), _words(status))
            return status
        starting = status.stage in ("", "Initializing")
        watch.tell(name, "waiting" if starting else "working", _words(status))
        troubles = watch.look([pod for pod in pods if not readiness.is_submitter(pod) or readiness.is_pending(pod)])
        now = patiently.clock()
        if not starting:
            starting_since = None  # a retry starts anew
        else:
            starting_since = starting_since or now
            if trouble := watch.hopeless(troubles):
                raise HopelessError(f"The job {name} does not start. {trouble}.", fix=trouble.fix)
            if now >= starting_since + settings.start_deadline_s + SLACK_S:
                raise _stuck(name, "did not start", settings.start_deadline_s)
        if limit is not None and now >= limit:
            raise _stuck(name, "is not over", end_s)
    raise AssertionError("looks end with a job that is over")


def follow_log(api: Api, name: str, tell: Tell) -> Iterator[str]:
    """Yield the lines of a job's log until the job is over."""
    for _, _, lines in _looks(api, name, Patience(name, tell)):
        yield from lines


def _looks(api: Api, name: str, patiently: Patience) -> Iterator[tuple[JobStatus, list[Any], Iterator[str]]]:
    """Yield how the job is, its pods, and what comes of its log meanwhile, until it is over."""
    log = JobLog(api)
    while True:
        job = patiently(lambda: api.get("RayJob", name))
        if job is None:
            raise JobGoneError(
                f"The job {name} was deleted while it was followed.",
                fix="Its run directory has what it came to; dray resume goes on with the run.",
            )
        status = status_of(job)
        pods = patiently(lambda: pods_of(api, name))
        if status.over:
            yield status, pods, log.rest(pods, TAIL_S)
            return
        log.look(pods)
        yield status, pods, log.lines(PAUSE_S)


def _longest(settings: Settings) -> float:
    tries = settings.retries + 1
    return settings.time_limit_s * tries + SLACK_S if settings.time_limit_s else 0.0


def _stuck(name: str, what: str, seconds: float) -> HopelessError:
    return HopelessError(
        f"The job {name} {what} after {seconds:.0f} s, and KubeRay did not end it.",
        fix="Check that the KubeRay operator runs, and watches this namespace.",
    )


def _words(status: JobStatus) -> str:
    words = [status.status.lower(), status.reason, status.message] if status.over else [status.stage or "submitted"]
    return ", ".join(word for word in words if word)
