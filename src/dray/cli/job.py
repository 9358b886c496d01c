"""`dray job`: run scripts and run files as jobs on any Ray cluster's job endpoint."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from dray.cli import job_kubernetes
from dray.cli.job_kubernetes import Namespace, kubernetes_options
from dray.cli.output import human, log_line, print_json, say, shown_on_stderr
from dray.errors import ConfigError
from dray.events.format import duration, many, size

if TYPE_CHECKING:
    from dray.jobs.client import JobInfo, Jobs
    from dray.jobs.marks import Part
    from dray.jobs.task import Options, Task

Command = TypeVar("Command", bound=Callable[..., Any])

_STYLES = {"SUCCEEDED": "green", "RUNNING": "yellow", "PENDING": "yellow", "FAILED": "red", "STOPPED": "red"}


@click.group()
def job() -> None:
    """Run scripts and run files on a Ray cluster, through its job endpoint."""


def _endpoint_option(command: Command) -> Command:
    """Add --cluster and --endpoint, which say the same; the command gets `where`, None for the environment's."""

    @click.option("--cluster", metavar="NAME|URL", help="A cluster that dray started, or a job endpoint.")
    @click.option(
        "--endpoint",
        metavar="URL",
        help="The job endpoint. [default: RAY_API_SERVER_ADDRESS, RAY_DASHBOARD_ADDRESS, then http://127.0.0.1:8265]",
    )
    @functools.wraps(command)
    def with_endpoint(*, cluster: str | None, endpoint: str | None, **options: Any) -> Any:
        if cluster and endpoint:
            raise ConfigError("--cluster and --endpoint name the same thing.", fix="Give one of them.")
        return command(where=cluster or endpoint, **options)

    return with_endpoint  # type: ignore[return-value]


_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")


def _ask_options(command: Command) -> Command:
    """Add what commands that ask an endpoint or Kubernetes have; the command gets `where`, `pods` and `as_json`."""
    return _endpoint_option(kubernetes_options(_json_option(command)))


