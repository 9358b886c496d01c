"""The way of events to the sinks."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from dray.errors import StorageError
from dray.events.kinds import Event, PhaseStarted, StepFinished, WorkerPace
from dray.events.telemetry import Sample, Telemetry, dumps, to_line


class Memory:
    """A sink that remembers, and fails on request."""

    def __init__(self, fail_on: str | None = None, error: Exception | None = None) -> None:
        self.events: list[Event] = []
        self.samples: list[Sample] = []
        self.closed = 0
        self.fail_on = fail_on
        self.error = error or RuntimeError("sink is broken")

    def event(self, event: Event) -> None:
        if event.kind == self.fail_on:
            raise self.error
        self.events.append(event)

    def sample(self, samples: list[Sample]) -> None:
        if self.fail_on == "sample":
            raise self.error
        self.samples += samples

    def close(self) -> None:
        self.closed += 1
        if self.fail_on == "close":
            raise self.error

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


SAMPLE = Sample(1.0, 0, "host", 1.0, 2, 3.0, 4, 5)


def test_every_sink_gets_events_and_samples_and_is_closed_once() -> None:
    sinks = [Memory(), Memory()]
    telemetry = Telemetry(sinks)
    assert telemetry.emit(PhaseStarted("load")).data == {"name": "load"}
    telemetry.sample([SAMPLE])
    telemetry.close()
    telemetry.close()
    telemetry.emit(PhaseStarted("late"))
    for sink in sinks:
        assert (sink.kinds, sink.samples, sink.closed) == (["phase"], [SAMPLE], 1)


@pytest.mark.parametrize("fail_on", ["round", "sample"])
def test_a_sink_that_fails_is_dropped_and_the_others_are_warned(fail_on: str) -> None:
    broken = Memory(fail_on, StorageError("The disk is full.", fix="Free space."))
    healthy = Memory()
    telemetry = Telemetry([broken, healthy])
    telemetry.emit(StepFinished(1, None, None, {}))
    telemetry.sample([SAMPLE])
    telemetry.emit(StepFinished(2, None, None, {}))
    [warning] = [event for event in healthy.events if event.kind == "warning"]
    assert "The disk is full." in warning.data["message"]
    assert warning.data["fix"] == "Free space."
    assert healthy.kinds.count("round") == 2
    assert broken.closed == 1
    assert "warning" not in broken.kinds


def test_a_sink_that_fails_to_close_is_told_to_those_still_open() -> None:
    healthy = Memory()
    Telemetry([Memory("close"), healthy]).close()
    assert healthy.kinds == ["warning"]
    assert healthy.closed == 1


def test_when_all_sinks_fail_the_run_goes_on() -> None:
    telemetry = Telemetry([Memory("round"), Memory("warning"), Memory("round")])
    telemetry.emit(StepFinished(1, None, None, {}))
    telemetry.emit(StepFinished(2, None, None, {}))


def test_many_threads_may_report() -> None:
    sink = Memory()
    telemetry = Telemetry([sink])
    threads = [
        threading.Thread(target=lambda: [telemetry.emit(StepFinished(i, None, None, {})) for i in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sink.events) == 800


def test_an_event_is_one_line_of_strict_json() -> None:
    metrics = {"auc": np.float32(0.5), "loss": float("nan")}
    line = to_line(StepFinished(1, 9, 0.5, metrics, workers=[WorkerPace(0, "a", 7.0)], time=12.3456))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": 12.346,
        "kind": "round",
        "round": 1,
        "rounds": 9,
        "seconds": 0.5,
        "metrics": {"auc": 0.5, "loss": None},
        "workers": [{"worker": 0, "host": "a", "rows_per_second": 7.0}],
    }


def test_a_secret_of_the_environment_never_reaches_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecretkey")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "sessiontoken")
    text = dumps({"config": "a topsecretkey and a sessiontoken"})
    assert json.loads(text) == {"config": "a *** and a ***"}
