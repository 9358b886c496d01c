"""The lines by which a job speaks to the process that follows it, among everything else that it prints. Pure.

A marked line is one JSON document behind a sign that no program prints by accident:

    {"versions": {...}}                      what runs there
    {"events": [...], "samples": [...]}      steps and measurements of a run
    {"time_limit": 60}                       the job is being ended
    {"result": {...}} or {"error": {...}}    the last one

`ray job logs` shows them as they are; dray turns them into what a run at home would have shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dray.events.telemetry import dumps

MARK = "\x1e@dray "
"""Begins with the record separator of RFC 7464; start.py has a copy."""

LONGEST_LINE = 16 << 20
"""Characters; a longer line is cut."""

Part = str | dict[str, Any]
"""A line of the log, or what a marked one says."""


def mark(document: Mapping[str, Any]) -> str:
    return f"{MARK}{dumps(document)}\n"


class Reader:
    """Turns the pieces in which a log arrives into lines and documents."""

    def __init__(self) -> None:
        self._begun: list[str] = []
        self._length = 0

    def feed(self, text: str) -> Iterator[Part]:
        # Not splitlines(): for it the separator in the mark ends a line.
        first, *lines = text.split("\n")
        self._keep(first)
        for line in lines:
            yield from self._whole()
            self._keep(line)
        if self._length > LONGEST_LINE:
            yield from self.rest()

    def rest(self) -> Iterator[Part]:
        """What comes after the last line end, once there is no more, or too much for a line."""
        if self._length:
            yield from self._whole()

    def _whole(self) -> Iterator[Part]:
        line, self._begun, self._length = "".join(self._begun), [], 0
        yield from _parts(line)

    def _keep(self, text: str) -> None:
        self._begun.append(text)
        self._length += len(text)


def _parts(line: str) -> Iterator[Part]:
    """A library may have printed half a line before: that is a line of its own."""
    before, found, behind = line.partition(MARK)
    if not found:
        yield line
        return
    if before:
        yield before
    try:
        document = json.loads(behind)
    except (ValueError, RecursionError):  # a process that was killed while it wrote, or something else's line
        document = None
    yield document if isinstance(document, dict) else line
