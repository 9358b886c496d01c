"""The contract of a learner (`dray.learners.learner.Learner`): inherit from `LearnerContract` and describe one.

    class TestMine(LearnerContract):
        def values(self, folder: Path) -> dict[str, Any]:
            return {"model": "mine", "data": ..., "label": "y", "workers": 0}

Trainings run in this process and on the Ray cluster that it is connected to, which needs three CPUs and should have one
node; workers are really killed and frozen. Nothing here knows a learner.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.elastic import keyed_units, row_shards
from dray.elastic.ray_group import RayGroup
from dray.errors import DrayError, WorkerError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.learners.configs import make_config
from dray.learners.registry import find
from dray.learners.result import RunResult
from dray.learners.shard import Shard
from dray.storage import DEFAULT
from dray.training.session import Session, open_session
from dray.training.train import train

Settings = Mapping[str, Any]


class At:
    """A sink that acts once, when the nth event of a kind comes; it keeps all events and the workers' pids."""

    def __init__(self, kind: str, act: Callable[[At], None], *, times: int = 1, **fields: Any) -> None:
        self._kind, self._act, self._fields, self._left = kind, act, fields, times
        self.events: list[Event] = []
        self.pids: dict[int, int] = {}

    @property
    def has_happened(self) -> bool:
        return self._left <= 0

    def event(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "worker_started":
            self.pids[event.data["worker"]] = event.data["pid"]
        if event.kind == self._kind and self._fields.items() <= event.data.items():
            self._left -= 1
            if self._left == 0:
                self._act(self)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.kind == kind]


def send(number: int, worker: int = 1) -> Callable[[At], None]:
    """Send a signal to a worker's process."""
    return lambda sink: os.kill(sink.pids[worker], number)


BEGUN = ("phase", {"name": "train"})
"""The event with which a fit begins."""


