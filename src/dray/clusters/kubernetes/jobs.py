"""Train on Kubernetes with a cluster that lives as long as the job: RayJobs, submitted, followed, stopped, deleted."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dray.clusters.kubernetes import checking, readiness
from dray.clusters.kubernetes.api import Api
from dray.clusters.kubernetes.render import MANAGED_BY, render_job, run_name, token_name, token_secret
from dray.clusters.kubernetes.settings import Settings
from dray.clusters.kubernetes.up import check_free, end, own
from dray.clusters.kubernetes.waiting import Watch, pods_of
from dray.clusters.provider import State, Tell
from dray.errors import ClusterError, DrayError, nearest

Hear = Callable[[str], None]
"""Gets each line of a job's log."""

PAUSE_S = 1.0
SLACK_S = 60.0
"""What the operator may take beyond a deadline before it is not waited for any longer."""
TAIL_S = 5.0
_SUBMITTER = "ray-job-submitter"
_OVER = ("Complete", "Failed", "ValidationFailed", "Suspended")
_STATES: Mapping[str, State] = {"SUCCEEDED": "done", "FAILED": "failed", "STOPPED": "failed"}


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


def submit(
    settings: Settings,
    run_file: Mapping[str, Any],
    tell: Tell,
    *,
    follow: bool = True,
    name: str | None = None,
    hear: Hear | None = None,
) -> JobStatus:
    """Have a run trained by a RayJob; follow: until it is over, hearing its log.

    A job whose pods cannot start, and one that is interrupted here (Ctrl-C), is deleted with all that belongs to it.
    """
    name = name or f"{settings.name[:40].rstrip('-')}-{secrets.token_hex(3)}"
    config, job = render_job(settings, run_file, name=name)
    api = Api(settings.namespace, settings.context)
    tell(name, "working", f"checking {api.context or 'the cluster'}, namespace {settings.namespace}")
    checking.check_place(api, settings, checking.FOR_JOB)
    check_free(api, settings, name)
    api.apply(job, dry_run=True)
    # Its token lies in the Secret alone: nobody here needs it, for the submitter brings the log.
    api.create(token_secret(settings, name, secrets.token_hex(32)))
    try:
        api.create(config)
        made = api.create(job)
        for kind, part in (("Secret", token_name(name)), ("ConfigMap", run_name(name))):
            own(api, made, kind, part)
        tell(name, "waiting", "submitted")
        if not follow:
            return _status(made)
        return _follow(api, settings, name, tell, hear or (lambda _: None))
    except BaseException as error:
        _remove(api, name, tell, error)
        raise


def jobs(api: Api) -> list[JobStatus]:
    """Return the jobs of dray in the namespace, by name."""
    found = api.find("RayJob", f"{MANAGED_BY}=dray")
    return sorted((_status(job) for job in found), key=lambda job: job.name)


def job_status(api: Api, name: str) -> JobStatus:
    return _status(_job(api, name))


def job_logs(api: Api, name: str, *, follow: bool = False, lines: int = 10_000) -> Iterator[str]:
    """Yield the log of a job, from its submitter; follow: until the job is over."""
    job = _job(api, name)
    if not follow:
        pod = _submitter(pods_of(api, name))
        if pod is None:
            raise ClusterError(
                f"The job {name} has no log: its submitter {'is gone' if _status(job).over else 'has not started'}.",
                fix="Its run directory has the events." if _status(job).over else "Try again in a moment.",
            )
        yield from api.log(pod, _SUBMITTER, lines=lines)
        return
    log = _Log(api)
    while True:
        over = job_status(api, name).over
        log.look(pods_of(api, name))
        yield from log.lines(TAIL_S if over else PAUSE_S, to_its_end=over)
        if over:
            return


def stop_job(api: Api, name: str, tell: Tell) -> None:
    """Stop a job and end its pods; what it was stays to be looked at."""
    if _status(_job(api, name)).over:
        return
    api.patch("RayJob", name, [{"op": "add", "path": "/spec/suspend", "value": True}])
    tell(name, "done", "stopped")


def delete_job(api: Api, name: str, tell: Tell) -> None:
    """Stop a job and remove all of it."""
    _job(api, name)
    end(api, "RayJob", name, tell)
    tell(name, "done", "gone")


