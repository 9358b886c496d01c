"""`dray predict`: batch inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from dray.cli.options import model_options
from dray.cli.output import human, print_json, shown_on_stderr
from dray.events.format import duration, many, size


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
@click.option("--contributions", is_flag=True, help="Add the SHAP contribution of every feature.")
@model_options("other formats")
def predict(
    model: str,
    data: Sequence[str],
    out: str,
    source: dict[str, Any],
    cache: str | None,
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Write the predictions of RUN or MODEL for DATA to OUT, one Parquet file for each input file, rows in order.

    DATA is Parquet, or anything that dray train takes: CSV, JSON, ... are copied into a cache as Parquet first, and the
    output has a file for each file of the copy.

    Columns are matched by name: a missing one is an error, extra ones are ignored, an unseen category or an
    infinite number counts as missing and is reported.

    For a recommender DATA are pairs of user and item, in the columns that the run names; OUT has a score for each.
    Users and items that it does not know are scored by what is known (the mean and the other's bias; for events how
    many had the item), and counted.

    With --cluster http://head:8265 or the name of a cluster, a job there predicts, followed from here: RUN, DATA and
    OUT must be locations that both sides see, such as s3://.
    """
    from dray.learners.lean import preload

    preload()
    from dray.jobs.anywhere import run
    from dray.jobs.commands.predicting import Predict
    from dray.storage import StorageOptions

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
    if as_json:
        print_json(result.to_json())
