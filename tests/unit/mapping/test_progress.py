"""How a map tells its progress, with and without a known end."""

from __future__ import annotations

import io

from rich.console import Console

from dray.events.kinds import Event
from dray.events.run_view import RunView
from dray.events.sinks.live import view
from dray.events.sinks.terminal import PlainLines
from made_events import made_event


def events(total: int | None) -> list[Event]:
    return [
        made_event(1000.0, "phase", {"name": "map"}),
        made_event(1010.0, "progress", {"done": 250, "total": total, "unit": "items"}),
    ]


def lines(total: int | None) -> str:
    stream = io.StringIO()
    sink = PlainLines(stream)
    for event in events(total):
        sink.event(event)
    return stream.getvalue()


def picture(total: int | None) -> str:
    progress = RunView()
    for event in events(total):
        progress.event(event)
    console = Console(file=io.StringIO(), width=110, height=30)
    console.print(view(progress, 1010.0, console))
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return shown.getvalue()


def test_a_known_end_has_a_share_a_rate_and_the_time_left() -> None:
    assert "250 of 1,000 items (25%), 30.0 s left, 25 items/s" in lines(1000)
    shown = picture(1000)
    assert all(part in shown for part in ("250/1,000 items", "25%", "ETA 0:30", "25 items/s"))


def test_without_an_end_there_is_a_count_and_a_rate() -> None:
    assert lines(None).endswith("250 items, 25 items/s\n")
    shown = picture(None)
    assert "250 items" in shown
    assert "25 items/s" in shown
    assert "%" not in shown
