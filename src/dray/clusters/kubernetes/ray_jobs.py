"""Train on Kubernetes with a cluster that lives as long as the job: RayJobs, submitted, followed, stopped, deleted."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dray.clusters.kubernetes import checking
from dray.clusters.kubernetes.api import Api
from dray.clusters.kubernetes.following import (
    Hear,
    HopelessError,
    JobGoneError,
    JobStatus,
    Patience,
    follow,
    follow_log,
    status_of,
)
from dray.clusters.kubernetes.job_log import SUBMITTER, submitter
from dray.clusters.kubernetes.render import MANAGED_BY, render_job, run_name, token_name, token_secret
from dray.clusters.kubernetes.settings import Settings
from dray.clusters.kubernetes.up import check_free, end, own
from dray.clusters.kubernetes.waiting import pods_of
from dray.clusters.provider import Tell
from dray.errors import ClusterError, DrayError, nearest

SECOND_THOUGHTS_S = 3.0
"""Between an interrupt and the end of the job: a second interrupt leaves the job running."""


class LeftError(ClusterError):
    """The job is no longer followed, and was left as it is."""

    exit_code = 1


def submit(
    settings: Settings,
    run_file: Mapping[str, Any],
    tell: Tell,
    *,
    wait: bool = True,
    name: str | None = None,
    hear: Hear | None = None,
) -> JobStatus:
    """Have a run trained by a RayJob; wait: until it is over, hearing its log.

    Deleted, with all that belongs to it, is a job that cannot start, one that is over its time limit, and one that is
    interrupted here (Ctrl-C). Whatever else goes wrong on this side leaves a job that was made as it is.
    """
    name = name or f"{settings.name[:40].rstrip('-')}-{secrets.token_hex(3)}"
    config, job = render_job(settings, run_file, name=name)
    api = Api(settings.namespace, settings.context)
    tell(name, "working", f"checking {api.context or 'the cluster'}, namespace {settings.namespace}")
    checking.check_place(api, settings, checking.FOR_JOB)
    check_free(api, settings, name)
    api.apply(job, dry_run=True)
    # Its token lies in the Secret alone: nothing here needs it, as the submitter brings the log.
    api.create(token_secret(settings, name, secrets.token_hex(32)))
    try:
        api.create(config)
        made = api.create(job)
    except BaseException as error:
        _remove(api, name, tell, error)
        raise
    try:
        tell(name, "waiting", "submitted")
        patiently = Patience(name, tell)
        for kind, part in (("Secret", token_name(name)), ("ConfigMap", run_name(name))):
            patiently(lambda kind=kind, part=part: own(api, made, kind, part))  # type: ignore[misc]  # mypy 14282
        return follow(api, settings, name, tell, hear or (lambda _: None)) if wait else status_of(made)
    except HopelessError as error:
        _remove(api, name, tell, error)
        raise
    except KeyboardInterrupt as error:
        tell(name, "working", f"stopping in {SECOND_THOUGHTS_S:.0f} s; interrupt again to leave it running")
        time.sleep(SECOND_THOUGHTS_S)
        _remove(api, name, tell, error)
        raise
    except JobGoneError:
        raise
    except DrayError as error:
        raise LeftError(
            f"{error.what} The job {name} was left as it is.",
            fix=f"{error.fix} Then follow it again: dray job logs {name} --follow {_options(api)}".lstrip(),
        ) from error


def jobs(api: Api) -> list[JobStatus]:
    """Return the jobs of dray in the namespace, by name."""
    found = api.find("RayJob", f"{MANAGED_BY}=dray")
    return sorted((status_of(job) for job in found), key=lambda job: job.name)


def job_status(api: Api, name: str) -> JobStatus:
    return status_of(_job(api, name))


def job_logs(api: Api, name: str, *, tell: Tell | None = None, lines: int = 10_000) -> Iterator[str]:
    """Yield the log of a job, from its submitter; with `tell`: until the job is over."""
    job = _job(api, name)
    if tell is None:
        pod = submitter(pods_of(api, name))
        if pod is None:
            raise ClusterError(
                f"The job {name} has no log: its submitter {'is gone' if status_of(job).over else 'has not started'}.",
                fix="Its run directory has the events." if status_of(job).over else "Try again in a moment.",
            )
        yield from api.log(pod["metadata"]["name"], SUBMITTER, lines=lines)
        return
    yield from follow_log(api, name, tell)


def stop_job(api: Api, name: str, tell: Tell) -> None:
    """Stop a job and end its pods; what it was stays to be looked at."""
    if status_of(_job(api, name)).over:
        return
    api.patch("RayJob", name, [{"op": "add", "path": "/spec/suspend", "value": True}])
    tell(name, "done", "stopped")


def delete_job(api: Api, name: str, tell: Tell) -> None:
    """Stop a job and remove all of it."""
    _job(api, name)
    end(api, "RayJob", name, tell)
    tell(name, "done", "gone")


def _job(api: Api, name: str) -> Any:
    found = api.get("RayJob", name)
    if found is None:
        names = [job.name for job in jobs(api)]
        raise ClusterError(
            f'There is no job "{name}" in the namespace {api.namespace}.{nearest(name, names)}',
            fix=f"Known: {', '.join(names)}." if names else "dray job submit --on kubernetes makes one.",
        )
    return found


def _remove(api: Api, name: str, tell: Tell, error: BaseException) -> None:
    tell(name, "failed", "removing what was made")
    try:
        end(api, "RayJob", name, tell)
    except DrayError as second:
        error.add_note(f"It could not be removed: {second}")
        tell(name, "failed", f"could not be removed, later: dray job delete {name} {_options(api)} ({second.what})")


def _options(api: Api) -> str:
    """How to name its place in another command."""
    context = f" --context {api.context}" if api.context else ""
    return f"--on kubernetes --namespace {api.namespace}{context}"
