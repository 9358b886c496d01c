"""Events for tests, from what matters of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

from dray.events.kinds import KINDS, Event, PastStep, WorkerPace

_PARTS = {("round", "workers"): WorkerPace, ("resumed", "rounds"): PastStep}


def made_event(time: float, kind: str, data: Mapping[str, Any]) -> Event:
    """Return an event by its kind and its fields on disk; those that are left out are 0, empty or None."""
    event = KINDS[kind]
    hints = get_type_hints(event)
    given: dict[str, Any] = {
        field.name: _nothing(hints[field.name])
        for field in dataclasses.fields(event)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    for name, value in data.items():
        part = _PARTS.get((kind, name))
        given["from_" if name == "from" else name] = value if part is None else [part(**entry) for entry in value]
    return event(**given, time=time)


def _nothing(hint: Any) -> Any:
    if type(None) in get_args(hint):
        return None
    return {"Mapping": dict, "Sequence": list}.get(getattr(hint, "__name__", ""), get_origin(hint) or hint)()