@job.command("submit")
@click.argument("what", metavar="SCRIPT|RUN_FILE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_endpoint_option
@kubernetes_options
@click.option("--working-dir", metavar="DIR", help="Directory that is sent with a script. [default: the script's]")
@click.option(
    "--exclude",
    "excludes",
    metavar="PATTERN",
    multiple=True,
    help="Files not to send, as in a .gitignore; may be repeated.",
)
@click.option(
    "--env",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="Environment variable of the job; not for secrets: all users of the cluster can read it.",
)
@click.option("--pip", metavar="REQUIREMENT", multiple=True, help="A package that is installed for the job.")
@click.option(
    "--timeout", "timeout_s", type=float, metavar="SECONDS", help="Ends the job after so long, followed or not."
)
@click.option(
    "--retries", type=int, default=0, metavar="N", help="Tries again after a failure that is not an error of the user."
)
@click.option(
    "--follow/--no-wait", default=True, help="Follow the job to its end, or return at once. [default: follow]"
)
@_json_option
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
def submit_command(
    what: str,
    arguments: Sequence[str],
    where: str | None,
    pods: Namespace | None,
    working_dir: str | None,
    excludes: Sequence[str],
    env: Sequence[str],
    pip: Sequence[str],
    timeout_s: float | None,
    retries: int,
    follow: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run a Python script (SCRIPT -- ARGUMENTS) or a run file (run.yaml) as a job.

    A script's directory is packed and goes along, without what .gitignore files name, caches, links that lead out of
    it, and files that are named like secrets; --exclude '!NAME' takes one in. What the script prints comes to stdout.
    Ctrl-C stops the job; a client that is killed does not, and `dray job logs ID --follow` goes on.
    """
    from dray.jobs.task import Options, script

    if pods is not None:
        if arguments or working_dir or excludes or env or pip or timeout_s or retries:
            raise ConfigError(
                "With --on kubernetes the run file says everything: flags and arguments for the job are not used.",
                fix="Put env, time_limit_s and retries under kubernetes: in the run file, and leave the flags out.",
            )
        job_kubernetes.submit(pods, what, follow=follow, as_json=as_json, quiet=quiet)
        return
    options = Options(_variables(env), tuple(pip), timeout_s, retries)
    options.check()
    if retries and not follow:
        raise ConfigError(
            "--retries cannot be used with --no-wait: the process that follows the job is the one that tries again.",
            fix="Leave one of them out.",
        )
    is_run_file = what.endswith((".yaml", ".yml"))
    if is_run_file and (working_dir or excludes or arguments):
        raise ConfigError(
            f"{what} is a run file: arguments, --working-dir and --exclude are for scripts.", fix="Leave them out."
        )
    task = None if is_run_file else script(what, arguments, working_dir=working_dir, excludes=excludes)
    with _open(where, quiet=quiet) as jobs:
        if task is None:
            _run_file(jobs, what, options, follow=follow, as_json=as_json, quiet=quiet)
        else:
            _script(jobs, task, options, follow=follow, as_json=as_json, quiet=quiet)


def _script(jobs: Jobs, task: Task, options: Options, *, follow: bool, as_json: bool, quiet: bool) -> None:
    from dray.jobs.attend import log_command, new_job_id, see_through, submit

    name = new_job_id()
    if not quiet:
        human(_describe(name, task, jobs))
    if not follow:
        submit(jobs, task, options, name)
        _tell_id(name, jobs, as_json=as_json)
        return

    def hear(part: Part) -> None:
        if isinstance(part, str):
            _print(part, sys.stderr if as_json else sys.stdout)

    outcome = see_through(jobs, task, options, name, hear, _nothing if quiet else human)
    if problem := outcome.failure(log_command(jobs, outcome.job)):
        raise problem
    if as_json and outcome.info is not None:
        print_json(outcome.info.to_json())
    elif not quiet:
        human(f"The job {outcome.job} succeeded.")


def _run_file(jobs: Jobs, path: str, options: Options, *, follow: bool, as_json: bool, quiet: bool) -> None:
    from dray.config.run_file import read_run_file
    from dray.jobs.attend import new_job_id, submit
    from dray.jobs.command import task_of
    from dray.jobs.commands.training import Train
    from dray.jobs.remote import follow_run
    from dray.jobs.shared import find_head
    from dray.learners.configs import make_config
    from dray.runs.naming import Names

    command = Train(make_config(read_run_file(path), origin=path))
    told = (lambda _name, _location: None) if quiet else (lambda name, location: human(f"{name} is {location}"))
    command = command.named(Names(command.storage, told))
    task = task_of(command, find_head(jobs.endpoint.name, jobs.endpoint.session), f"dray train {path}")
    name = new_job_id()
    if not quiet:
        human(_describe(name, task, jobs))
    if not follow:
        submit(jobs, task, options, name)
        _tell_id(name, jobs, as_json=as_json)
        return
    sinks = shown_on_stderr(quiet)
    outcome = follow_run(jobs, task, options, name, sinks, command.libraries)
    if as_json:
        print_json({"id": outcome.job, "result": outcome.result})


@job.command("list")
@_ask_options
def list_command(where: str | None, pods: Namespace | None, as_json: bool) -> None:
    """List the jobs of an endpoint, the newest first."""
    if pods is not None:
        job_kubernetes.show_all(pods, as_json=as_json)
        return
    with _open(where) as jobs:
        found = jobs.list()
        if as_json:
            print_json({"jobs": [info.to_json() for info in found]})
        elif not found:
            human(f"No jobs at {jobs.endpoint.name}.")
        else:
            _print_table(found)


@job.command("status")
@click.argument("id_", metavar="ID")
@_ask_options
def status_command(id_: str, where: str | None, pods: Namespace | None, as_json: bool) -> None:
    """Tell how a job is."""
    if pods is not None:
        job_kubernetes.show(pods, id_, as_json=as_json)
        return
    with _open(where) as jobs:
        info = jobs.info(id_)
    if as_json:
        print_json(info.to_json())
        return
    _print_table([info])
    if info.over and info.status != "SUCCEEDED" and info.message:
        human(info.message.strip().splitlines()[0])


@job.command("logs")
@click.argument("id_", metavar="ID")
@click.option("--follow", is_flag=True, help="Stay until the job ends. Ctrl-C leaves it running.")
@_ask_options
def logs_command(id_: str, follow: bool, where: str | None, pods: Namespace | None, as_json: bool) -> None:
    """Show what a job has printed. The events of a run are shown as the run would have."""
    if pods is not None:
        job_kubernetes.logs(pods, id_, follow=follow, as_json=as_json)
        return
    from dray.events.sinks.terminal import PlainLines
    from dray.jobs.attend import is_rays_own, log_command
    from dray.jobs.follow import Follower
    from dray.jobs.marks import Reader
    from dray.jobs.relay import Relay

    reader, parts = Reader(), []
    relay = Relay([] if as_json else [PlainLines(sys.stdout)])

    def hear(part: Part) -> None:
        if isinstance(part, dict):
            relay.hear(part)
        elif is_rays_own(part):
            return
        elif not as_json:
            _print(part, sys.stdout)
        if as_json:
            parts.append(part)

    with _open(where) as jobs:
        follower = Follower(jobs, id_, how_to_follow=log_command(jobs, id_))
        for piece in follower.pieces() if follow else [jobs.logs(id_)]:
            for part in reader.feed(piece):
                hear(part)
        for part in reader.rest():
            hear(part)
        info = follower.info if follow else jobs.info(id_)
    if as_json and info is not None:
        lines = [part for part in parts if isinstance(part, str)]
        print_json(info.to_json() | {"log": lines, "told": [part for part in parts if isinstance(part, dict)]})
    elif follow and info is not None:
        human(f"The job {id_} {'is' if info.status == 'STOPPED' else 'has'} {info.status.lower()}.")


@job.command("stop")
@click.argument("id_", metavar="ID")
@_ask_options
def stop_command(id_: str, where: str | None, pods: Namespace | None, as_json: bool) -> None:
    """Stop a job, and wait till it is over."""
    if pods is not None:
        job_kubernetes.end(pods, id_, delete=False, as_json=as_json)
        return
    from dray.jobs.attend import stop

    with _open(where) as jobs:
        info = stop(jobs, id_)
    if as_json:
        print_json(info.to_json())
    else:
        human(f"The job {id_} is {info.status.lower()}." if info.status == "STOPPED" else f"{id_}: {info.status}.")


@job.command("delete")
@click.argument("id_", metavar="ID")
@_ask_options
def delete_command(id_: str, where: str | None, pods: Namespace | None, as_json: bool) -> None:
    """Delete a job that has ended. Its log stays on the head until Ray's session ends."""
    if pods is not None:
        job_kubernetes.end(pods, id_, delete=True, as_json=as_json)
        return
    with _open(where) as jobs:
        jobs.delete(id_)
    if as_json:
        print_json({"id": id_, "deleted": True})
    else:
        human(f"The job {id_} is deleted.")


@contextmanager
def _open(where: str | None, *, quiet: bool = False) -> Iterator[Jobs]:
    from dray.clusters.providers import provider_of
    from dray.jobs.client import Jobs
    from dray.jobs.endpoint import open_endpoint

    with open_endpoint(where, provider_of) as endpoint:
        for warning in () if quiet else endpoint.warnings:
            human(f"Warning: {warning}")
        yield Jobs(endpoint)


def _variables(given: Sequence[str]) -> dict[str, str]:
    """NAME takes the value that it has here."""
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals and name not in os.environ:
            raise ConfigError(
                f"--env {name}: there is no such environment variable here.",
                fix=f"Set it, or write --env {name}=VALUE.",
            )
        found[name] = value if equals else os.environ[name]
    return found


def _describe(name: str, task: Task, jobs: Jobs) -> str:
    text = f"Job {name} at {jobs.endpoint.name}: {task.name}"
    if task.root is not None:
        sent = size(sum(file.size_bytes for file in task.files))
        text += f", with {many(len(task.files), 'files')} of {task.root} ({sent})"
    if task.left_out:
        from dray.jobs.selecting import describe

        text = "\n".join([text, *describe(task.left_out)])
    return text


def _tell_id(name: str, jobs: Jobs, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": name, "endpoint": jobs.endpoint.url})
    else:
        say(name)


def _print(line: str, stream: IO[str]) -> None:
    try:
        log_line(line, stream)
    except BrokenPipeError:
        # The reader has gone (`| head`); the job has not, and how it ends is still to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _nothing(_: str) -> None:
    pass


def _print_table(found: list[JobInfo]) -> None:
    from datetime import datetime

    from rich.table import Table
    from rich.text import Text

    from dray.events.sinks.console import SafeConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("id", "status", "when"):
        table.add_column(column, no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True, overflow="ellipsis")
    for info in found:
        when = f"{datetime.fromtimestamp(info.started).astimezone():%Y-%m-%d %H:%M}" if info.started else ""
        time = duration(info.ended - info.started) if info.started and info.ended else ""
        code = f" ({info.exit_code})" if info.exit_code else ""
        status = Text(f"{info.status}{code}", style=_STYLES.get(info.status, ""))
        table.add_row(Text(info.id), status, when, time, Text(info.name))
    console = SafeConsole(highlight=False)
    if not console.is_terminal:  # in a pipe there is no width to fit
        console.width = 10_000
    console.print(table)
