"""The command `dray`: finds the subcommand, and turns what it raises into a message and an exit code.

Subcommands load only when they are called, so that `dray --help` is fast: this module imports neither
numpy nor pyarrow, ray, xgboost, pydantic or rich.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from dray import __version__
from dray.cli.output import human, print_json, say
from dray.errors import DrayError, nearest
from dray.hints import as_command, in_flags
from dray.masking import masked


class Entry(NamedTuple):
    """The module and function of a command, and its line in the list of commands."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, Entry] = {
    "train": Entry("dray.cli.train", "train", "Train a model, in this process or on Ray workers."),
    "resume": Entry("dray.cli.resume", "resume", "Continue a run that ended before its last round."),
    "predict": Entry("dray.cli.predict", "predict", "Predict with a trained model, streaming, file by file."),
    "recommend": Entry("dray.cli.recommend", "recommend", "Find the best items of users with a trained recommender."),
    "map": Entry("dray.cli.map", "map_", "Run a function over data, in parallel."),
    "runs": Entry("dray.cli.runs", "runs", "List runs, compare them, remove them."),
    "cache": Entry("dray.cli.cache", "cache", "List and remove copies of data and what else dray keeps here."),
    "cluster": Entry("dray.cli.cluster", "cluster", "Start and stop clusters: by SSH, or on Kubernetes."),
    "job": Entry("dray.cli.job", "job", "Submit, watch and stop jobs on a Ray cluster."),
    "data": Entry("dray.cli.data", "data", "Describe data, convert it to Parquet, or make synthetic data."),
    "completion": Entry("dray.cli.completion", "completion", "Complete commands and flags in bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports one only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(f'There is no command "{args[0]}".{nearest(args[0], COMMANDS)}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--version", is_flag=True, help="Show the version; with --verbose all that a bug report should say.")
@click.option("--verbose", is_flag=True, hidden=True)
@click.pass_context
def dray(ctx: click.Context, version: bool, verbose: bool) -> None:
    """Train tabular models on one machine or on a Ray cluster, with one command: the same model everywhere."""
    if verbose and not version:
        raise click.UsageError("--verbose goes with --version.", ctx)
    if version:
        if verbose:
            from dray.cli.about import about
        say(about() if verbose else f"dray {__version__}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        raise click.exceptions.NoArgsIsHelpError(ctx)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0 success, 2 the user's mistake, 130 Ctrl-C, 143 SIGTERM, 1 all else."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "_DRAY_COMPLETE" in os.environ:  # a shell asks for words
        import_module("dray.cli.completion")
    received = _end_in_order_when_terminated()
    try:
        code = _run(arguments)
    except SystemExit:
        if not received:
            raise
        code = 1
    # Ray puts SystemExit(1) in place of what the handler raises while it waits, and cleaning up may fail as well.
    return 128 + received[0] if code and received else code


def _run(arguments: list[str]) -> int:
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        with as_command():
            result = dray.main(arguments, prog_name="dray", standalone_mode=False)
    except DrayError as error:
        # Beside a run file the keys are what is to be changed, and their flags what may override them.
        speak = str if any(argument.endswith((".yaml", ".yml")) for argument in arguments) else in_flags
        return _fail(type(error).__name__, speak(error.what), speak(error.fix), error.exit_code, as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _fail_usage(error, as_json)
    except (KeyboardInterrupt, click.Abort):
        return _fail("Interrupted", "Interrupted.", "", 130, as_json)
    except Exception as error:
        return _fail_unexpectedly(error, as_json)
    # Without its standalone mode, click returns the exit code of --help, and otherwise what the command returned.
    return result if isinstance(result, int) else 0


def _end_in_order_when_terminated() -> list[int]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that half-written output and a local cluster go away.

    Return a list that holds the signal's number once it was received.
    """
    received: list[int] = []

    def end(number: int, _frame: Any) -> None:
        received.append(number)
        sys.exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
    return received


def _fail(kind: str, what: str, fix: str, exit_code: int, as_json: bool) -> int:
    human(f"Error: {what}" if kind != "Interrupted" else what)
    if fix:
        human(f"Fix: {fix}")
    if as_json:
        print_json({"error": {"type": kind, "what": what, "fix": fix}})
    return exit_code


def _fail_usage(error: click.ClickException, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "dray"
    return _fail("UsageError", error.format_message(), f"See {path} --help.", error.exit_code, as_json)


def _fail_unexpectedly(error: Exception, as_json: bool) -> int:
    lines = masked("".join(traceback.format_exception(error)))
    if os.environ.get("DRAY_TRACEBACK") == "1":
        human(lines.rstrip())
        fix = "The traceback is above."
    else:
        fix = _keep(lines)
    what = masked(f"{type(error).__name__}: {error}".splitlines()[0])
    return _fail("UnexpectedError", f"Unexpected {what}", fix, 1, as_json)


def _keep(lines: str) -> str:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="dray-traceback-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(lines)
    except OSError:
        return "Set DRAY_TRACEBACK=1 and run the command again to see the traceback."
    return f"The traceback is in {file.name} (or set DRAY_TRACEBACK=1). Please report it."


if __name__ == "__main__":
    sys.exit(main())
