"""`dray map`: a function of the user's over data, in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from dray.cli.options import function_options, output_options, overwrite_option, source_options, storage_options
from dray.cli.output import human, print_json, print_of_function, shown_on_stderr
from dray.errors import ConfigError
from dray.events.format import duration, many

if TYPE_CHECKING:
    from dray.jobs.commands.mapping import Map


@click.command("map")
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("data", nargs=-1, required=True)
@click.argument("out")
@click.option(
    "--each",
    type=click.Choice(["batch", "file"]),
    default="batch",
    show_default=True,
    help="What the function is given: a record batch of the data, or the name of each file.",
)
@function_options
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="End with the first item that fails, or go on and list them in failures.jsonl.",
)
@click.option("--timeout", "timeout_s", type=float, metavar="SECONDS", help="The longest that one item may take.")
@click.option("--retries", type=int, default=2, show_default=True, help="More tries for an item that was killed.")
@click.option("--resource", "resources", multiple=True, metavar="NAME=AMOUNT", help="num_cpus, num_gpus, memory, ...")
@click.option("--working-dir", metavar="DIR", help="Directory that the processes work in; on a cluster it is sent.")
@click.option("--unordered", is_flag=True, help="Results as they come.")
@click.option("--dry-run", is_flag=True, help="Measure the first items, say what all would take where, write nothing.")
@overwrite_option
@source_options
@storage_options
@output_options
def map_(
    function: str,
    data: Sequence[str],
    out: str,
    each: Literal["batch", "file"],
    cluster: str | None,
    excludes: Sequence[str],
    resources: Sequence[str],
    working_dir: str | None,
    unordered: bool,
    dry_run: bool,
    source: dict[str, Any],
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Run FUNCTION of MODULE over DATA and write what it returns to OUT.

    The function gets a pyarrow.RecordBatch (or a file's name, with --each file). Tables that it returns (Arrow, pandas,
    polars) go to OUT/results.parquet, anything else to OUT/results.jsonl, a line each, in order. OUT may name the
    .parquet or .jsonl file itself.

    With --cluster http://head:8265 or the name of a cluster, a job there runs the function, followed from here. The
    directory of MODULE goes along, as with dray job submit; DATA and OUT must be locations that both sides see.
    """
    from dray.functions import load_function
    from dray.jobs.commands.mapping import Map
    from dray.storage import StorageOptions

    load_function(function)  # a wrong name is told before anything begins
    command = Map(
        function=function,
        data=list(data),
        out=out,
        each=each,
        word=cluster,
        ordered=not unordered,
        resources=_amounts(resources),
        working_dir=working_dir,
        excludes=tuple(excludes),
        read=source,
        storage=StorageOptions(**storage),
        output=print_of_function,
        **options,
    )
    if dry_run:
        _explain(command, as_json)
    else:
        _map(command, as_json, quiet)


def _explain(command: Map, as_json: bool) -> None:
    from dray.clusters.resolve import Remote, resolve
    from dray.mapping.map import judge_first

    if isinstance(resolve(command.cluster), Remote):
        raise ConfigError(
            f"--dry-run measures on this machine, and --cluster is {command.cluster}.", fix="Leave out one of them."
        )
    options = command.options(command.word)
    function, todo = command.items()
    verdict = judge_first(function, todo, options)
    human(str(verdict))
    if as_json:
        print_json(verdict.to_json())


def _map(command: Map, as_json: bool, quiet: bool) -> None:
    from dray.jobs.anywhere import run

    result = run(command, shown_on_stderr(quiet))
    if not quiet:
        rows = f" ({many(result.rows, 'rows')})" if result.rows else ""
        results = f"{many(result.results, 'results')}{rows} of {many(result.items, 'items')}"
        human(f"{result.output}: {results}, {duration(result.seconds)}")
        if result.failed:
            failed, were = many(result.failed, "items"), "was" if result.failed == 1 else "were"
            human(f"Warning: {failed} failed and {were} left out; {result.files[-1]} has them.")
    if as_json:
        print_json(result.to_json())


def _amounts(given: Sequence[str]) -> dict[str, float]:
    amounts = {}
    for text in given:
        name, _, amount = text.partition("=")
        try:
            amounts[name] = float(amount)
        except ValueError:
            raise ConfigError(
                f'--resource "{text}" is not NAME=AMOUNT.', fix="Write num_cpus=2 or memory=4e9."
            ) from None
    return amounts
