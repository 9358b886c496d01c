"""`dray predict`: batch inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli.options import model_options, overwrite_option
from dray.cli.output import human, print_json, shown_on_stderr
from dray.events.format import duration, many, size

if TYPE_CHECKING:
    from dray.predicting.predict import PredictResult


@click.command()
@click.argument("model", metavar="RUN|MODEL")
@click.argument("data", nargs=-1, required=True)
@click.argument("out")
@click.option(
    "--type",
    "output",
    type=click.Choice(["probability", "class", "margin"]),
    help="What to predict. Regression and ranking models predict their value, or one a quantile, for probability and "
    "class; recommenders have scores only. [default: probability]",
)
@click.option("--keep", metavar="COLUMN", multiple=True, help="Column of DATA to copy to the output; may be repeated.")
@click.option(
    "--key",
    metavar="COLUMN",
    multiple=True,
    help="The same, exactly as it is written in DATA: an id 007 stays 007. May be repeated.",
)
@click.option("--row-number", is_flag=True, help="Add row_number: the row's number in its input file, from 0.")
@click.option("--file-column", is_flag=True, help="Add file: the input file that the row is from.")
@click.option("--contributions", is_flag=True, help="Add the SHAP contribution of every feature.")
@click.option(
    "--max-rejects",
    metavar="N|P%",
    default="0",
    show_default=True,
    help="Rows that cannot be read, or percent of all rows, above which the exit code is 1. The output is complete "
    "either way: such rows have nulls.",
)
@overwrite_option
@model_options(None)
def predict(
    model: str,
    data: Sequence[str],
    out: str,
    source: dict[str, Any],
    cache: str | None,
    storage: dict[str, str],
    max_rejects: str,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Write the predictions of RUN or MODEL for DATA to OUT: a row for each row of DATA, in order.

    \b
    dray predict runs/churn today.csv predictions.csv --key customer_id
    dray predict runs/churn "days/*.parquet" predictions/

    DATA is what dray train takes: Parquet, CSV, JSON, a query, ... It is read as the data of RUN was (--format,
    --read). OUT is one file if it ends in .csv, .tsv, .json (an array), .jsonl or .parquet, the text also with .gz;
    else a directory with a Parquet file for each input file: a.parquet for a.csv.

    Columns are matched by name: other ones and their order do not matter. A column that is missing, a value that
    cannot be read, an unseen category and an infinite number count as missing, and are reported. A row that cannot be
    read, such as one with too many fields, has nulls in OUT, and is listed in OUT/_rejects or in OUT.rejects.jsonl.

    For a recommender DATA are pairs of user and item, in the columns that the run names; OUT has a score for each.
    Users and items that it does not know are scored by what is known (the mean and the other's bias; for events how
    many had the item), and counted.

    MODEL and OUT may hold parts of a date (nightly/%Y-%m-%d), and `latest` is the newest finished run below ./runs.

    With --cluster http://head:8265 or the name of a cluster, a job there predicts, followed from here: RUN, DATA and
    OUT must be locations that both sides see, such as s3://.

    The exit code is 1 if more rows than --max-rejects cannot be read.
    """
    from dray.learners.lean import preload

    preload()
    from dray.ingesting.limits import parse_limit
    from dray.jobs.anywhere import run
    from dray.jobs.commands.predicting import Predict
    from dray.storage import StorageOptions

    limit = parse_limit(max_rejects)
    command = Predict(
        model=model,
        data=list(data),
        out=out,
        format=source.pop("format", None),
        read=source,
        cache=cache,
        storage=StorageOptions(**storage),
        **options,
    )
    result = run(command, shown_on_stderr(quiet))
    if not quiet:
        _tell(result)
    if as_json:
        print_json(result.to_json())
    if limit.exceeded(result.rows_rejected, result.rows):
        human(
            f"Error: {many(result.rows_rejected, 'rows')} cannot be read, more than --max-rejects {max_rejects}. "
            f"The output is complete, with nulls for them. {result.rejects} lists them."
        )
        return 1
    return 0


def _tell(result: PredictResult) -> None:
    human(
        f"{result.output}: {many(result.rows, 'predictions')} in {many(result.files, 'files')}, "
        f"{duration(result.seconds)}, {result.rows_per_second:,.0f} rows/s, "
        f"peak memory {size(result.peak_memory_bytes)}"
    )
    for name, count in result.unseen.items():
        rows = many(count, "rows")
        human(f'Warning: {rows} with a value of "{name}" that the model does not know; predicted without it.')
    for name, count in result.infinite.items():
        human(f'Warning: {many(count, "rows")} with an infinite or too large "{name}"; it counted as missing.')
    for name, count in result.unreadable.items():
        human(f'Warning: {many(count, "rows")} with a "{name}" that cannot be read; it counted as missing.')
    if result.rows_rejected:
        rows = many(result.rows_rejected, "rows")
        human(f"Warning: {rows} cannot be read: null in the output, and listed in {result.rejects}.")
