"""`dray train`: train a model from flags, a run file, or both."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from dray.cli.options import WORKER_RANGE, output_options, pairs, source_options, storage_options
from dray.cli.output import print_json
from dray.errors import ConfigError

LEVELS = click.Choice(["stop", "restart", "shrink", "elastic"])


@click.command()
@click.argument("data", nargs=-1, required=True)
@click.option("--label", metavar="COLUMN", help="Column to predict.")
@click.option(
    "--objective", help="binary, multiclass, regression, ranking, or any XGBoost objective. [default: by the label]"
)
@click.option("--group", metavar="COLUMN", help="Column that names the query of a row (ranking); never split.")
@click.option("--weight", metavar="COLUMN", help="Column with the weight of a row.")
@click.option("--ignore", metavar="COLUMN", multiple=True, help="Column to leave out; may be repeated.")
@click.option("--rounds", type=int, help="Boosting rounds. [default: 100]")
@click.option("--seed", type=int, help="Seed of the split and the learner. [default: 0]")
@click.option("--param", metavar="NAME=VALUE", multiple=True, help="XGBoost parameter; may be repeated.")
@click.option("--eval", "eval_", metavar="DATA", multiple=True, help="Data to evaluate on after every round.")
@click.option("--eval-fraction", type=float, help="Share of the rows to set aside for evaluation, by row position.")
@click.option("--early-stop", type=int, metavar="N", help="Stop after N rounds without improvement; keep the best.")
@click.option("--continue-from", metavar="RUN", help="Go on from the model of a finished run.")
@click.option(
    "--workers",
    type=WORKER_RANGE,
    metavar="N|MIN-MAX|auto",
    help="0: this process; N: Ray workers; 2-8: as many as there is room for; auto decides. [default: auto]",
)
@click.option("--threads", type=int, help="Threads of each worker. [default: the CPUs there are, shared]")
@click.option(
    "--cluster",
    help="local (embedded), auto (this machine's), host:port, spark; as a job: http://head:8265 or a name. "
    "[default: local]",
)
@click.option(
    "--on-failure",
    type=LEVELS,
    help="When a worker is lost: end, begin all anew, go on with the others, or replace it. [default: elastic]",
)
@click.option("--max-failures", type=int, metavar="N", help="Workers that may be lost in the run. [default: 100]")
@click.option(
    "--max-failures-in-round", type=int, metavar="N", help="Interruptions of one and the same round. [default: 5]"
)
@click.option(
    "--heartbeat", "heartbeat_s", type=float, metavar="SECONDS", help="Silence that means a lost worker. [default: 8]"
)
@click.option(
    "--wait", "wait_s", type=float, metavar="SECONDS", help="Longest wait below the least workers. [default: 300]"
)
@click.option("--out", metavar="DIR", help="Run directory, new; local or s3://. [default: runs/<id>]")
@source_options
@click.option("--cache", metavar="DIR", help="Where Parquet copies of other formats are kept. [default: ~/.cache/dray]")
@storage_options
@output_options
def train(
    data: Sequence[str],
    param: Sequence[str],
    source: dict[str, Any],
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a model on DATA: files, directories or globs, local or s3://; a database; or a run file (run.yaml).

    Parquet is read as it is. CSV, JSON, Arrow, Delta Lake and SQL are copied into a cache as Parquet first, once.
    Flags override the run file. The result is a run directory with the model, its metrics and what happened.
    """
    from dray.config.run_file import make_config, read_run_file

    values, origin = _base(data, read_run_file)
    given = {name.rstrip("_"): value for name, value in flags.items() if value not in (None, ())}
    values |= given
    if (format := source.pop("format", None)) is not None:
        values["format"] = format
    if source:
        values["read"] = dict(values.get("read") or {}) | source
    if storage:
        values["storage"] = dict(values.get("storage") or {}) | storage
    if param:
        values["params"] = dict(values.get("params") or {}) | pairs(param, "--param")
    config = make_config(values, origin=origin)

    from dray.learners.xgboost_loading import load_lean

    load_lean()
    from dray.jobs.anywhere import train as run
    from dray.telemetry.sinks.terminal import terminal

    result = run(config, sinks=[] if quiet else [terminal(sys.stderr, live=sys.stderr.isatty())])
    if as_json:
        print_json(result.to_json())


def _base(data: Sequence[str], read: Any) -> tuple[dict[str, Any], str]:
    """A single .yaml argument is a run file, anything else is data."""
    if len(data) == 1 and data[0].endswith((".yaml", ".yml")):
        return read(data[0]), data[0]
    if run_file := next((name for name in data if name.endswith((".yaml", ".yml"))), None):
        raise ConfigError(f"{run_file} is a run file and stands beside data.", fix="Name the data in the run file.")
    return {"data": list(data)}, "the command line"
