"""Training on Ray workers: the same model as in one process, whichever worker holds which rows."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

import datasets
import dray
from dray.config.run_file import RunConfig
from dray.elastic import row_shards
from dray.errors import WorkerError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.learners.configs import make_config
from dray.learners.xgboost.result import TrainResult
from dray.runs.directory import open_run
from dray.training import train as training
from living import asked

LONG = 800
"""Rounds, enough for something to happen meanwhile."""

pytestmark = pytest.mark.usefixtures("three_cpus")

TASKS: dict[str, tuple[Callable[[], pa.Table], dict[str, Any]]] = {
    "binary": (datasets.binary, {"weight": "weight"}),
    "multiclass": (datasets.multiclass, {}),
    "regression": (datasets.regression, {"weight": "weight"}),
    "ranking": (datasets.ranking, {"group": "query", "ignore": ["id", "weight"]}),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("data")
    return {name: datasets.write(root / name, make()) for name, (make, _) in TASKS.items()}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(data: dict[str, str], task: str, workers: int, **settings: Any) -> TrainResult:
    _, roles = TASKS[task]
    return dray.train(
        data[task], label="label", workers=workers, **{"ignore": ["id"], "rounds": 8, **roles, **settings}
    )


def what_matters(result: TrainResult) -> tuple[Any, ...]:
    return result.model_digest, result.metrics, result.best_round, result.rounds, result.rows, result.eval_rows


@pytest.mark.parametrize("task", TASKS)
def test_the_model_is_the_same_for_0_1_2_and_3_workers(data: dict[str, str], task: str) -> None:
    alone = run(data, task, 0, eval_fraction=0.2)
    assert alone.identity.holds
    assert alone.metrics
    for workers in (1, 2, 3):
        result = run(data, task, workers, eval_fraction=0.2)
        assert result.workers == workers
        assert result.objective == alone.objective
        assert result.identity.holds
        assert what_matters(result) == what_matters(alone), f"{workers} workers"


def test_labels_and_ids_as_they_are_found_give_the_same_model_on_workers(tmp_path: Path) -> None:
    """Two values with names of their own, some missing, a row group without any, ids beyond float32."""
    random = np.random.default_rng(5)
    place = random.integers(0, 40, 3_000)
    label = np.where(random.random(40)[place] < 0.5, -1.0, 1.0)
    label[random.random(3_000) < 0.1] = np.nan
    holes = np.zeros(3_000, np.bool_)
    holes[:250] = True
    ids = 2_053_013_552_226_107_603 + 31 * place
    table = pa.table({"id": ids, "x": random.normal(size=3_000), "y": pa.array(label, mask=holes)})
    where = datasets.write(tmp_path / "found", table)
    alone, together = (
        dray.train(where, label="y", rounds=8, eval_fraction=0.2, workers=workers, out=f"with-{workers}")
        for workers in (0, 2)
    )
    assert what_matters(alone) == what_matters(together)
    dropped = int((np.isnan(label) | holes).sum())
    for result in (alone, together):
        assert isinstance(result, TrainResult)
        assert result.positive_class == 1.0
        assert result.rows_dropped + result.eval_rows_dropped == dropped
        assert result.booster.feature_types == ["c", "q"]


def test_a_worker_without_a_row_to_train_on_changes_nothing(tmp_path: Path) -> None:
    """A file in which the label is NaN in every row, which no footer tells."""
    table = datasets.binary(900)
    labels = np.where(np.arange(900) < 300, np.nan, table["label"].to_numpy())
    for start in (0, 300, 600):
        part = datasets.replaced(table, label=labels).slice(start, 300)
        datasets.write(tmp_path / "data" / str(start), part, files=1, row_group_rows=300)
    alone, together = (
        dray.train(
            str(tmp_path / "data"), label="label", ignore=["id"], rounds=8, eval_fraction=0.2, workers=workers, out=out
        )
        for workers, out in ((0, "alone"), (3, "together"))
    )
    assert what_matters(alone) == what_matters(together)
    assert together.rows_dropped + together.eval_rows_dropped == 300
    lines = Path("together", "events.jsonl").read_text().splitlines()
    assert 0 in [event["rows"] for event in map(json.loads, lines) if event["kind"] == "worker_loaded"]


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("binary", {"eval_fraction": 0.3, "early_stop": 2, "rounds": 60, "params": {"eta": 0.9}}),
        ("multiclass", {"params": {"colsample_bytree": 0.5, "colsample_bynode": 0.7}}),
        ("binary", {"params": {"booster": "dart", "rate_drop": 0.3}, "eval_fraction": 0.2}),
        ("regression", {"params": {"num_parallel_tree": 3}}),
        ("binary", {"params": {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0}}),
        ("regression", {"params": {"max_bin": 512}, "weight": None}),
    ],
    ids=["early stopping", "column sampling", "dart", "parallel trees", "lossguide", "512 bins"],
)
def test_it_is_the_same_with_other_parameters(data: dict[str, str], task: str, settings: dict[str, Any]) -> None:
    alone, together = (run(data, task, workers, **settings) for workers in (0, 3))
    assert alone.identity.holds
    assert what_matters(together) == what_matters(alone)


def in_one_piece_each(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    return [tuple(map(int, part)) for part in np.array_split(np.arange(len(rows)), workers)]


def nearly_all_on_the_last(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    ends = [min(end, len(rows)) for end in (*range(1, workers), len(rows))]
    return [tuple(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def shuffled(rows: Sequence[int], workers: int) -> list[tuple[int, ...]]:
    mixed = list(range(len(rows)))
    random.Random(1).shuffle(mixed)
    return [tuple(sorted(mixed[worker::workers])) for worker in range(workers)]


@pytest.mark.parametrize("assign", [in_one_piece_each, nearly_all_on_the_last, shuffled])
@pytest.mark.parametrize("task", ["binary", "ranking"])
def test_it_is_the_same_however_the_rows_are_assigned(
    data: dict[str, str], task: str, assign: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(data, task, 0, eval_fraction=0.2, rounds=5)
    monkeypatch.setattr(row_shards, "assign_evenly", assign)
    assert what_matters(run(data, task, 2, eval_fraction=0.2, rounds=5)) == what_matters(alone)


def test_an_evaluation_set_too_small_for_every_worker_is_evaluated_exactly(
    data: dict[str, str], tmp_path: Path
) -> None:
    other = datasets.write(tmp_path / "eval", datasets.binary(150, seed=7), files=1)
    alone, together = (run(data, "binary", workers, eval=[other]) for workers in (0, 3))
    assert what_matters(together) == what_matters(alone)
    assert together.eval_rows == 150


def test_going_on_from_a_run_is_the_same_too(data: dict[str, str]) -> None:
    first = run(data, "binary", 2, rounds=4)
    further = [run(data, "binary", workers, rounds=4, continue_from=first.directory) for workers in (0, 2)]
    whole = run(data, "binary", 0, rounds=8)
    assert [result.model_digest for result in further] == [whole.model_digest] * 2


def test_every_worker_proves_its_threads_and_memory_is_that_of_all(data: dict[str, str]) -> None:
    result = run(data, "binary", 3, rounds=3)
    assert [(proof.worker, proof.decided) for proof in result.threads] == [(0, 1), (1, 1), (2, 1)]
    assert all(proof.used > 0 for proof in result.threads)
    # A process with XGBoost and Arrow loaded has 100 MB at the very least, and there are four.
    assert result.peak_memory_bytes > 4 * 100e6
    samples = open_run(result.directory).read_table("workers.parquet")
    assert set(samples["worker"].to_pylist()) == {-1, 0, 1, 2}


class KillOne:
    """A sink that kills worker 1 after a few rounds, and keeps what it is told."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        self.all_pids: set[int] = set()
        self.killed_at = 0.0
        self.told: list[Event] = []

    def event(self, event: Event) -> None:
        self.told.append(event)
        if event.kind == "worker_started":
            self.pids[event.data["worker"]] = event.data["pid"]
            self.all_pids.add(event.data["pid"])
        if event.kind == "round" and event.data["round"] >= 3 and not self.killed_at:
            os.kill(self.pids[1], signal.SIGKILL)
            self.killed_at = time.monotonic()

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self.told if event.kind == kind]


