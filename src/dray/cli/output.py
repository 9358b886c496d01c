"""What commands print: one JSON document on stdout, words for people on stderr.

Nothing is imported at the top that `dray --help` does not need.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import IO, TYPE_CHECKING, Any

import click

from dray.events.format import duration
from dray.events.visible import visible, visible_log
from dray.masking import masked

if TYPE_CHECKING:
    from dray.events.telemetry import Sink

Progress = Callable[[int, int], None]
"""Hears how much is done, and of how much."""

_LINE_EVERY_S = 5.0


def print_json(document: Any, show: Callable[[str], str] = masked) -> None:
    """Print a document, or a dataclass as one, on stdout: the only thing a command writes there with --json.

    With `show=str` texts stay as they are: values of data are answers, whatever they look like.
    """
    from dray.events.telemetry import dumps

    if is_dataclass(document) and not isinstance(document, type):
        document = asdict(document)
    try:
        # Before the writing: a value that JSON has no word for must not leave half a document.
        text = dumps(document, indent=2, show=show)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`| head`). Python would complain once more when it flushes stdout at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def human(text: str) -> None:
    """Print words for people on stderr, with passwords masked and control characters made visible."""
    sys.stderr.write(visible(masked(text)) + "\n")
    sys.stderr.flush()


def shown_on_stderr(quiet: bool) -> list[Sink]:
    """Return the sinks that show what a command does, live on a terminal; none if it is to be quiet."""
    if quiet:
        return []
    from dray.events.sinks.terminal import terminal

    return [terminal(sys.stderr, live=sys.stderr.isatty())]


def print_of_function(text: str, _to_stderr: bool) -> None:
    """Print what a function of the user's prints on stderr: stdout belongs to the result."""
    sys.stderr.write(text)
    sys.stderr.flush()


def say(text: str) -> None:
    """Print a line of what was asked for on stdout, in the same way."""
    click.echo(visible(masked(text)))


def log_line(line: str, stream: IO[str] | None = None) -> None:
    """Print a line of a log, on stdout unless told otherwise: without colours, control characters visible."""
    click.echo(visible_log(line), file=stream)


@contextmanager
def progress(doing: str, unit: str) -> Iterator[Progress]:
    """Show how far the work is: a bar with the time left on a terminal, a line every few seconds elsewhere."""
    if sys.stderr.isatty():
        with _bar(doing, unit) as report:
            yield report
    else:
        yield _lines(doing, unit)


@contextmanager
def _bar(doing: str, unit: str) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from dray.events.sinks.console import SafeConsole

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=SafeConsole(stderr=True)) as bar:
        task = bar.add_task(doing, total=None, speed="")
        begun = time.monotonic()

        def report(done: int, total: int) -> None:
            rate = done / max(time.monotonic() - begun, 1e-3)
            bar.update(task, completed=done, total=total, speed=f"{rate:,.0f} {unit}/s")

        yield report


def _lines(doing: str, unit: str) -> Progress:
    said = time.monotonic()
    first: tuple[float, int] | None = None

    def report(done: int, total: int) -> None:
        nonlocal said, first
        now = time.monotonic()
        # Counted from the first report: what came before it is start-up, which does not come again.
        first = first or (now, done)
        if done > first[1] and now - said >= _LINE_EVERY_S:
            said = now
            left = (now - first[0]) / (done - first[1]) * (total - done)
            more = f", {duration(left)} left" if done < total else ""
            human(f"{doing}: {done:,} of {total:,} {unit} ({done / total:.0%}){more}")

    return report
