"""`dray train`: train a model from flags, a run file, or both."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import click
import yaml

from dray.cli.output import print_json
from dray.errors import ConfigError

_STORAGE = ("endpoint", "region", "profile")


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
    """As above, or a range, in the shape that a run file has for it."""

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
@click.option("--eval", "eval_", metavar="DATA", multiple=True, help="Parquet to evaluate on after every round.")
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
@click.option("--cluster", help="local (embedded), auto (this machine's), or host:port. [default: local]")
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
@click.option("--endpoint", help="Address of an S3-compatible store, such as http://minio:9000.")
@click.option("--region", help="Region of the bucket.")
@click.option("--profile", help="Profile in ~/.aws to take credentials from.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
@click.option("--quiet", is_flag=True, help="No live view and no lines on stderr.")
def train(data: Sequence[str], param: Sequence[str], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Train a model on DATA: Parquet files, directories or globs, local or s3://; or a run file (run.yaml).

    Flags override the run file. The result is a run directory with the model, its metrics and what happened.
    """
    from dray.config.run_file import make_config, read_run_file

    values, origin = _base(data, read_run_file)
    given = {name.rstrip("_"): value for name, value in flags.items() if value not in (None, ())}
    storage = {name: given.pop(name) for name in _STORAGE if name in given}
    values |= given
    if storage:
        values["storage"] = dict(values.get("storage") or {}) | storage
    if param:
        values["params"] = dict(values.get("params") or {}) | _params(param)
    config = make_config(values, origin=origin)

    from dray.learners.xgboost_loading import load_lean

    load_lean()
    from dray.telemetry.sinks.terminal import terminal
    from dray.training.train import train as run

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


def _params(pairs: Sequence[str]) -> dict[str, Any]:
    params = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f'"{pair}" is not a parameter.', fix="Write --param name=value.")
        try:
            params[name] = yaml.safe_load(value) if value else ""
        except yaml.YAMLError:
            raise ConfigError(
                f'The value of --param "{pair}" is not YAML.', fix="Close its brackets and quotes."
            ) from None
    return params