def shuffled(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    mixed = list(range(len(rows)))
    random.Random(1).shuffle(mixed)
    return [tuple(sorted(mixed[worker::workers])) for worker in range(workers)]


def nearly_all_on_the_last(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    ends = [min(end, len(rows)) for end in (*range(1, workers), len(rows))]
    return [tuple(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def what_matters(result: RunResult) -> tuple[Any, ...]:
    return (
        *(result.model_digest, result.metrics, result.best_round, result.rounds, result.rows, result.eval_rows),
        result.objective,
    )


class LearnerContract:
    """What every learner promises. A subclass overrides `values`, and what else differs."""

    other: ClassVar[Settings] = {}
    """Settings of `Learner.fit_fields` that give another model."""
    long: ClassVar[Settings] = {}
    """Settings that make a training last for a second or more, if the learner has such."""
    early: ClassVar[Settings | None] = None
    """Settings with which a training stops early; None if the learner cannot, and refuses it."""
    bad: ClassVar[Sequence[tuple[Settings, str]]] = ()
    """Mistakes of a user's, each with what the error must say."""
    not_of_a_fit: ClassVar[Settings] = {"eval_fraction": 0.4}
    """A key that loaded data depends on."""

    def values(self, folder: Path) -> dict[str, Any]:
        """Write data of at least six row groups into the folder; return the keys of a run file, with an eval set."""
        raise NotImplementedError

    def measured(self, rows: pa.Table, prediction: npt.NDArray[Any]) -> dict[str, float]:
        """Return metrics of predictions for the evaluation rows, by their names in the result."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def given(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
        return cls().values(tmp_path_factory.mktemp("data"))

    @pytest.fixture(scope="class")
    @classmethod
    def alone(cls, given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
        """The run that all others are compared with: in one process, undisturbed."""
        return train(make_config({**given, "workers": 0, "out": str(tmp_path_factory.mktemp("runs") / "alone")}))

    @pytest.fixture(scope="class")
    @classmethod
    def long_alone(cls, given: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
        out = str(tmp_path_factory.mktemp("runs") / "alone")
        return train(make_config({**given, **cls.long, "workers": 0, "out": out}))

    @pytest.fixture
    def run(self, given: dict[str, Any], tmp_path: Path) -> Callable[..., RunResult]:
        def run(*sinks: At, **settings: Any) -> RunResult:
            out = str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}")
            return train(make_config({**given, "out": out, **settings}), sinks)

        return run

    # The same model everywhere

    @pytest.mark.parametrize("workers", [1, 2, 3])
    def test_workers_make_the_model_of_one_process(
        self, alone: RunResult, run: Callable[..., RunResult], workers: int
    ) -> None:
        result = run(workers=workers)
        assert what_matters(result) == what_matters(alone)
        assert result.identity.holds
        assert (result.learner, result.workers, result.failures) == (alone.learner, workers, 0)
        assert [proof.worker for proof in result.threads] == list(range(workers))

    @pytest.mark.parametrize("assigned", [shuffled, nearly_all_on_the_last])
    def test_it_does_not_matter_which_worker_holds_which_rows(
        self, alone: RunResult, run: Callable[..., RunResult], assigned: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(row_shards, "assign_evenly", assigned)
        monkeypatch.setattr(keyed_units, "evenly", lambda work, shards: _as_shards(assigned(work, shards)))
        monkeypatch.setattr(keyed_units, "neighbours", lambda work, shards: _as_shards(assigned(work, shards)))
        assert what_matters(run(workers=2)) == what_matters(alone)

    def test_another_setting_gives_another_model(self, alone: RunResult, run: Callable[..., RunResult]) -> None:
        assert run(workers=0, **self.other).model_digest != alone.model_digest  # or all that is above says nothing

    # Workers that are lost, freeze, leave and join

    @pytest.mark.parametrize("level", ["elastic", "shrink", "restart"])
    def test_a_worker_killed_when_training_begins_changes_nothing(
        self, alone: RunResult, run: Callable[..., RunResult], level: str
    ) -> None:
        sink = At(BEGUN[0], send(signal.SIGKILL), **BEGUN[1])
        result = run(sink, workers=2, on_failure=level)
        assert what_matters(result) == what_matters(alone)
        assert (result.failures, [event["worker"] for event in sink.of("worker_lost")]) == (1, [1])
        assert result.rows_reloaded

    def test_a_worker_killed_while_loading_changes_nothing(
        self, alone: RunResult, run: Callable[..., RunResult]
    ) -> None:
        sink = At("phase", send(signal.SIGKILL), name="load")
        assert what_matters(run(sink, workers=2)) == what_matters(alone)
        assert [event["worker"] for event in sink.of("worker_lost")] == [1]

    def test_a_worker_killed_in_a_step_costs_that_step(
        self, long_alone: RunResult, run: Callable[..., RunResult]
    ) -> None:
        sink = At("round", send(signal.SIGKILL, 0))
        result = run(sink, workers=2, **self.long)
        assert what_matters(result) == what_matters(long_alone)
        steps = [event["round"] for event in sink.of("round")]
        assert steps == sorted(steps)
        assert len(set(steps)) == result.rounds

    def test_a_frozen_worker_is_replaced(self, alone: RunResult, run: Callable[..., RunResult]) -> None:
        sink = At(BEGUN[0], send(signal.SIGSTOP), **BEGUN[1])
        result = run(sink, workers=2, heartbeat_s=2)
        assert what_matters(result) == what_matters(alone)
        assert [event["worker"] for event in sink.of("worker_lost")] == [1]
        assert "not answered" in sink.of("worker_lost")[0]["cause"]
        assert_gone(sink.pids.values())

    def test_a_worker_that_leaves_is_replaced_before_it_goes(
        self, long_alone: RunResult, run: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ray is not asked: worker 1 counts as one on a node that is drained, from the beginning of training on."""
        sink = At(BEGUN[0], lambda _: None, **BEGUN[1])
        leaving = RayGroup.leaving

        def drained(group: RayGroup) -> dict[int, str]:
            there = 1 in group._processes
            return leaving(group) | ({1: "its node is drained"} if sink.has_happened and there else {})

        monkeypatch.setattr(RayGroup, "leaving", drained)
        result = run(sink, workers={"min": 1, "max": 2}, **self.long)
        assert what_matters(result) == what_matters(long_alone)
        assert result.failures == 0
        if self.long:
            assert [event["worker"] for event in sink.of("left")] == [1]
            assert {event["worker"] for event in sink.of("worker_started")} == {0, 1, 2}
            [joined] = sink.of("joined")
            assert joined["worker"] == 2

    # Going on

    def test_a_stopped_run_is_resumed_to_the_same_model(
        self, long_alone: RunResult, given: dict[str, Any], tmp_path: Path
    ) -> None:
        sink = At("round" if self.long else BEGUN[0], send(signal.SIGKILL), **({} if self.long else BEGUN[1]))
        out = str(tmp_path / "run")
        with pytest.raises(WorkerError):
            train(make_config({**given, **self.long, "workers": 2, "on_failure": "stop", "out": out}), [sink])
        result = dray.resume(out, workers=0)
        assert what_matters(result) == what_matters(long_alone)

    def test_it_stops_early_in_the_same_step_everywhere(self, run: Callable[..., RunResult]) -> None:
        if self.early is None:
            with pytest.raises(DrayError, match="early_stop"):
                run(workers=0, early_stop=2)
            return
        alone, together = run(workers=0, **self.early), run(workers=2, **self.early)
        assert what_matters(together) == what_matters(alone)
        assert alone.best_round < alone.rounds < self.early["rounds"]

    # What is told

    def test_metrics_are_those_of_what_is_predicted(
        self, given: dict[str, Any], alone: RunResult, tmp_path: Path
    ) -> None:
        [location] = given["eval"]
        done = dray.predict(alone.directory, location, str(tmp_path / "out"))
        rows, predicted = pq.read_table(location), pq.read_table(tmp_path / "out")
        assert done.rows == len(rows) == len(predicted)
        found = self.measured(rows, predicted.column(0).to_numpy())
        assert found
        assert {name: alone.metrics[name] for name in found} == pytest.approx(found, rel=1e-5)

    def test_predictions_do_not_depend_on_workers(
        self, given: dict[str, Any], alone: RunResult, tmp_path: Path
    ) -> None:
        [location] = given["eval"]
        tables = []
        for workers in (0, 2):
            dray.predict(alone.directory, location, str(tmp_path / f"out-{workers}"), workers=workers)
            tables.append(pq.read_table(tmp_path / f"out-{workers}"))
        assert tables[0].equals(tables[1])

    def test_a_job_can_hand_over_its_result(self, alone: RunResult) -> None:
        told = find(alone.learner).result(alone.to_json(), DEFAULT)
        assert what_matters(told) == what_matters(alone)
        assert told.to_json() == alone.to_json()

    def test_bad_input_is_told_and_leaves_nothing(self, given: dict[str, Any], tmp_path: Path) -> None:
        for changes, words in [({"params": {"no_such_parameter": 1}}, "no_such_parameter|params"), *self.bad]:
            with pytest.raises(DrayError, match=words) as caught:
                config = make_config({**given, "out": str(tmp_path / "run"), **changes})
                train(config)
            assert caught.value.exit_code == 2
            assert caught.value.fix
            assert not (tmp_path / "run").exists()

    # Sessions

    @pytest.fixture(params=[0, 2], ids=["alone", "workers"])
    def session(self, given: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[Session]:
        with open_session(make_config({**given, "workers": request.param})) as session:
            yield session

    def test_fits_of_a_session_are_the_models_of_runs(
        self, session: Session, alone: RunResult, run: Callable[..., RunResult]
    ) -> None:
        other = run(workers=0, **self.other)
        fits = [session.fit(), session.fit(**self.other), session.fit()]
        assert [fit.model_digest for fit in fits] == [alone.model_digest, other.model_digest, alone.model_digest]
        assert [fit.metrics for fit in fits] == [alone.metrics, other.metrics, alone.metrics]
        assert [fit.rounds for fit in fits] == [alone.rounds, other.rounds, alone.rounds]

    def test_what_the_data_depends_on_does_not_change_within_a_session(self, session: Session) -> None:
        with pytest.raises(DrayError, match=next(iter(self.not_of_a_fit))) as caught:
            session.fit(**self.not_of_a_fit)
        assert "Open another session" in caught.value.fix

    def test_a_session_survives_losses_between_and_within_fits(self, given: dict[str, Any], alone: RunResult) -> None:
        sink = At(BEGUN[0], send(signal.SIGKILL, 0), times=3, **BEGUN[1])
        with open_session(make_config({**given, "workers": 2}), [sink]) as session:
            assert session.fit().model_digest == alone.model_digest
            os.kill(sink.pids[1], signal.SIGKILL)
            assert session.fit().model_digest == alone.model_digest
            assert session.fit().model_digest == alone.model_digest
        assert [event["worker"] for event in sink.of("worker_lost")] == [1, 0]
        assert_gone(sink.pids.values())

    def test_a_closed_session_says_so(self, given: dict[str, Any]) -> None:
        with open_session(make_config({**given, "workers": 0})) as session:
            pass
        with pytest.raises(DrayError, match="closed"):
            session.fit()


def assert_gone(pids: Iterable[int]) -> None:
    """Wait until no process is left of those."""
    deadline = time.monotonic() + 10
    while (left := [pid for pid in pids if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _as_shards(units: Sequence[tuple[int, ...]]) -> tuple[Shard, ...]:
    return tuple(Shard(base, own) for base, own in enumerate(units) if own)


def as_floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    return column.to_numpy().astype(np.float64)
