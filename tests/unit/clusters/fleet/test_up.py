"""A fleet file and the cluster of the same name that runs."""

from __future__ import annotations

import pytest

from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.up import merged
from dray.errors import ClusterError

RUNNING = make_fleet({"name": "lab", "hosts": ["a", "b", "added"]})


def test_machines_that_were_added_stay() -> None:
    fleet = merged(make_fleet({"name": "lab", "hosts": ["a", {"host": "b", "workers": 3}]}), RUNNING)
    assert [(machine.host, machine.workers) for machine in fleet.machines] == [("a", 1), ("b", 3), ("added", 1)]


def test_the_name_is_taken_by_a_cluster_with_another_head() -> None:
    with pytest.raises(ClusterError, match="There is a cluster lab already, with its head on a, not on z"):
        merged(make_fleet({"name": "lab", "hosts": ["z"]}), RUNNING)


def test_ports_cannot_change_while_it_runs() -> None:
    with pytest.raises(ClusterError, match="runs with other ports"):
        merged(make_fleet({"name": "lab", "hosts": ["a"], "ports": {"gcs": 6380}}), RUNNING)
