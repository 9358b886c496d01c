"""`dray resume`: go on with a run that ended before its last round."""

from __future__ import annotations

import sys
from typing import Any

import click

from dray.cli.options import WORKER_RANGE, output_options, storage_options
from dray.cli.output import print_json
from dray.cli.train import LEVELS


@click.command()
@click.argument("run")
@click.option(
    "--workers",
    type=WORKER_RANGE,
    metavar="N|MIN-MAX|auto",
    help="As for dray train. [default: as the run was asked for]",
)
@click.option("--threads", type=int, help="Threads of each worker. [default: as the run was asked for]")
@click.option("--cluster", help="local, auto, or host:port. [default: as the run was asked for]")
@click.option("--on-failure", type=LEVELS, help="When a worker is lost. [default: as the run was asked for]")
@storage_options
@output_options
def resume(run: str, storage: dict[str, str], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Go on with RUN, a run directory, from its last checkpoint, in that directory.

    For a run that ended before its last round: Ctrl-C, a machine that went down, more failures than it may have, a
    level of --on-failure that stops. The data must be the same. Workers, threads and cluster may be others: the model
    is the one that the run would have come to without the interruption.

    To train further on a finished run, use dray train --continue-from.
    """
    from dray.learners.xgboost_loading import load_lean

    load_lean()
    from dray.jobs.anywhere import resume as go_on
    from dray.storage import StorageOptions
    from dray.telemetry.sinks.terminal import terminal

    result = go_on(
        run,
        StorageOptions(**storage),
        {name: value for name, value in flags.items() if value is not None},
        sinks=[] if quiet else [terminal(sys.stderr, live=sys.stderr.isatty())],
    )
    if as_json:
        print_json(result.to_json())
