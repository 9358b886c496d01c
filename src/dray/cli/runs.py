"""`dray runs`: the runs in a directory, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dray.cli.options import storage_options
from dray.cli.output import human, print_json

if TYPE_CHECKING:
    from dray.runs.listing import RunSummary

DEFAULT_DIRECTORY = "runs"
_STYLES = {"finished": "green", "running": "yellow", "failed": "red", "lost": "red", "broken": "red"}


@click.command()
@click.argument("directory", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
@storage_options
def runs(directory: str | None, as_json: bool, storage: dict[str, str]) -> None:
    """List the runs in DIRECTORY (by default ./runs), newest first.

    DIRECTORY is a local path or s3://bucket/prefix. A run is "lost" when it never ended and its process is gone.
    """
    from dataclasses import asdict
    from pathlib import Path

    from dray.runs.listing import list_runs
    from dray.storage import StorageOptions

    if directory is None and not Path(DEFAULT_DIRECTORY).exists():
        found = []  # nothing has been trained here yet, which is not an error
    else:
        found = list_runs(directory or DEFAULT_DIRECTORY, StorageOptions(**storage))
    if as_json:
        print_json({"runs": [asdict(summary) for summary in found]})
    elif not found:
        where = f"in {directory or DEFAULT_DIRECTORY}" if directory != "." else "here"
        human(f"No runs {where}. Make one: dray train DATA --label COLUMN")
    else:
        _print_table(found)


def _print_table(found: list[RunSummary]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dray.events.format import count, duration
    from dray.events.sinks.console import SafeConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("model", no_wrap=True)
    for name in ("rows", "workers", "rounds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("metric", no_wrap=True, overflow="ellipsis")
    for summary in found:
        table.add_row(
            Text(summary.run),
            Text(summary.status, style=_STYLES.get(summary.status, "")),
            _when(summary.started),
            Text(summary.model or ""),
            *("" if value is None else count(value) for value in (summary.rows, summary.workers, summary.rounds)),
            "" if summary.seconds is None else duration(summary.seconds),
            Text(_metrics(summary)),
        )
    # A pipe has no width: lines are not cut.
    console = SafeConsole(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    console.print(table)
    for summary in (summary for summary in found if summary.problem):
        console.print(Text(f"{summary.run} ({summary.status}): {summary.problem}", style="dim"))


def _metrics(summary: RunSummary) -> str:
    """Return all metrics; of a recommender, which has many, the one that decides."""
    from dray.events.epochs import deciding_metric
    from dray.events.format import metric
    from dray.learners.recommender import recommends
    from dray.learners.registry import available

    metrics = summary.metrics or {}
    recommenders = [learner.name for learner in available() if recommends(learner)]
    names = deciding_metric(metrics) if summary.model in recommenders else metrics
    return ", ".join(f"{name} {metric(metrics[name])}" for name in names)


def _when(started: str | None) -> str:
    """Return the time of day here, with the date."""
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(started or '').astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return ""
