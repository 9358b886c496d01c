"""`dray train`: train a model from flags, a run file, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from dray.cli.options import WORKER_RANGE, Command, output_options, pairs, source_options, storage_options
from dray.cli.output import print_json, shown_on_stderr
from dray.cli.sections import sectioned
from dray.errors import ConfigError
from dray.learners.learner import Flag
from dray.learners.registry import DEFAULT, available, names

LEVELS = click.Choice(["stop", "restart", "shrink", "elastic"])
_LEARNERS = available()
_FLAGS = {flag.key: flag for learner in reversed(_LEARNERS) for flag in reversed(learner.flags)}
"""The learners' own flags."""
_FIRST = {flag.key: learner for learner in reversed(_LEARNERS) for flag in learner.flags}
"""A flag that several learners have is shown with the first."""


def _name(flag: Flag) -> str:
    return flag.name or flag.key.replace("_", "-")


SECTIONS = {
    "Model": ("model", "rounds", "param", "seed", "continue-from", "out", "overwrite"),
    **{
        f"--model {learner.name}": own
        for learner in _LEARNERS
        if (own := tuple(_name(flag) for flag in learner.flags if _FIRST[flag.key] is learner))
    },
    "Evaluation": ("eval", "eval-fraction", "split-seed", "early-stop"),
    "Workers": (
        *("workers", "threads", "cluster", "on-failure", "max-failures", "max-failures-in-round"),
        *("heartbeat", "wait"),
    ),
    "Data and storage": ("format", "read", "cache", "endpoint", "region", "profile", "role"),
}
_SUMMARIES = "; ".join(f"{learner.name}: {learner.summary}" for learner in _LEARNERS)
_ROUNDS = "; ".join(f"{learner.name}: {learner.default_rounds}" for learner in _LEARNERS)


def _learners_options(command: Command) -> Command:
    """Add the flags that the learners describe; each is handed over by its key."""
    for flag in _FLAGS.values():
        add = click.option(
            f"--{_name(flag)}/--no-{_name(flag)}" if flag.switch else f"--{_name(flag)}",
            flag.key,
            default=None,
            type=bool if flag.switch else click.Choice(flag.choices) if flag.choices else flag.type,
            metavar=flag.metavar,
            multiple=flag.repeated or flag.pairs,
            help=flag.help,
        )
        command = add(command)
    return command


@click.command(cls=sectioned(SECTIONS))
@click.argument("data", nargs=-1, required=True)
@click.option("--model", type=click.Choice(names()), help=f"{_SUMMARIES}. [default: {DEFAULT}]")
@_learners_options
@click.option("--rounds", type=int, help=f"Rounds, or epochs, to train. [default: {_ROUNDS}]")
@click.option("--seed", type=int, help="Seed of the learner, and of the split without --split-seed. [default: 0]")
@click.option("--split-seed", type=int, help="Seed of the split, --eval-fraction. [default: that of --seed]")
@click.option(
    "--param",
    metavar="NAME=VALUE",
    multiple=True,
    help="Parameter of the model, such as max_depth or factors; may be repeated.",
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
    help="When a worker is lost: stop, restart all workers, go on with fewer, or replace it. [default: elastic]",
)
@click.option("--max-failures", type=int, metavar="N", help="Workers that may be lost in the run. [default: 100]")
@click.option(
    "--max-failures-in-round", type=int, metavar="N", help="Times that the same round may be interrupted. [default: 5]"
)
@click.option(
    "--heartbeat",
    "heartbeat_s",
    type=float,
    metavar="SECONDS",
    help="A worker that is silent for so long is lost. [default: 8]",
)
@click.option(
    "--wait",
    "wait_s",
    type=float,
    metavar="SECONDS",
    help="Longest wait for the least number of workers. [default: 300]",
)
@click.option("--job", hidden=True, help="The job that this command is a try of: its earlier run is gone on with.")
@click.option(
    "--out",
    metavar="DIR",
    help="Run directory, new; local or s3://; may hold parts of a date, %Y-%m-%d. [default: runs/<id>]",
)
@click.option(
    "--overwrite",
    is_flag=True,
    default=None,
    help="Replace the run in --out once the new one is finished; anything but a run is refused.",
)
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
    job: str | None,
    **flags: Any,
) -> None:
    """Train a model on DATA: files, directories or globs, local or s3://; a database; or a run file (run.yaml).

    \b
    dray train houses.parquet --label price --eval-fraction 0.2
    dray train events/ --model factorization --user user_id --item item_id --event type

    Parquet is read as it is. CSV, JSON, Arrow, Delta Lake and SQL are copied into a cache as Parquet first, once.
    Flags override the run file. The result is a run directory with the model, its metrics and what happened.
    """
    from dray.config.run_file import read_run_file
    from dray.learners.configs import make_config

    values, origin = _base(data, read_run_file)
    given = {name.rstrip("_"): value for name, value in flags.items() if value not in (None, ())}
    values |= {name: _over(values, _FLAGS[name], value) if _has_pairs(name) else value for name, value in given.items()}
    if (format := source.pop("format", None)) is not None:
        values["format"] = format
    if source:
        values["read"] = dict(values.get("read") or {}) | source
    if storage:
        values["storage"] = dict(values.get("storage") or {}) | storage
    if param:
        values["params"] = dict(values.get("params") or {}) | pairs(param, "--param")
    config = make_config(values, origin=origin)

    from dray.learners.lean import preload

    preload()
    from dray.jobs.anywhere import train as run

    result = run(config, sinks=shown_on_stderr(quiet), job=job)
    if as_json:
        print_json(result.to_json())


def _has_pairs(name: str) -> bool:
    return name in _FLAGS and _FLAGS[name].pairs


def _over(values: Mapping[str, Any], flag: Flag, given: Sequence[str]) -> Any:
    """Return the pairs of the run file, or those by default, with what was given over them."""
    base = values.get(flag.key)
    if base is None:
        fields = (learner.Config.model_fields for learner in _LEARNERS if flag in learner.flags)
        base = next(fields)[flag.key].get_default(call_default_factory=True)
    if not isinstance(base, Mapping):
        return base
    name = f"--{_name(flag)}"
    return {**base, **(pairs(given, name, lambda _, text: text) if flag.texts else pairs(given, name))}


def _base(data: Sequence[str], read: Any) -> tuple[dict[str, Any], str]:
    """A single .yaml argument is a run file, anything else is data."""
    if len(data) == 1 and data[0].endswith((".yaml", ".yml")):
        return read(data[0]), data[0]
    if run_file := next((name for name in data if name.endswith((".yaml", ".yml"))), None):
        raise ConfigError(
            f"{run_file} is a run file, and other data is named beside it.", fix="Name the data in the run file only."
        )
    return {"data": list(data)}, "the command line"