def _follow(api: Api, settings: Settings, name: str, tell: Tell, hear: Hear) -> JobStatus:
    watch, log = Watch(tell), _Log(api)
    end_s = _longest(settings)
    limit = time.monotonic() + end_s if end_s else None
    starting_since: float | None = None
    while True:
        status = job_status(api, name)
        pods = pods_of(api, name)
        log.look(pods)
        if status.over:
            for line in log.lines(TAIL_S, to_its_end=True):
                hear(line)
            watch.tell(name, _STATES.get(status.status, "failed"), _words(status))
            return status
        starting = status.stage in ("", "Initializing")
        watch.tell(name, "waiting" if starting else "working", _words(status))
        troubles = watch.look([pod for pod in pods if not readiness.is_submitter(pod) or _waits(pod)])
        if not starting:
            starting_since = None  # a retry starts anew
        else:
            starting_since = starting_since or time.monotonic()
            if trouble := watch.hopeless(troubles):
                raise ClusterError(f"The job {name} does not start. {trouble}.", fix=trouble.fix)
            if time.monotonic() >= starting_since + settings.start_deadline_s + SLACK_S:
                raise _stuck(name, "did not start", settings.start_deadline_s)
        if limit is not None and time.monotonic() >= limit:
            raise _stuck(name, "is not over", end_s)
        for line in log.lines(PAUSE_S):
            hear(line)


def _longest(settings: Settings) -> float:
    tries = settings.retries + 1
    return settings.time_limit_s * tries + SLACK_S if settings.time_limit_s else 0.0


def _stuck(name: str, what: str, seconds: float) -> ClusterError:
    return ClusterError(
        f"The job {name} {what} after {seconds:.0f} s, and KubeRay did not end it.",
        fix="Check that the KubeRay operator runs, and watches this namespace.",
    )


class _Log:
    """The log of the submitter, read in a thread that takes it up again when the connection breaks."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._pod = ""
        self._since: str | None = None
        self._thread: threading.Thread | None = None

    def look(self, pods: list[Any]) -> None:
        """Start reading once there is something to read."""
        pod = _submitter(pods)
        if pod is None or (self._thread and self._thread.is_alive()):
            return
        if pod != self._pod:
            self._pod, self._since = pod, None
        elif self._thread and any(p["metadata"]["name"] == pod and _is_over(p) for p in pods):
            return  # read to its end
        self._thread = threading.Thread(target=self._read, args=(pod, self._since), daemon=True)
        self._thread.start()

    def lines(self, seconds: float, *, to_its_end: bool = False) -> Iterator[str]:
        """Yield what comes within so many seconds; to_its_end: or until the log is over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if to_its_end and self._lines.empty() and not (self._thread and self._thread.is_alive()):
                return
            try:
                line = self._lines.get(timeout=min(left, 0.1) if to_its_end else left)
            except queue.Empty:
                continue
            if line is not None:
                yield line

    def _read(self, pod: str, since: str | None) -> None:
        try:
            for moment, line in self._api.follow_log(pod, _SUBMITTER, since):
                if since is None or moment > since:
                    self._since = moment
                    self._lines.put(line)
        except ClusterError:
            return  # not started yet, or the connection broke: `look` starts again


def _submitter(pods: list[Any]) -> str | None:
    """Return the newest pod of the submitter that has run."""
    found = [pod for pod in pods if readiness.is_submitter(pod) and not _waits(pod)]
    found.sort(key=lambda pod: pod["metadata"].get("creationTimestamp", ""))
    return str(found[-1]["metadata"]["name"]) if found else None


def _waits(pod: Any) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Pending")


def _is_over(pod: Any) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _job(api: Api, name: str) -> Any:
    found = api.get("RayJob", name)
    if found is None:
        names = [job.name for job in jobs(api)]
        raise ClusterError(
            f'There is no job "{name}" in the namespace {api.namespace}.{nearest(name, names)}',
            fix=f"Known: {', '.join(names)}." if names else "dray job submit --on kubernetes makes one.",
        )
    return found


def _status(job: Any) -> JobStatus:
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


def _words(status: JobStatus) -> str:
    words = [status.status.lower(), status.reason, status.message] if status.over else [status.stage or "submitted"]
    return ", ".join(word for word in words if word)


def _remove(api: Api, name: str, tell: Tell, error: BaseException) -> None:
    tell(name, "failed", "removing what was made")
    try:
        end(api, "RayJob", name, tell)
    except DrayError as second:
        error.add_note(f"It could not be removed: {second}")
