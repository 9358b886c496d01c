"""`dray data ingest`: rows from any source to well-laid-out Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import click

from dray.cli.options import function_options, output_options, overwrite_option, source_options, storage_options
from dray.cli.output import human, print_json, print_of_function, shown_on_stderr
from dray.errors import ConfigError, ItemError
from dray.events.format import duration, many, size


@click.command("ingest")
@click.argument("source_", metavar="SOURCE...", nargs=-1, required=True)
@click.argument("out")
@click.option("--columns", metavar="A,B", help="What is written, in this order. [default: all]")
@click.option("--filter", metavar="EXPR", help='Rows to keep, such as \'price > 10 and country in ("DE", "FR")\'.')
@click.option("--transform", metavar="MODULE:FUNCTION", help="Your function: a record batch in, a table out.")
@click.option("--dedup", metavar="all|A,B", help="Of rows alike in these columns (all: in every one) keep the first.")
@click.option("--sort", metavar="A,-B", help="Order of the rows; -B is descending.")
@click.option("--partition-by", metavar="A,B", help="A directory for each value: A=1/. At most 1,000 of them.")
@click.option("--test", metavar="SHARE", help="Put this share of the rows into OUT/test, the others into OUT/train.")
@click.option("--split-by", metavar="A,B", help="With --test: rows alike in these columns stay in one part.")
@click.option("--test-from", metavar="MOMENT", help="Rows from this date or time of --split-by on go into OUT/test.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --test: another one chooses other rows.")
@click.option(
    "--max-rejects",
    metavar="N|P%",
    default="1%",
    show_default=True,
    help="End when more rows than that cannot be read.",
)
@overwrite_option
@function_options
@source_options
@storage_options
@output_options
def ingest(
    source_: Sequence[str],
    out: str,
    columns: str | None,
    filter: str | None,
    transform: str | None,
    dedup: str | None,
    sort: str | None,
    partition_by: str | None,
    test: str | None,
    split_by: str | None,
    test_from: str | None,
    seed: int,
    max_rejects: str,
    cluster: str | None,
    excludes: Sequence[str],
    source: dict[str, Any],
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Write the rows of SOURCE (files, directories, a database, in any format) to OUT as Parquet.

    Rows that cannot be read go to OUT/_rejects.jsonl, each with its file, line and reason. A run that was ended before
    its time goes on when the same command is given again.

    With --cluster http://head:8265 or the name of a cluster, a job there does it, followed from here. The directory of
    --transform goes along, as with dray job submit; SOURCE and OUT must be locations that both sides see.
    """
    from dray.functions import load_function
    from dray.ingesting.limits import parse_limit
    from dray.ingesting.recipe import Recipe, make_split
    from dray.jobs.anywhere import run
    from dray.jobs.commands.ingesting import Ingest
    from dray.storage import StorageOptions

    command = Ingest(
        data=list(source_),
        out=out,
        recipe=Recipe(
            columns=_names("--columns", columns),
            filter=filter,
            transform=transform,
            dedup=None if dedup is None else () if dedup == "all" else _names("--dedup", dedup),
            sort=_names("--sort", sort),
            partition_by=_names("--partition-by", partition_by),
            split=make_split(_share(test), _names("--split-by", split_by), test_from, seed),
            max_rejects=parse_limit(max_rejects),
        ),
        function=load_function(transform) if transform else None,
        word=cluster,
        excludes=tuple(excludes),
        read=source,
        storage=StorageOptions(**storage),
        output=print_of_function,
        **options,
    )
    try:
        result = run(command, shown_on_stderr(quiet))
    except KeyboardInterrupt:
        human("What is done stays: the same command goes on.")
        raise
    except ItemError as error:
        if error.traceback:
            human(error.traceback.rstrip())
        raise
    if not quiet:
        _tell(result)
    if as_json:
        print_json(result.to_json())


def _tell(result: Any) -> None:
    rows, files = many(result.rows_kept, "rows"), many(result.files, "files")
    human(f"{result.output}: {rows} in {files}, {size(result.bytes)}, {duration(result.seconds)}")
    left_out = [
        f"{rows:,} {what}"
        for rows, what in (
            (result.rows_filtered, "filtered"),
            (result.rows_duplicate, "duplicate"),
            (result.rows_rejected, "rejected"),
        )
        if rows
    ]
    if left_out:
        human(f"Of {many(result.rows_read, 'rows')} read: {', '.join(left_out)}.")
    if result.parts:
        human(", ".join(f"{part} {many(rows, 'rows')}" for part, rows in result.parts.items()) + ".")
    if result.rejects:
        human(f"Rejected rows and the reasons: {result.rejects}")


def _names(flag: str, text: str | None) -> tuple[str, ...]:
    """Return column names separated by commas; one that has a comma itself is in quotes."""
    if text is None:
        return ()
    found = next(csv.reader([text], skipinitialspace=True), [])
    names = tuple(name.strip() for name in found if name.strip())
    if not names:
        raise ConfigError(f'{flag} "{text}" does not name a column.', fix=f"Write {flag} a,b.")
    return names


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ConfigError(
            f'--test "{text}" is not a share of the rows.', fix="Write --test 0.2 or --test 20%."
        ) from None
