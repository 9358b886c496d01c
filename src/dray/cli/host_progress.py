"""Progress of hosts or pods: on a terminal one line each, updated in place; elsewhere a line for each step."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dray.cli.output import human
from dray.events.format import duration

if TYPE_CHECKING:
    from dray.clusters.provider import State, Tell

_MARKS = {"waiting": "·", "working": "…", "done": "✓", "failed": "✗"}
_STYLES = {"waiting": "dim", "working": "yellow", "done": "green", "failed": "red"}


@contextmanager
def host_progress(quiet: bool) -> Iterator[Tell]:
    """Yield the function that receives the progress of hosts; any thread may call it."""
    if quiet:
        yield lambda _host, _state, _words: None
    elif sys.stderr.isatty():
        with _in_place() as tell:
            yield tell
    else:
        yield _lines()


def _lines() -> Tell:
    begun = time.monotonic()
    said: dict[str, tuple[str, str]] = {}
    lock = threading.Lock()

    def tell(host: str, state: State, words: str) -> None:
        with lock:
            if said.get(host) != (state, words):
                said[host] = (state, words)
                human(f"{duration(time.monotonic() - begun):>7}  {host}: {words or state}")

    return tell


@contextmanager
def _in_place() -> Iterator[Tell]:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from dray.events.sinks.console import SafeConsole

    begun = time.monotonic()
    rows: dict[str, tuple[str, str, float]] = {}
    lock = threading.Lock()

    def drawn() -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        with lock:
            for host, (state, words, at) in rows.items():
                mark = Text(f"{_MARKS[state]} {host}", style=_STYLES[state])
                table.add_row(mark, Text(words or state), Text(duration(at - begun), style="dim"))
        return table

    def tell(host: str, state: State, words: str) -> None:
        with lock:
            rows[host] = (state, words, time.monotonic())

    with Live(console=SafeConsole(stderr=True), get_renderable=drawn, refresh_per_second=8):
        yield tell
