"""`dray job ... --on kubernetes`: a run file as a RayJob, with a cluster of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dray.cli.host_progress import host_progress
from dray.cli.output import human, log_line, print_json, say
from dray.errors import ConfigError

if TYPE_CHECKING:
    from dray.clusters.kubernetes.api import Api
    from dray.clusters.kubernetes.following import JobStatus

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Namespace:
    """A namespace of a Kubernetes cluster; None where the settings or the kubeconfig say it."""

    namespace: str | None
    context: str | None

    def api(self) -> Api:
        from dray.clusters.kubernetes.api import Api

        return Api(self.namespace or "default", self.context)

    @property
    def given(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if value is not None}


def kubernetes_options(command: Command) -> Command:
    """Add --on, --namespace and --context; the command gets `pods`, a `Namespace`, or None without --on kubernetes."""

    @click.option("--on", "kind", type=click.Choice(["kubernetes"]), help="Run as a RayJob, with a cluster of its own.")
    @click.option("--namespace", help="Namespace of Kubernetes. [default: as the settings say, or default]")
    @click.option("--context", help="Context of the kubeconfig. [default: the current one]")
    @functools.wraps(command)
    def with_pods(*, kind: str | None, namespace: str | None, context: str | None, **options: Any) -> Any:
        if kind is None and (namespace or context):
            raise ConfigError("--namespace and --context are for Kubernetes.", fix="Add --on kubernetes.")
        if kind is not None and options.get("where"):
            raise ConfigError(
                "--on kubernetes makes a cluster for the job; --cluster and --endpoint name one.", fix="Leave one out."
            )
        return command(pods=None if kind is None else Namespace(namespace, context), **options)

    return with_pods  # type: ignore[return-value]


def submit(pods: Namespace, path: str, *, follow: bool, as_json: bool, quiet: bool) -> None:
    from dray.clusters.kubernetes.ray_jobs import submit as submit_job
    from dray.clusters.kubernetes.settings import take_settings
    from dray.config.run_file import read_run_file

    if not path.endswith((".yaml", ".yml")):
        raise ConfigError(
            f"{path} is no run file.", fix="A RayJob is made of one; a script runs on a cluster that stays: --cluster."
        )
    values = read_run_file(path)
    values["kubernetes"] = dict(values.get("kubernetes") or {}) | pods.given
    settings, run_file = take_settings(values, origin=path)
    with host_progress(quiet) as tell:
        done = submit_job(settings, run_file, tell, wait=follow, hear=None if quiet else human)
    if as_json:
        print_json(done.to_json())
    elif not quiet:
        human(f"The job {done.name} is {done.status.lower()}.")
    if follow and done.status != "SUCCEEDED":
        from dray.jobs.ending import JobFailed

        raise JobFailed(
            f"The job {done.name} has ended as {done.status}: {done.reason} {done.message}".rstrip(": "),
            fix=f"Read its log: dray job logs {done.name} --on kubernetes",
        )


def show_all(pods: Namespace, *, as_json: bool) -> None:
    from dray.clusters.kubernetes.ray_jobs import jobs

    found = jobs(pods.api())
    if as_json:
        print_json({"jobs": [job.to_json() for job in found]})
    elif not found:
        human("No jobs of dray in this namespace.")
    for job in found if not as_json else ():
        _line(job)


def show(pods: Namespace, name: str, *, as_json: bool) -> None:
    from dray.clusters.kubernetes.ray_jobs import job_status

    found = job_status(pods.api(), name)
    print_json(found.to_json()) if as_json else _line(found)


def logs(pods: Namespace, name: str, *, follow: bool, as_json: bool) -> None:
    from dray.clusters.kubernetes.ray_jobs import job_logs, job_status

    api = pods.api()
    lines = job_logs(api, name, tell=(lambda _name, _state, words: human(words)) if follow else None)
    if as_json:
        print_json(job_status(api, name).to_json() | {"log": list(lines)})
        return
    for line in lines:
        log_line(line)


def end(pods: Namespace, name: str, *, delete: bool, as_json: bool) -> None:
    from dray.clusters.kubernetes.ray_jobs import delete_job, stop_job

    with host_progress(as_json) as tell:
        (delete_job if delete else stop_job)(pods.api(), name, tell)
    if as_json:
        print_json({"id": name, "deleted" if delete else "stopped": True})


def _line(job: JobStatus) -> None:
    say("  ".join(text for text in (job.name, job.status, job.started, job.reason, job.message) if text))
