"""Recommenders on Ray workers: the same model as in one process, and a run that goes on elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import dray
from dray.clusters.connect import connect
from dray.elastic.ray_group import _Shared
from dray.errors import DataError
from dray.events.kinds import Event
from dray.events.telemetry import Sample
from dray.learners.configs import make_config
from dray.learners.factorization.calls import FactorPlan
from dray.learners.factorization.result import FactorResult
from dray.training import train as training
from rating_files import EXPLICIT, IMPLICIT, ROWS, rated, write

KINDS: dict[str, dict[str, Any]] = {
    "explicit": EXPLICIT | {"eval_fraction": 0.2, "early_stop": 4},
    "implicit": IMPLICIT | {"eval_fraction": 0.2, "early_stop": 4},
}


@pytest.fixture(scope="module", autouse=True)
def four_cpus() -> Iterator[None]:
    """An embedded cluster that deals out 4 CPUs. Runs of this process use it instead of starting their own."""
    before = set(psutil.Process().children(recursive=True))
    with connect("local", workers=4, rows_move=True) as cluster:
        assert [node.cpus for node in cluster.nodes()] == [4]
        yield
    assert set(psutil.Process().children(recursive=True)) - before == set()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "rows.parquet", rated())


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def what_matters(result: Any) -> tuple[Any, ...]:
    assert isinstance(result, FactorResult)
    return result.model_digest, result.metrics, result.evaluation, result.best_round, result.rounds, result.pairs


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_the_same_for_0_1_2_and_4_workers(data: str, kind: str) -> None:
    alone = dray.train(data, workers=0, **KINDS[kind])
    assert isinstance(alone, FactorResult)
    assert alone.identity.holds
    for workers in (1, 2, 4):
        result = dray.train(data, workers=workers, **KINDS[kind])
        assert what_matters(result) == what_matters(alone), f"{workers} workers"
        assert (result.workers, result.rows, result.failures) == (workers, ROWS, 0)
        # All CPUs are dealt out, so the number of threads varies as well.
        assert [(proof.worker, proof.decided) for proof in result.threads] == [
            (w, 4 // workers) for w in range(workers)
        ]


class Interrupt:
    """A sink that is a Ctrl-C when a round is done."""

    def __init__(self, round_: int) -> None:
        self._round = round_

    def event(self, event: Event) -> None:
        if event.kind == "round" and event.data["round"] == self._round:
            raise KeyboardInterrupt

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("first", "then"), [(2, 0), (0, 3), (4, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_resumed_on_another_number_of_workers(data: str, kind: str, first: int, then: int) -> None:
    whole = dray.train(data, workers=0, **KINDS[kind])
    with pytest.raises(KeyboardInterrupt):
        training.train(make_config(KINDS[kind] | {"data": data, "workers": first, "out": "run"}), sinks=[Interrupt(2)])
    result = dray.resume("run", workers=then)
    assert what_matters(result) == what_matters(whole)
    assert result.workers == then


def test_going_on_from_a_run_is_the_same_on_workers(data: str) -> None:
    first = dray.train(data, workers=2, **EXPLICIT)
    more = write(Path("more.parquet"), rated(600, 100, 70, seed=5))
    asked = {**EXPLICIT, "params": {}, "continue_from": first.directory}
    alone, together = (dray.train(more, workers=workers, **asked) for workers in (0, 3))
    assert what_matters(together) == what_matters(alone)
    assert alone.pairs > first.pairs


def test_a_mistake_that_a_worker_finds_is_told_as_in_one_process(tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.parquet", rated().set_column(2, "r", [[-1.0] * ROWS]))
    errors = []
    for workers in (0, 2):
        with pytest.raises(DataError, match="negative rating") as caught:
            dray.train(bad, workers=workers, out="run", **EXPLICIT)
        errors.append(caught.value.args)
        assert not Path("run").exists()
    assert errors[0] == errors[1]


HEARTBEAT_S, LATE_S = 5.0, 9.0


@ray.remote(num_cpus=0)
def late(value: Any) -> Any:
    time.sleep(LATE_S)
    return value


def test_a_shared_value_that_arrives_late_costs_no_worker(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that Ray looks for on a node that cannot be reached: it takes 10 s to try another."""
    put = _Shared.ref

    def ref(shared: _Shared, ends: int, node: str) -> Any:
        return late.remote(shared.value) if isinstance(shared.value, FactorPlan) else put(shared, ends, node)

    monkeypatch.setattr(_Shared, "ref", ref)
    result = dray.train(data, workers=1, heartbeat_s=HEARTBEAT_S, **KINDS["explicit"])
    assert isinstance(result, FactorResult)
    assert result.failures == 0
    assert result.seconds.load > LATE_S
