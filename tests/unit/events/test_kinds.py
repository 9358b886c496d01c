"""One class an event, and its form on disk."""

from __future__ import annotations

import dataclasses
import inspect
import time

from dray.events import kinds
from dray.events.kinds import KINDS, DataFound, Event, PastStep, PhaseStarted, RunResumed, UnknownEvent, WorkerLost


def test_every_event_is_known_by_its_kind() -> None:
    events = [found for _, found in inspect.getmembers(kinds, inspect.isclass) if issubclass(found, Event)]
    assert set(KINDS.values()) == set(events) - {Event, UnknownEvent}
    assert all(event.kind == kind for kind, event in KINDS.items())


def test_an_event_is_frozen_and_has_no_other_attributes_than_its_fields() -> None:
    for event in KINDS.values():
        assert event.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert "__dict__" not in dir(event)


def test_an_event_has_the_time_of_its_making() -> None:
    before = time.time()
    assert before <= PhaseStarted("load").time <= time.time()
    assert PhaseStarted("load", time=3.0).time == 3.0


def test_what_is_optional_and_not_known_is_left_out_on_disk() -> None:
    assert DataFound(rows=1, files=2, row_groups=3, bytes=4).data == {
        "rows": 1,
        "files": 2,
        "row_groups": 3,
        "bytes": 4,
    }
    lost = WorkerLost(1, host=None, pid=None, cause="killed", noticed_after_s=0.1, round=3, phase="train")
    assert lost.data["host"] is None
    assert "detail" not in lost.data


def test_a_field_that_python_cannot_name_has_its_name_on_disk() -> None:
    assert RunResumed(round=1, rounds=[PastStep(1, {})], from_="runs/a").data["from"] == "runs/a"
    assert {field.name for field in dataclasses.fields(RunResumed)} == {"time", "round", "rounds", "from_"}
