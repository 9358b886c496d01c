"""The console that everything is drawn on: what rich itself sends steers the terminal, what is drawn never does."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dray.events.visible import visible


class SafeConsole(Console):
    """A console that shows text with its control characters made visible, whatever it is a part of."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
