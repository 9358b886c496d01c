"""The map on a Ray cluster: the same as in processes of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ray

import dray
import map_functions as functions
from dray.batch import ray_tasks
from dray.clusters.cluster import Cluster
from dray.errors import ClusterError, ConfigError, ItemError
from dray.mapping.map import Results

pytestmark = pytest.mark.usefixtures("three_cpus")


def run(function: Any, items: Any, **options: Any) -> Results[Any]:
    return dray.map(function, items, **{"where": "cluster", **options})


def test_results_are_those_of_a_loop() -> None:
    assert list(run(functions.double, range(5000))) == [2 * i for i in range(5000)]
    assert list(run(lambda item: item + 1, iter(range(10)))) == list(range(1, 11))


def test_it_runs_in_workers_of_the_cluster_at_the_same_time() -> None:
    list(run(functions.nap, [0.01] * 3))  # the workers have started
    begun = time.perf_counter()
    assert list(run(functions.nap, [1.0] * 3)) == [1.0] * 3
    assert time.perf_counter() - begun < 2.8
    assert os.getpid() not in set(run(functions.pid, range(3)))


def test_every_way_to_end_badly_costs_one_item_and_is_told() -> None:
    results = run(functions.misbehaves, range(100), on_error="skip", retries=1)
    found = [value for value in results if not callable(value)]
    assert found == [i for i in range(100) if i not in (10, 20, 30, 40, 50, 60, 70)]
    told = {error.index: error.what for error in results.failures}
    assert sorted(told) == [10, 20, 30, 40, 60, 70]
    assert "KeyError: 'ten'" in told[10]
    assert "Its process ended" in told[20]
    assert "2 tries" in told[30]
    assert "sys.exit('enough')" in told[40]
    assert "cannot be pickled" in told[60]


def test_an_item_that_raises_has_its_own_cause() -> None:
    with pytest.raises(ItemError, match=r"Item 3 \(3\) failed: ValueError") as caught:
        list(run(functions.raises, range(10)))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("function", [functions.slow_at_two, functions.stubborn])
def test_time_limits_hold_for_one_item(function: Any) -> None:
    results = run(function, range(6), timeout_s=0.5, on_error="skip")
    assert list(results) == [0, 1, 3, 4, 5]
    assert [(error.index, error.kind) for error in results.failures] == [(2, "time")]


def test_the_same_array_given_to_every_call_is_stored_once() -> None:
    array = np.arange(1_000_000, dtype=np.float64)
    items = [(array, i) for i in range(100)]
    assert list(run(functions.total, items)) == [float(i) for i in range(100)]
    store = ray_tasks._store()
    stored = store.stored
    assert list(run(functions.total, iter(items))) == [float(i) for i in range(100)]
    assert list(run(functions.weighted, range(100), shared={"weights": array})) == [float(i) for i in range(100)]
    assert store.stored == stored
    array[7] = -7.0
    assert list(run(functions.total, items))[7] == -7.0


def test_what_functions_print_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(run(functions.prints, range(3))) == [0, 1, 2]
    captured = capsys.readouterr()
    assert "out 2" in captured.out
    assert "err 2" in captured.err


def test_what_no_node_has_is_told_at_once() -> None:
    with pytest.raises(ClusterError, match=r"No node of the cluster has what an item needs: num_cpus 1, num_gpus 1"):
        list(run(functions.double, [1], resources={"num_gpus": 1}))
    with pytest.raises(ClusterError, match="unobtainium"):
        list(run(functions.double, [1], resources={"unobtainium": 2}))


def test_a_module_that_the_workers_lack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("only_here")
    exec("def double(item): return 2 * item", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(ConfigError, match=r"workers cannot load the function only_here.double") as caught:
        list(run(module.double, [1]))
    assert "working_dir" in caught.value.fix


def test_a_loop_that_is_left_early_cancels_what_runs() -> None:
    for _ in run(functions.nap, [0.1] + [30.0] * 20, ordered=False):
        break
    begun = time.perf_counter()
    assert list(run(functions.double, range(3))) == [0, 2, 4]
    assert time.perf_counter() - begun < 15


def test_an_endless_iterator_is_read_as_it_is_used() -> None:
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    with run(functions.double, endless(), batch=10) as results:
        assert [next(results) for _ in range(100)] == [2 * i for i in range(1, 101)]
    assert taken < 3000


def test_auto_goes_on_to_a_cluster_that_is_predicted_to_be_faster(
    three_cpus: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.batch.open_executor.cluster_cpus", lambda _options: 100.0)
    found = list(dray.map(functions.nap_and_pid, [0.05] * 200, where="auto", workers=2))
    assert len(found) == 200
    assert found[-1] not in found[:5]


def test_it_uses_the_ray_that_is_there_and_leaves_it_alone() -> None:
    list(run(functions.double, range(3)))
    assert ray.is_initialized()
