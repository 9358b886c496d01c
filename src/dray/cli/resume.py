"""`dray resume`: continue a run that ended before its last round."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.options import WORKER_RANGE, output_options, storage_options
from dray.cli.output import print_json, shown_on_stderr
from dray.cli.train import LEVELS


@click.command()
@click.argument("run")
@click.option(
    "--workers",
    type=WORKER_RANGE,
    metavar="N|MIN-MAX|auto",
    help="As in dray train. [default: as given to the run]",
)
@click.option("--threads", type=int, help="Threads of each worker. [default: as given to the run]")
@click.option(
    "--cluster", help="local, auto, host:port; as a job: http://head:8265 or a name. [default: where the run was]"
)
@click.option("--on-failure", type=LEVELS, help="What to do when a worker is lost. [default: as given to the run]")
@storage_options
@output_options
def resume(run: str, storage: dict[str, str], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Continue RUN, a run directory, from its last checkpoint, in that directory.

    For a run that ended before its last round: by Ctrl-C, a machine failure, too many lost workers, or --on-failure.
    The data must be the same. Workers, threads and cluster may differ: the model is the same as without the
    interruption.

    To add rounds to a finished run, use dray train --continue-from.
    """
    from dray.learners.lean import preload

    preload()
    from dray.jobs.anywhere import resume as go_on
    from dray.storage import StorageOptions

    result = go_on(
        run,
        StorageOptions(**storage),
        {name: value for name, value in flags.items() if value is not None},
        sinks=shown_on_stderr(quiet),
    )
    if as_json:
        print_json(result.to_json())
