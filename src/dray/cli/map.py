"""`dray map`: a function of the user's over data, in parallel."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from dray.cli.options import output_options, place_options, source_options, storage_options
from dray.cli.output import duration, human, print_json
from dray.cli.user_function import load_function
from dray.errors import ConfigError


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
@place_options
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
@source_options
@storage_options
@output_options
def map_(
    function: str,
    data: Sequence[str],
    out: str,
    each: str,
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
    """
    from dray.mapping.options import Options
    from dray.storage import StorageOptions

    called = load_function(function)
    where = StorageOptions(**storage)
    items = functools.partial(_items, called, list(data), each, where, source)
    settings = Options(
        ordered=not unordered,
        resources=_amounts(resources),
        runtime_env={"working_dir": working_dir} if working_dir else {},
        **options,
    )
    if dry_run:
        _explain(items, settings, as_json)
        return
    _map(items, out, each, where, settings, as_json, quiet)


def _explain(items: Any, settings: Any, as_json: bool) -> None:
    from dray.mapping.map import judge_first

    function, todo = items()
    verdict = judge_first(function, todo, settings)
    human(str(verdict))
    if as_json:
        print_json(verdict.to_json())


def _map(items: Any, out: str, each: str, storage: Any, settings: Any, as_json: bool, quiet: bool) -> None:
    from dray.mapping.map import run
    from dray.mapping.results_files import result_files
    from dray.storage import absolute
    from dray.telemetry.events import Telemetry
    from dray.telemetry.sinks.terminal import terminal

    begun = time.perf_counter()
    count = 0
    telemetry = Telemetry([] if quiet else [terminal(sys.stderr, live=sys.stderr.isatty())])
    try:
        with result_files(out, storage) as files:
            function, todo = items()
            telemetry.emit("phase", name="map")
            for outcome in run(function, todo, settings, telemetry.emit, _to_stderr):
                count += 1
                if outcome.error is not None:
                    if settings.on_error == "raise":
                        raise outcome.error
                    files.fail(outcome.error)
                else:
                    for value in outcome.value if each == "batch" else [outcome.value]:
                        files.add(value)
            written = [absolute(name) for name in files.publish()]
    finally:
        telemetry.close()
    seconds = time.perf_counter() - begun
    result = {
        "items": count,
        "results": files.results,
        "rows": files.rows,
        "failed": files.failed,
        "seconds": round(seconds, 3),
        "output": absolute(out),
        "files": written,
    }
    if not quiet:
        from dray.telemetry.format import many

        rows = f" ({many(files.rows, 'rows')})" if files.rows else ""
        results = f"{many(files.results, 'results')}{rows} of {many(count, 'items')}"
        human(f"{result['output']}: {results}, {duration(seconds)}")
        if files.failed:
            failed, were = many(files.failed, "items"), "was" if files.failed == 1 else "were"
            human(f"Warning: {failed} failed and {were} left out; {written[-1]} has them.")
    if as_json:
        print_json(result)


def _items(
    called: Any, data: list[str], each: str, storage: Any, source: dict[str, Any]
) -> tuple[Callable[[Any], Any], Iterable[Any]]:
    from dray.mapping.data_items import batches_of, files_of

    if each == "batch":
        return batches_of(called, data, storage, **source)
    if source:
        raise ConfigError("--format and --read say how rows are read; --each file gives names.", fix="Leave them out.")
    return files_of(called, data, storage)


def _to_stderr(text: str, _to_stderr: bool) -> None:
    """What the function prints: stdout belongs to the result."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _amounts(given: Sequence[str]) -> dict[str, float]:
    amounts = {}
    for text in given:
        name, _, amount = text.partition("=")
        try:
            amounts[name] = float(amount)
        except ValueError:
            raise ConfigError(f'--resource "{text}" has no amount.', fix="Write num_cpus=2 or memory=4e9.") from None
    return amounts
