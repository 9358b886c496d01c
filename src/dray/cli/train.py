"""`dray train`: train a model from flags, a run file, or both."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dray.cli.options import WORKER_RANGE, output_options, pairs, source_options, storage_options
from dray.cli.output import print_json
from dray.cli.sections import sectioned
from dray.errors import ConfigError

LEVELS = click.Choice(["stop", "restart", "shrink", "elastic"])


SECTIONS = {
    "Model": ("model", "rounds", "param", "seed", "continue-from", "out"),
    "Trees, --model xgboost": ("label", "objective", "group", "weight", "ignore"),
    "Recommenders, --model factorization": (
        *("user", "item", "rating", "event", "event-weight", "time", "half-life-days"),
        *("eval-by", "eval-last", "eval-at"),
    ),
    "Evaluation": ("eval", "eval-fraction", "early-stop"),
    "Workers": (
        *("workers", "threads", "cluster", "on-failure", "max-failures", "max-failures-in-round"),
        *("heartbeat", "wait"),
    ),
    "Data and storage": ("format", "read", "cache", "endpoint", "region", "profile", "role"),
}


@click.command(cls=sectioned(SECTIONS))
@click.argument("data", nargs=-1, required=True)
@click.option(
    "--model",
    type=click.Choice(["xgboost", "factorization"]),
    help="Trees that predict a column; or a recommender, from who had what. [default: xgboost]",
)
@click.option("--label", metavar="COLUMN", help="Column to predict; needed.")
@click.option(
    "--objective", help="binary, multiclass, regression, ranking, or any XGBoost objective. [default: by the label]"
)
@click.option("--group", metavar="COLUMN", help="Column that names the query of a row (ranking); never split.")
@click.option("--weight", metavar="COLUMN", help="Column with the weight of a row.")
@click.option("--ignore", metavar="COLUMN", multiple=True, help="Column to leave out; may be repeated.")
@click.option("--user", metavar="COLUMN", help="Column with the user's id, text or whole numbers; needed.")
@click.option("--item", metavar="COLUMN", help="Column with the item's id; needed.")
@click.option("--rating", metavar="COLUMN", help="Column with ratings, to learn from ratings.")
@click.option(
    "--event",
    metavar="COLUMN",
    help="Column with the type of an event, to learn from events. Without it and --rating each row is one, weight 1.",
)
@click.option(
    "--event-weight",
    metavar="TYPE=WEIGHT",
    multiple=True,
    help="Weight of a type of event; may be repeated. [default: view=1 add_to_cart=3 purchase=5 payment_failed=-2]",
)
@click.option("--time", metavar="COLUMN", help="Column with the time: timestamps, dates, or seconds since 1970.")
@click.option(
    "--half-life-days",
    type=float,
    metavar="DAYS",
    help="Age at which an event weighs half. [default: age does not matter]",
)
@click.option(
    "--eval-by",
    type=click.Choice(["random", "time"]),
    help="Which events --eval-fraction sets aside: any, or the last by --time. [default: random]",
)
@click.option("--eval-last", type=int, metavar="N", help="Set aside the last N events of each user, by --time.")
@click.option(
    "--eval-at",
    type=int,
    metavar="K",
    multiple=True,
    help="Length of the lists that recall, NDCG and MAP are taken of; may be repeated. [default: 10]",
)
@click.option("--rounds", type=int, help="Boosting rounds, or epochs. [default: 100; epochs: 20 ratings, 15 events]")
@click.option("--seed", type=int, help="Seed of the split and the learner. [default: 0]")
@click.option(
    "--param",
    metavar="NAME=VALUE",
    multiple=True,
    help="Parameter of XGBoost, or of a recommender (factors, regularization, ...); may be repeated.",
)
@click.option("--eval", "eval_", metavar="DATA", multiple=True, help="Data to evaluate on.")
@click.option("--eval-fraction", type=float, help="Share of the rows to set aside for evaluation.")
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
    event_weight: Sequence[str],
    source: dict[str, Any],
    storage: dict[str, str],
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a model on DATA: files, directories or globs, local or s3://; a database; or a run file (run.yaml).

    \b
    dray train houses.parquet --label price --eval-fraction 0.2
    dray train events/ --model factorization --user user_id --item item_id --event type

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
    if event_weight:
        values["event_weights"] = _weights(values.get("event_weights"), event_weight)
    config = make_config(values, origin=origin)

    from dray.learners.xgboost_loading import load_lean

    load_lean()
    from dray.jobs.anywhere import train as run
    from dray.telemetry.sinks.terminal import terminal

    result = run(config, sinks=[] if quiet else [terminal(sys.stderr, live=sys.stderr.isatty())])
    if as_json:
        print_json(result.to_json())


def _weights(base: Any, given: Sequence[str]) -> Any:
    """Return the weights of the run file, or those by default, with what was given over them."""
    from dray.config.factorization import EVENT_WEIGHTS

    base = EVENT_WEIGHTS if base is None else base
    return {**base, **pairs(given, "--event-weight")} if isinstance(base, Mapping) else base


def _base(data: Sequence[str], read: Any) -> tuple[dict[str, Any], str]:
    """A single .yaml argument is a run file, anything else is data."""
    if len(data) == 1 and data[0].endswith((".yaml", ".yml")):
        return read(data[0]), data[0]
    if run_file := next((name for name in data if name.endswith((".yaml", ".yml"))), None):
        raise ConfigError(f"{run_file} is a run file and stands beside data.", fix="Name the data in the run file.")
    return {"data": list(data)}, "the command line"
