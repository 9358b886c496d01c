"""What a run elsewhere told reaches the sinks here."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest

from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.jobs import there
from dray.jobs.marks import Reader
from dray.jobs.relay import Relay
from dray.jobs.remote import differing
from made_events import made_event


class Kept:
    def __init__(self, *, broken: bool = False) -> None:
        self.events: list[Event] = []
        self.samples: list[Sample] = []
        self.closed = 0
        self._broken = broken

    def event(self, event: Event) -> None:
        if self._broken:
            raise OSError("full")
        self.events.append(event)

    def sample(self, samples: list[Sample]) -> None:
        self.samples += samples

    def close(self) -> None:
        self.closed += 1


def sample(worker: int, moment: float) -> Sample:
    return Sample(moment, worker, "host", 1.0, 2, 3.0, 4, 5)


def test_what_a_sink_there_prints_is_what_a_sink_here_hears(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines, now = there.Lines(), time.time()
    told = [made_event(now, "run_started", {"run": "r"}), *(made_event(now, "round", {"round": n}) for n in range(50))]
    for event in told:
        lines.event(event)
    lines.sample([sample(0, now), sample(1, now)])
    lines.close()
    kept = Kept()
    relay = Relay([kept])
    documents = list(Reader().feed(capfd.readouterr().out))
    for document in documents:
        assert isinstance(document, dict)
        relay.hear(document)
    assert kept.events == told
    assert kept.samples == [sample(0, now), sample(1, now)]
    assert len(documents) < 10


def test_progress_is_thinned_out_by_worker(capfd: pytest.CaptureFixture[str]) -> None:
    lines = there.Lines()
    for tenth in range(20):
        for worker in (0, 1):
            lines.event(made_event(tenth / 10, "worker_progress", {"worker": worker, "rows": tenth}))
    assert len(list(Reader().feed(capfd.readouterr().out))) <= 4


def test_a_clock_that_is_far_off_is_set_right() -> None:
    kept = Kept()
    relay = Relay([kept])
    past = time.time() - 7200
    relay.hear({"events": [{"time": past, "kind": "a", "data": {}}, {"time": past + 5, "kind": "b", "data": {}}]})
    relay.hear({"samples": [asdict(sample(0, past + 6))]})
    first, second = kept.events
    assert abs(first.time - time.time()) < 5
    assert second.time - first.time == pytest.approx(5)
    assert kept.samples[0].time - first.time == pytest.approx(6)


def test_a_sink_that_fails_is_dropped_and_the_others_hear_on() -> None:
    broken, kept = Kept(broken=True), Kept()
    relay = Relay([broken, kept])
    relay.warn("one")
    relay.warn("two")
    relay.close()
    assert broken.closed == 1
    assert [event.data["message"] for event in kept.events] == ["one", "two"]
    assert kept.closed == 1


def test_versions_that_differ_are_named() -> None:
    here = {"xgboost": "3.1.0", "ray": "2.60.0", "python": "3.11.7"}
    assert differing(here, here | {"pyarrow": "1"}) == ""
    assert differing(here, here | {"xgboost": "3.2.0"}) == "The cluster has xgboost 3.2.0 (here 3.1.0)."
