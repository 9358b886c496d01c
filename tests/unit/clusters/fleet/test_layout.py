"""Nodes of a machine: shares of it that add up, and ports that are nobody else's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.layout import Machine, Node, nodes_of

MACHINE = Machine("10.0.0.1", cpus=8, memory_bytes=16 << 30, shm_bytes=8 << 30)


def nodes(machine: Machine = MACHINE, **host: Any) -> list[Node]:
    fleet = make_fleet({"name": "lab", "head": "a", "hosts": [{"host": "a", **host}]})
    return nodes_of(fleet, fleet.machine("a"), machine, "10.0.0.1")


def option(node: Node, name: str) -> str:
    [found] = [part for part in node.arguments if part.startswith(f"--{name}=")]
    return found.partition("=")[2]


def test_the_head_is_a_node_beside_the_workers_of_its_machine() -> None:
    head, one, two = nodes(workers=2)
    assert (head.name, one.name, two.name) == ("a/head", "a/1", "a/2")
    assert head.cpus == 0
    assert "--head" in head.arguments
    assert option(one, "address") == "10.0.0.1:6379"
    assert {6379, 8265} <= set(head.ports)


def test_what_is_not_said_is_the_machine_divided() -> None:
    _, *workers = nodes(workers=2)
    assert [node.cpus for node in workers] == [4, 4]
    total = sum(node.memory_bytes + node.object_store_bytes for node in workers)
    assert 0.79 * MACHINE.memory_bytes < total <= 0.8 * MACHINE.memory_bytes


def test_what_is_said_holds() -> None:
    _, worker = nodes(workers=1, cpus=3, memory="6G")
    assert worker.cpus == 3
    assert worker.memory_bytes + worker.object_store_bytes == 6 << 30
    assert worker.object_store_bytes == pytest.approx(0.3 * (6 << 30), rel=0.01)
    _, worker = nodes(workers=1, memory="6G", object_store="1G", gpus=2)
    assert (worker.object_store_bytes, worker.memory_bytes, worker.gpus) == (1 << 30, 5 << 30, 2)


def test_object_stores_fit_the_shared_memory() -> None:
    small = Machine("10.0.0.1", cpus=8, memory_bytes=16 << 30, shm_bytes=1 << 30)
    assert sum(node.object_store_bytes for node in nodes(small, workers=2)) <= 1 << 30


def test_the_dashboard_is_for_the_machine_itself() -> None:
    assert option(nodes()[0], "dashboard-host") == "127.0.0.1"


@given(st.integers(1, 60), st.booleans())
def test_no_port_is_given_twice(workers: int, head: bool) -> None:
    host = {"host": "a", "workers": workers}
    fleet = make_fleet({"name": "lab", "hosts": [host], "head": "a" if head else "h"})
    found = nodes_of(fleet, fleet.machine("a"), MACHINE, "10.0.0.1")
    ports = [port for node in found for port in node.ports]
    ranges = sorted((int(option(node, "min-worker-port")), int(option(node, "max-worker-port"))) for node in found)
    assert len(ports) == len(set(ports))
    assert all(low[1] < high[0] for low, high in itertools.pairwise(ranges))
    assert ranges[0][0] >= 10002
    assert ranges[-1][1] <= 19999
    assert not any(first <= port <= last for port in ports for first, last in ranges)