def config_of(data: dict[str, str], directory: Path, **settings: Any) -> RunConfig:
    roles = {"label": "label", "weight": "weight", "ignore": ["id"], "eval_fraction": 0.2}
    return make_config({"data": data["binary"], **roles, "rounds": LONG, "out": str(directory), **settings})


def assert_gone(pids: set[int]) -> None:
    deadline = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, pids))


def test_a_killed_worker_is_replaced_and_the_model_is_the_same(data: dict[str, str], tmp_path: Path) -> None:
    sink = KillOne()
    result = training.train(config_of(data, tmp_path / "run", workers=2), sinks=[sink])
    assert what_matters(result) == what_matters(run(data, "binary", 0, rounds=LONG, eval_fraction=0.2))
    assert (result.failures, result.workers) == (1, 2)
    [lost], [reload], [recovered] = (sink.of(kind) for kind in ("worker_lost", "reload", "recovered"))
    assert (lost["worker"], lost["phase"]) == (1, "train")
    assert "process ended unexpectedly" in lost["cause"]
    assert lost["noticed_after_s"] < 5
    assert reload["worker"] == 1
    assert result.rows_reloaded == recovered["rows_reloaded"] < result.rows
    assert 0 < result.seconds.recovery == pytest.approx(recovered["seconds"], abs=0.01)
    assert [event["replacement"] for event in sink.of("worker_started")] == [False, False, True]
    rounds = open_run(result.directory).read_table("rounds.parquet")["round"].to_pylist()
    assert rounds == list(range(1, LONG + 1))
    assert_gone(sink.all_pids)


