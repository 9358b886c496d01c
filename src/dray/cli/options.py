"""Options that several commands share: how to reach a store, how to read the data, what to print.

Each decorator passes one value to the command, made of its options.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from dray.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

CLUSTER = (
    "local (this machine), auto (this machine's Ray), host:port, spark; as a job: http://head:8265 or a cluster's name."
)
_STORAGE = ("endpoint", "region", "profile", "role")


class _WorkersType(click.ParamType[int | str]):
    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "auto" or isinstance(value, int):
            return str(value) if value == "auto" else int(value)
        try:
            return int(value)
        except ValueError:
            self.fail(f'"{value}" is neither a number nor auto.', param, ctx)


class _WorkerRangeType(click.ParamType[int | str | dict[str, int]]):
    """A number, auto, or a range such as 2-8, in the form that a run file has."""

    name = "N|MIN-MAX|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str | dict[str, int]:
        if not isinstance(value, str) or value == "auto":
            return value  # type: ignore[no-any-return]  # converted before
        if found := re.fullmatch(r"(\d+)-(\d+)", value):
            least, most = int(found[1]), int(found[2])
            if not 1 <= least <= most:
                self.fail(
                    f'"{value}" is not a range: write the least, from 1 on, then the most, such as 2-8.', param, ctx
                )
            return {"min": least, "max": most}
        try:
            return int(value)
        except ValueError:
            self.fail(f'"{value}" is neither a number, nor a range such as 2-8, nor auto.', param, ctx)


WORKERS = _WorkersType()
WORKER_RANGE = _WorkerRangeType()


def storage_options(command: Command) -> Command:
    """Add --endpoint, --region, --profile, --role; the command gets `storage`, a dict of those that were given."""

    @click.option("--endpoint", help="Address of an S3-compatible store, such as http://minio:9000.")
    @click.option("--region", help="Region of the bucket.")
    @click.option("--profile", help="Profile in ~/.aws to take credentials from.")
    @click.option("--role", metavar="ARN", help="Role to assume with these credentials; its keys are renewed.")
    @functools.wraps(command)
    def with_storage(**options: Any) -> Any:
        given = {name: options.pop(name) for name in _STORAGE}
        return command(storage={name: value for name, value in given.items() if value is not None}, **options)

    return with_storage  # type: ignore[return-value]


def source_options(command: Command) -> Command:
    """Add --format and --read; the command gets `source`, the arguments for `open_source`."""

    @click.option("--format", metavar="NAME", help="parquet, csv, json, arrow, delta, sql. [default: by the suffixes]")
    @click.option(
        "--read",
        metavar="NAME=VALUE",
        multiple=True,
        help="How to read it, such as header=false delimiter=; decimal=, encoding=cp1252 nulls=NA,-999 version=3 "
        "(docs/guides/sources.md).",
    )
    @functools.wraps(command)
    def with_source(*, format: str | None, read: Sequence[str], **options: Any) -> Any:
        given = ({} if format is None else {"format": format}) | pairs(read, "--read", _read_value)
        return command(source=given, **options)

    return with_source  # type: ignore[return-value]


def model_options(copied: str | None) -> Callable[[Command], Command]:
    """Add what commands that give data to a model have: workers, how to read the data, storage, what to print.

    `copied`: what the cache keeps copies of; None: nothing is copied, and --cache of older scripts means nothing.
    """

    def add(command: Command) -> Command:
        command = source_options(
            click.option(
                "--cache",
                metavar="DIR",
                hidden=copied is None,
                help=f"Where Parquet copies of {copied} are kept. [default: ~/.cache/dray]",
            )(storage_options(output_options(command)))
        )
        workers = click.option(
            "--workers",
            type=WORKERS,
            default="auto",
            help="0: this process; N: processes of this machine, or of --cluster. [default: auto]",
        )
        threads = click.option(
            "--threads", type=int, help="Threads of each worker. [default: the CPUs there are, shared]"
        )
        cluster = click.option("--cluster", metavar="WORD", default="local", help=f"{CLUSTER} [default: local]")
        return workers(threads(cluster(command)))

    return add


def function_options(command: Command) -> Command:
    """Add what commands with a function of the user's have: --where, --workers, --cluster and --exclude."""
    where = click.option(
        "--where",
        type=click.Choice(["auto", "here", "processes", "cluster"]),
        default="auto",
        show_default=True,
        help="This process, processes of this machine, or a Ray cluster; auto chooses the fastest.",
    )
    workers = click.option(
        "--workers", type=WORKERS, default="auto", help="Batches at the same time. [default: one per CPU]"
    )
    exclude = click.option(
        "--exclude",
        "excludes",
        metavar="PATTERN",
        multiple=True,
        help="With a job: leave out of the function's directory, which goes along, as in a .gitignore.",
    )
    cluster = click.option("--cluster", metavar="WORD", help=CLUSTER)
    return where(workers(cluster(exclude(command))))


def overwrite_option(command: Command) -> Command:
    """Add --overwrite."""
    return click.option(
        "--overwrite", is_flag=True, help="Replace what dray wrote there before; anything else is refused."
    )(command)


def output_options(command: Command) -> Command:
    """Add --json and --quiet; the command gets `as_json` and `quiet`."""
    quiet = click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
    return as_json(quiet(command))


def _as_yaml(_name: str, text: str) -> Any:
    import yaml

    return yaml.safe_load(text) if text else ""


def _read_value(name: str, text: str) -> Any:
    """Return the value that a text gives a read option, by the option's type."""
    from dray.data.read_options import parse_option

    return parse_option(name, text)


def pairs(given: Sequence[str], flag: str, parse: Callable[[str, str], Any] = _as_yaml) -> dict[str, Any]:
    """Return NAME=VALUE arguments as a dict; `parse` converts the values, by default as YAML like in a run file.

    Of a name that is given again the last value counts; mappings are put together.
    """
    found: dict[str, Any] = {}
    for pair in given:
        import yaml  # here, so that --help does not load it

        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f'"{pair}" is not NAME=VALUE.', fix=f"Write {flag} name=value.")
        try:
            parsed = parse(name, value)
        except yaml.YAMLError:
            raise ConfigError(
                f'The value of {flag} "{pair}" is not YAML.', fix="Close its brackets and quotes."
            ) from None
        before = found.get(name)
        if isinstance(before, dict) and isinstance(parsed, dict):  # --read types={a: string} --read types={b: string}
            parsed = {**before, **parsed}
        found[name] = parsed
    return found
