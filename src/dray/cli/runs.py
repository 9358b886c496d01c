"""`dray runs`: the runs in a directory, newest first; `diff` and `rm` for some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dray.cli.options import storage_options
from dray.cli.output import human, print_json, say

if TYPE_CHECKING:
    from dray.runs.comparing import Difference
    from dray.runs.listing import RunSummary
    from dray.runs.naming import Names
    from dray.storage import StorageOptions

_STYLES = {"finished": "green", "running": "yellow", "failed": "red", "lost": "red", "broken": "red"}
_WIDE = 120
"""Columns from which on nothing has to be short."""
_NARROW = 100
"""Columns below which not everything fits side by side."""
_LABEL_WIDTH = 10
_DIFFERS_WIDTH = 8

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")


@click.command()
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@json_option
@storage_options
def diff(a: str, b: str, as_json: bool, storage: dict[str, str]) -> None:
    """Show in what two runs differ.

    What was asked, the data, what came of it, and where they ran; the latter does not change a model.
    `latest` is the newest finished run below ./runs.
    """
    from dataclasses import asdict

    from dray.runs.comparing import compare_runs
    from dray.storage import StorageOptions

    options = StorageOptions(**storage)
    names = _names(options)
    a, b = names.finished(a), names.finished(b)
    found = compare_runs(a, b, options)
    if as_json:
        print_json({"a": a, "b": b, "differences": [asdict(difference) for difference in found]})
    else:
        _print_differences(a, b, found)


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@storage_options
def rm(runs: Sequence[str], yes: bool, as_json: bool, storage: dict[str, str]) -> None:
    """Remove runs, local or on s3://, with their models.

    A run that is running, a link, and what is not a run are refused before anything is removed. Files in a run's
    directory that dray did not write stay, and are listed.
    """
    from dray.cli.asking import require_yes
    from dray.events.format import many
    from dray.runs.contents import contents_of_run, remove_run
    from dray.storage import StorageOptions, absolute

    options = StorageOptions(**storage)
    names = _names(options)
    named = [names.finished(run).rstrip("/") for run in runs]
    locations = list({absolute(location): location for location in reversed(named)}.values())[::-1]  # ./a is a
    for location in locations:
        contents_of_run(location, options)
    require_yes(f"{many(len(locations), 'runs')} ({', '.join(locations)})", yes=yes)
    removed = []
    for location in locations:
        stays = remove_run(location, options)
        removed.append({"run": location, "stays": list(stays)})
        human(f"Removed {location}." if not stays else f"Removed the run {location}; not written by dray, so it stays:")
        for name in stays:
            human(f"  {location}/{name}")
    if as_json:
        print_json({"removed": removed})


_COMMANDS = {"diff": diff, "rm": rm}


class _WithCommands(click.Command):
    """A command that is another one when its first argument is the name of that."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        if args and (other := _COMMANDS.get(args[0])) is not None:
            return other.make_context(f"{info_name} {args[0]}", args[1:], *rest, **extra)
        return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(90)) for name, command in _COMMANDS.items()])


