"""Workers on a Ray cluster, by the contract of a group."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest
import ray

from contract.group import SeveralWorkersContract
from dray.clusters.cluster import Cluster
from dray.elastic.group import Group
from dray.elastic.ray_group import RayGroup
from dray.elastic.watch import Watch
from dray.events.telemetry import Telemetry


@pytest.fixture(scope="module", autouse=True)
def ops_travel_by_value() -> Iterator[None]:
    """The processes of the cluster do not know the tests."""
    module = import_module("contract.group")
    assert sys.modules["contract.group"] is module
    ray.cloudpickle.register_pickle_by_value(module)
    yield
    ray.cloudpickle.unregister_pickle_by_value(module)


class TestRayGroup(SeveralWorkersContract):
    @pytest.fixture
    def group(self, three_cpus: Cluster) -> Iterator[Group]:
        watch = Watch(Telemetry([]), shared=False)
        group = RayGroup(three_cpus, watch, heartbeat_s=30.0, on_copy=lambda copy: None, learner="factorization")
        try:
            assert group.reserve(2, at_least=2) == [0, 1]
            yield group
        finally:
            group.close()

    def lose(self, group: Group, worker: int, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
