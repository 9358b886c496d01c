"""Whatever a job prints, whoever follows it neither crashes nor grows."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dray.errors import DrayError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.jobs import marks
from dray.jobs.attend import Outcome
from dray.jobs.client import JobInfo
from dray.jobs.commands.training import Resume
from dray.jobs.marks import MARK, Reader, mark
from dray.jobs.relay import Relay
from dray.jobs.remote import Listener, read_result

EVENT = {"time": 1.0, "kind": "round", "data": {"round": 1, "metrics": {}}}
REAL: list[dict[str, Any]] = [
    {"versions": {"dray": "1", "ray": "2"}},
    {"events": [EVENT], "samples": [{"time": 1.0, "worker": 0}]},
    {"time_limit": 60},
    {"result": {"learner": "xgboost", "model": "run/model.ubj", "directory": "/nowhere"}},
    {"error": {"type": "DataError", "what": "w", "fix": "f", "exit_code": 2}},
]
ODD: list[Any] = [None, True, -1, 1e400, float("nan"), 10**400, "", "x", [], [[]], [None], {}, {"": None}, [3], [{}]]


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def changed(document: Any, chance: random.Random) -> Any:
    """The document with one value of it, at any depth, replaced by something else."""
    if isinstance(document, dict | list) and document and chance.random() < 0.8:
        key = chance.choice(list(document) if isinstance(document, dict) else range(len(document)))
        copy: Any = dict(document) if isinstance(document, dict) else list(document)
        copy[key] = changed(document[key], chance)
        return copy
    return chance.choice(ODD)


def test_marked_lines_with_other_values_than_drays_are_passed_over() -> None:
    chance = random.Random(0)
    kept = Kept()
    listener, reader = Listener(Relay([kept])), Reader()
    for _ in range(2000):
        outcome = Outcome("dray-1", info=JobInfo("dray-1", "FAILED"))
        document = changed(chance.choice(REAL), chance)
        line = f"{MARK}{json.dumps(document)}\n"
        if chance.random() < 0.3:
            at = chance.randrange(len(line))
            line = line[:at] + chance.choice(["\n", "\x00", MARK, "{", "é", ""]) + line[at + 1 :]
        for part in [*reader.feed(line), *reader.rest()]:
            listener(part)
            if isinstance(part, dict):
                outcome.hear(part)
        assert outcome.failure("") is None or isinstance(outcome.failure(""), DrayError)
        if outcome.result is not None:
            with pytest.raises(DrayError):
                read_result(Resume(run="run", cluster="demo"), outcome)
    listener({"events": [EVENT]})
    assert kept.events[-1].kind == "round"


def test_a_document_that_is_nested_too_deep_is_a_line() -> None:
    line = MARK + "[" * 100_000
    assert list(Reader().feed(f"{line}\n")) == [line]


def test_a_line_without_an_end_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "LONGEST_LINE", 1000)
    reader = Reader()
    parts = [part for _ in range(100) for part in reader.feed("x" * 100)]
    assert len(parts) == 9
    assert "".join(str(part) for part in [*parts, *reader.rest()]) == "x" * 10_000
    assert list(reader.feed(mark({"result": {}}))) == [{"result": {}}]