def _commands(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the commands that the first word may be; where it is none, the shell offers files."""
    return [CompletionItem(name) for name in _COMMANDS if name.startswith(incomplete)]


@click.command(cls=_WithCommands)
@click.argument("directory", required=False, shell_complete=_commands)
@json_option
@storage_options
def runs(directory: str | None, as_json: bool, storage: dict[str, str]) -> None:
    """List the runs in DIRECTORY (by default ./runs), newest first, or compare or remove some.

    \b
    dray runs                          what there is: labels, metrics, parameters that differ
    dray runs diff runs/a latest       in what two runs differ
    dray runs rm runs/a runs/b         remove runs

    DIRECTORY is a local path or s3://bucket/prefix; one that is named diff or rm is ./diff. A run is "lost" when it
    never ended and its process is gone.
    """
    from dataclasses import asdict
    from pathlib import Path

    from dray.runs.listing import list_runs
    from dray.runs.naming import DEFAULT_DIRECTORY
    from dray.runs.parameters import differing
    from dray.storage import StorageOptions

    if directory is None and not Path(DEFAULT_DIRECTORY).exists():
        found = []  # nothing has been trained here yet, which is not an error
    else:
        found = list_runs(directory or DEFAULT_DIRECTORY, StorageOptions(**storage))
    differ = differing([summary.parameters for summary in found if summary.parameters])
    if as_json:
        print_json({"runs": [{"name": one.name, **asdict(one)} for one in found], "differing": differ})
    elif not found:
        where = f"in {directory or DEFAULT_DIRECTORY}" if directory != "." else "here"
        human(f"No runs {where}. Make one: dray train DATA --label COLUMN")
    else:
        _print_table(found, differ)


def _names(options: StorageOptions) -> Names:
    from dray.runs.naming import Names

    return Names(options, lambda name, location: human(f"{name} is {location}"))


def _print_table(found: list[RunSummary], differ: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dray.events.format import brief, duration
    from dray.events.sinks.console import SafeConsole

    # A pipe has no width: lines are not cut.
    console = SafeConsole(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    narrow, tight = console.width < _WIDE, console.width < _NARROW
    table = Table(box=None, pad_edge=False, padding=(0, 1 if narrow else 2, 0, 0), header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("label", no_wrap=True, overflow="ellipsis", max_width=_LABEL_WIDTH if narrow else None)
    table.add_column("metric", no_wrap=True)
    if differ and not narrow:
        table.add_column("differs", overflow="fold", min_width=_DIFFERS_WIDTH)
    for name in ("status", "when"):
        table.add_column(name, no_wrap=True)
    for name in () if tight else ("rows", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for summary in found:
        table.add_row(
            Text(summary.name),
            Text(summary.label or ""),
            Text(_metric(summary)),
            *([Text(_differing(summary, differ))] if differ and not narrow else []),
            Text(summary.status, style=_STYLES.get(summary.status, "")),
            _when(summary.started),
            *([] if tight else [_or_nothing(brief, summary.rows), _or_nothing(duration, summary.seconds)]),
        )
    console.print(table)
    for summary in found if narrow else ():
        if own := _differing(summary, differ):
            console.print(Text(f"{summary.name}: {own}"))
    for summary in (summary for summary in found if summary.problem):
        console.print(Text(f"{summary.name} ({summary.status}): {summary.problem}", style="dim"))


def _or_nothing(written: Callable[[Any], str], value: Any) -> str:
    return "" if value is None else written(value)


def _differing(summary: RunSummary, keys: Sequence[str]) -> str:
    """Return "max_depth 6, eta 0.3": the run's own values of what differs between the listed runs."""
    from dray.runs.parameters import short

    own = summary.parameters or {}
    models = [summary.model] if "model" in keys and summary.model else []
    return ", ".join([*models, *(f"{key} {short(own[key])}" for key in keys if key in own and key != "model")])


def _metric(summary: RunSummary) -> str:
    """Return the metric that says how good a run is: of evaluation rows if there are any; the summary has all."""
    from dray.events.epochs import deciding_metric
    from dray.events.format import metric
    from dray.learners.recommender import recommends
    from dray.learners.registry import available

    metrics = summary.metrics or {}
    recommenders = [learner.name for learner in available() if recommends(learner)]
    evaluated = [name for name in metrics if name.startswith("eval-")] or list(metrics)
    names = deciding_metric(metrics) if summary.model in recommenders else evaluated[:1]
    return ", ".join(f"{name} {metric(metrics[name])}" for name in names)


def _when(started: str | None) -> str:
    """Return the time of day here, with the date; of another year, the date."""
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(started or "").astimezone()
    except ValueError:
        return ""
    return f"{moment:%d %b %H:%M}" if moment.year == datetime.now().astimezone().year else f"{moment:%d %b %Y}"


def _print_differences(a: str, b: str, found: Sequence[Difference]) -> None:
    from rich.table import Table
    from rich.text import Text

    from dray.events.sinks.console import SafeConsole
    from dray.runs.comparing import SECTIONS
    from dray.runs.parameters import short

    if not found:
        say(f"{a} and {b}: nothing differs.")
        return
    console = SafeConsole(highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", short(a), short(b)):
        table.add_column(Text(name), overflow="fold")
    for section in SECTIONS:
        own = [difference for difference in found if difference.section == section]
        table.add_row(Text(section, style="bold"), *([] if own else [Text("nothing differs", style="dim")]))
        for difference in own:
            table.add_row(Text(f"  {difference.what}"), Text(_value(difference.a)), Text(_value(difference.b)))
    console.print(table)


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
