"""Nodes of a machine: shares of it that add up, and ports that are nobody else's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
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


@settings(deadline=None)
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


def test_a_machine_is_divided_to_the_byte_and_the_port() -> None:
    """Of 10 GB 80 % are given out; 30 % of that are the object store, within 90 % of /dev/shm by all nodes."""
    machine = Machine("10.0.0.7", cpus=9, memory_bytes=10_000_000_000, shm_bytes=6_000_000_000)
    head, one, two = nodes(machine, workers=2)
    assert (head.memory_bytes, head.object_store_bytes, head.gpus) == (512 << 20, 256 << 20, 0)
    assert [(node.cpus, node.memory_bytes, node.object_store_bytes) for node in (one, two)] == [
        (4, 2_800_000_000, 1_200_000_000)
    ] * 2
    assert head.ports == (6379, 8265, *range(6400, 6406))
    assert (one.ports, two.ports) == (tuple(range(6406, 6412)), tuple(range(6412, 6418)))
    assert [(option(node, "min-worker-port"), option(node, "max-worker-port")) for node in (head, one, two)] == [
        ("10002", "13333"),
        ("13334", "16665"),
        ("16666", "19997"),
    ]
    assert two.arguments == (
        *("--address=10.0.0.1:6379", "--node-ip-address=10.0.0.7", "--node-name=a/2", "--disable-usage-stats"),
        *("--num-cpus=4", "--num-gpus=0", "--memory=2800000000", "--object-store-memory=1200000000"),
        *("--node-manager-port=6412", "--object-manager-port=6413"),
        *("--dashboard-agent-grpc-port=6414", "--dashboard-agent-listen-port=6415"),
        *("--runtime-env-agent-port=6416", "--metrics-export-port=6417"),
        *("--min-worker-port=16666", "--max-worker-port=19997"),
    )
    assert two.agent_ports == {
        "metrics_agent_port": 6414,
        "metrics_export_port": 6417,
        "dashboard_agent_listen_port": 6415,
        "runtime_env_agent_port": 6416,
    }
    assert head.arguments[:5] == (
        *("--head", "--port=6379", "--include-dashboard=true"),
        *("--dashboard-host=127.0.0.1", "--dashboard-port=8265"),
    )
    assert [node.is_head for node in (head, one, two)] == [True, False, False]
    assert one.noted() == {"alive": True, "name": "a/1", "cpus": 4, "memory": 2_800_000_000, "object_store": 1200000000}
    assert one.to_agent() == {
        "index": 1,
        "name": "a/1",
        "cpus": 4,
        "memory": 2_800_000_000,
        "object_store": 1_200_000_000,
        "arguments": list(one.arguments),
        "agent_ports": one.agent_ports,
    }


def test_a_machine_beside_the_head_begins_with_its_first_worker() -> None:
    fleet = make_fleet({"name": "lab", "head": "h", "hosts": [{"host": "a", "workers": 2}]})
    one, two = nodes_of(fleet, fleet.machine("a"), MACHINE, "10.0.0.9")
    assert (one.name, two.name) == ("a/1", "a/2")
    assert [(option(node, "min-worker-port"), option(node, "max-worker-port")) for node in (one, two)] == [
        ("10002", "15000"),
        ("15001", "19999"),
    ]
    assert option(one, "address") == "10.0.0.9:6379"


def test_the_smallest_machine_has_a_cpu_a_byte_and_a_store_for_each_worker() -> None:
    tiny = Machine("10.0.0.1", cpus=1, memory_bytes=100 << 20, shm_bytes=1 << 20)
    _, one, _ = nodes(tiny, workers=2)
    assert (one.cpus, one.memory_bytes, one.object_store_bytes) == (1, 1, 80 << 20)


def test_one_worker_has_the_whole_machine() -> None:
    _, worker = nodes(workers=1)
    assert worker.cpus == 8
    assert worker.memory_bytes + worker.object_store_bytes == int(0.8 * MACHINE.memory_bytes)


def test_object_stores_share_nine_tenths_of_the_shared_memory() -> None:
    small = Machine("10.0.0.1", cpus=8, memory_bytes=16 << 30, shm_bytes=1_000_000_001)
    assert [node.object_store_bytes for node in nodes(small, workers=2)] == [256 << 20, 300_000_000, 300_000_000]
