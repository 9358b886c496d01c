"""A run from its first event to its last, around any session: the beginning and the end are the same for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import datasets
import dray
from dray.config.run_file import RunConfig
from dray.elastic.checkpoint_writer import CheckpointWriter
from dray.elastic.stopped import RunStopped
from dray.errors import ConfigError, DrayError
from dray.events.kinds import StepFinished
from dray.events.telemetry import Telemetry
from dray.learners.baseline import NO_BASELINE, Baseline
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.configs import make_config
from dray.learners.factorization.learner import FACTORIZATION
from dray.learners.factorization.result import FactorResult
from dray.learners.result import Identity
from dray.runs.directory import RunDirectory, open_run
from dray.storage import DEFAULT, StorageOptions
from dray.training import checks
from dray.training import run as running
from dray.training.resume import resume
from dray.training.run_data import RunData
from dray.training.train import train, versions
from fake_group import Recorder, make_membership

EPOCHS = 4


@dataclass(frozen=True)
class FakeModel:
    """What the epochs came to."""

    letters: bytes
    baseline: ClassVar[Baseline] = NO_BASELINE
    metrics: ClassVar[dict[str, float]] = {}

    def save(self, directory: RunDirectory) -> None:
        directory.write_bytes("model/model.json", self.letters)

    def result(self, directory: RunDirectory, common: Mapping[str, Any]) -> FactorResult:
        own = {"objective": "implicit", "rows": 6, "eval_rows": 0, "pairs": 6, "users": 3, "items": 2, "factors": 4}
        rounds = len(self.letters)
        return FactorResult(
            **common,
            **own,
            model=directory.path("model"),
            model_digest=self.letters.decode(),
            rounds=rounds,
            best_round=rounds,
            metrics={},
            identity=Identity(True, ""),
            storage=DEFAULT,
        )


class FakeSession:
    """Epochs without any learning: each adds a letter to the model. Stops after `stop_after` when that is set."""

    stop_after: int | None = None
    workers, threads, recovery_s, rows_reloaded = 0, (), 0.0, 0

    def __init__(
        self,
        config: RunConfig,
        storage: StorageOptions,
        telemetry: Telemetry,
        data: RunData,
        *,
        latest: Checkpoint,
        on_start: Callable[[Any], None],
    ) -> None:
        self.config = config
        self.telemetry = telemetry
        self.begun = False
        self.times = [0.0, 0.0, 0.0, 0.0]
        self.membership, _, _ = make_membership(1)
        self.opened_at = latest
        on_start(self.membership)
        self.closed = False
        data.note(data.open(config.data, lambda schema: None), None)

    def train(self, *, writer: CheckpointWriter, last: bool) -> FakeModel:
        assert last and writer.latest == self.opened_at
        self.begun = True
        latest = writer.latest
        for number in range(latest.round + 1, self.config.rounds + 1):
            done = Step(number, 0.1, {"train-rmse": 1 / number})
            latest = Checkpoint(number, (latest.model or b"") + b"e", (*latest.rounds, done))
            writer.offer(latest)
            self.telemetry.emit(
                StepFinished(round=number, rounds=self.config.rounds, seconds=0.1, metrics=done.metrics)
            )
            if number == self.stop_after:
                raise RunStopped("Too few workers.", fix="dray resume goes on.")
        return FakeModel(latest.model or b"")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> type[FakeSession]:
    monkeypatch.setattr(running, "Session", FakeSession)
    monkeypatch.setattr(FakeSession, "stop_after", None)
    return FakeSession


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"u": ["a", "a", "b", "b", "c", "c"], "i": [1, 2, 1, 2, 1, 2]})
    return datasets.write(tmp_path / "data", table, files=1)


def values(data: str, **changes: Any) -> dict[str, Any]:
    usual = {"data": data, "model": "factorization", "user": "u", "item": "i", "rounds": EPOCHS, "workers": 0}
    return usual | {"out": "run"} | changes


def test_a_run_is_one_session_and_what_it_came_to(session: type[FakeSession], data: str) -> None:
    told = Recorder()
    result = train(make_config(values(data)), [told])
    assert isinstance(result, FactorResult)
    assert (result.learner, result.objective, result.model_digest) == ("factorization", "implicit", "e" * EPOCHS)
    document = open_run("run").document
    assert (document["status"], document["config"]["model"]) == ("finished", "factorization")
    assert document["result"] == json.loads(json.dumps(result.to_json()))
    assert document["versions"]["numba"] == version("numba")
    assert not Path("run/checkpoints").exists()


def test_python_takes_the_keys_of_the_run_file(session: type[FakeSession], data: str) -> None:
    result = dray.train(data, user="u", item="i", model="factorization", rounds=1)
    assert isinstance(result, FactorResult)
    assert result.rounds == 1


def test_one_that_stopped_goes_on_from_its_checkpoint(
    session: type[FakeSession], data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "stop_after", 2)
    with pytest.raises(RunStopped):
        train(make_config(values(data)))
    assert open_run("run").document["status"] == "stopped"
    assert [path.name for path in sorted(Path("run/checkpoints").iterdir())] == ["latest.json", "round-000002.model"]
    monkeypatch.setattr(session, "stop_after", None)
    told = Recorder()
    result = resume("run", DEFAULT, {}, [told])
    assert result.model_digest == "e" * EPOCHS
    assert [data["round"] for data in told.of("round")] == [3, 4]


def test_another_numba_is_a_warning_when_it_goes_on(
    session: type[FakeSession], data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "stop_after", 2)
    with pytest.raises(RunStopped):
        train(make_config(values(data)))
    document = json.loads(Path("run/run.json").read_text())
    document["versions"]["numba"] = "0.1"
    Path("run/run.json").write_text(json.dumps(document))
    monkeypatch.setattr(session, "stop_after", None)
    assert "numba was 0.1 when the run began" in resume("run", DEFAULT, {}).warnings[0]


def test_a_finished_one_says_how_to_use_it(session: type[FakeSession], data: str) -> None:
    train(make_config(values(data)))
    with pytest.raises(DrayError, match=r"dray recommend run \.\.\."):
        resume("run", DEFAULT, {})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"params": {"factor": 3}}, 'no parameter "factor".*Did you mean "factors"'),
        ({"params": {"learning_rate": 0.1}}, "is for explicit ratings"),
        ({"rating": "i2", "params": {"alpha": 1}}, "is for events"),
        ({"params": {"max_depth": 3}}, "max_depth"),
    ],
)
def test_wrong_params_leave_no_run_directory(data: str, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        train(make_config(values(data, **changes)))
    assert not Path("run").exists()


def test_without_numba_nothing_begins(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"dray\[recommend\]"):
        train(make_config(values(data)))
    assert not Path("run").exists()


def test_versions_name_the_learners_library_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"xgboost", "numpy"} <= versions("xgboost").keys()
    assert "numba" not in versions("xgboost")
    assert "xgboost" not in versions("factorization")
    monkeypatch.setattr(FACTORIZATION, "library", "not-installed-at-all")
    assert "not-installed-at-all" not in versions("factorization")
