"""Events as they were written by this version of dray, an older or a newer one.

A job's head may run another version than the machine that follows the job. What this version does not know is kept as
an `UnknownEvent`: every sink gets it, and the views show it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dray.events.kinds import KINDS, Event, UnknownEvent


def read_event(time: float, kind: str, data: Mapping[str, Any]) -> Event:
    """Return the event with these fields; one with other fields than this version knows is an `UnknownEvent`, too.

    Fields that came with a later version are passed over.
    """
    if kind in KINDS:
        reader, names = _reader(kind)
        with suppress(ValidationError):
            known = {names[name]: value for name, value in data.items() if name in names}
            event: Event = reader.validate_python({**known, "time": time})
            return event
    return UnknownEvent(kind, data, time=time)


@cache
def _reader(kind: str) -> tuple[TypeAdapter[Event], dict[str, str]]:
    """Return what checks the types of the fields, and the fields by their names on disk."""
    names = [entry.name for entry in fields(KINDS[kind]) if entry.name != "time"]
    return TypeAdapter(KINDS[kind]), {name.rstrip("_"): name for name in names}