def test_on_failure_shrink_the_others_take_the_rows_over(data: dict[str, str], tmp_path: Path) -> None:
    sink = KillOne()
    config = config_of(data, tmp_path / "run", workers={"min": 1, "max": 2}, on_failure="shrink")
    result = training.train(config, sinks=[sink])
    assert what_matters(result) == what_matters(run(data, "binary", 0, rounds=LONG, eval_fraction=0.2))
    assert result.failures == 1
    assert [event["workers"] for event in sink.of("ring")] == [2, 1]
    assert len(sink.of("worker_started")) == 2


def test_on_failure_stop_a_killed_worker_ends_the_run_soon_and_it_can_be_resumed(
    data: dict[str, str], tmp_path: Path
) -> None:
    sink = KillOne()
    with pytest.raises(WorkerError, match="Worker 1") as caught:
        training.train(config_of(data, tmp_path / "run", workers=2, on_failure="stop"), sinks=[sink])
    assert "Stack trace" not in caught.value.what
    assert time.monotonic() - sink.killed_at < 15
    assert caught.value.exit_code == 1
    assert "resume" in caught.value.fix
    stopped = open_run(str(tmp_path / "run")).document
    assert stopped["status"] == "stopped"
    assert "Worker 1" in stopped["error"]["what"]
    assert "run_failed" in (tmp_path / "run" / "events.jsonl").read_text()
    assert not (tmp_path / "run" / "model.ubj").exists()
    assert_gone(sink.all_pids)
    # The cluster is as good as before, and so is the run: on any number of workers.
    result = dray.resume(str(tmp_path / "run"), workers=3)
    assert what_matters(result) == what_matters(run(data, "binary", 0, rounds=LONG, eval_fraction=0.2))
    assert result.workers == 3


def test_nothing_listens_to_other_hosts_while_workers_train(data: dict[str, str]) -> None:
    """In this process and all that it has started: Ray's nodes and workers too."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(listeners_until, ended)
        try:
            result = run(data, "binary", 2, rounds=30)
        finally:
            ended.set()
    assert result.workers == 2
    names = {name for name, _, _ in seen.result()}
    assert {"raylet", "gcs_server"} <= names
    assert any(name.startswith("ray::") for name in names), names
    loopback = ("127.", "::1", "::ffff:127.")
    assert [listener for listener in sorted(seen.result()) if not listener[1].startswith(loopback)] == []


def listeners_until(ended: threading.Event) -> set[tuple[str, str, int]]:
    """Return the name, address and port of all that listened at two looks in a row.

    XGBoost listens at all addresses for about a millisecond whenever a ring is formed (docs/security.md).
    """
    lasting: set[tuple[str, str, int]] = set()
    before: set[tuple[str, str, int]] = set()
    while not ended.wait(0.1):
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        answers = asked(processes, lambda process: (process.name(), process.net_connections("tcp")))
        now = {
            (name, connection.laddr.ip, connection.laddr.port)
            for _, (name, connections) in answers
            for connection in connections
            if connection.status == psutil.CONN_LISTEN
        }
        lasting |= now & before
        before = now
    return lasting


def test_a_mistake_found_by_a_worker_is_told_as_in_one_process(data: dict[str, str], tmp_path: Path) -> None:
    table = datasets.binary(600)
    weights = table["weight"].to_pylist()
    bad = datasets.write(tmp_path / "bad", datasets.replaced(table, weight=[-1.0, *weights[1:]]))
    errors = []
    for workers in (0, 2):
        with pytest.raises(dray.DrayError, match="1 rows have a negative") as caught:
            dray.train(bad, label="label", weight="weight", workers=workers, out=str(tmp_path / "run"))
        errors.append(caught.value.args)
        assert not (tmp_path / "run").exists()
    assert errors[0] == errors[1]


def test_prediction_on_workers_writes_the_same_bytes(data: dict[str, str], tmp_path: Path) -> None:
    result = run(data, "multiclass", 0)
    written = []
    for workers in (0, 2):
        out = tmp_path / f"predictions-{workers}"
        done = dray.predict(
            result.directory, data["multiclass"], str(out), keep=["id"], contributions=True, workers=workers
        )
        assert (done.workers, done.rows) == (workers, datasets.ROWS)
        written.append({file.name: file.read_bytes() for file in sorted(out.iterdir())})
    assert written[0] == written[1]
    assert sorted(written[0]) == [".dray-output.json", "part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert datasets.read(tmp_path / "predictions-2")["id"].to_pylist() == list(range(datasets.ROWS))
