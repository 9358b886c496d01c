"""A node is lost while a recommender is trained, or two nodes do not reach each other: the model is the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray_process import DrayProcess, start_dray
from hosts.ray_nodes import Hosts, RayHost
from rating_files import rated, write

ROWS = 60_000
ROUNDS = 80
COMMON = ["--model", "factorization", "--user", "u", "--item", "i", "--rounds", str(ROUNDS), "--param", "factors=64"]
KINDS = {"explicit": [*COMMON, "--rating", "r", "--eval-fraction", "0.1"], "implicit": [*COMMON, "--event", "e"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("data") / "rows.parquet", rated(ROWS, 3_000, 800), ROWS // 8)


@pytest.fixture(scope="module")
def cluster(can_have_hosts: None) -> Iterator[Hosts]:
    """A head without room for workers, and three nodes."""
    with Hosts() as hosts:
        hosts.start_head(cpus=0)
        for _ in range(3):
            hosts.start_node()
        yield hosts
    assert [process for host in hosts.hosts for process in host.processes()] == []


def nodes_of(cluster: Hosts) -> list[RayHost]:
    return [host for host in cluster.hosts if isinstance(host, RayHost) and host is not cluster.head]


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_node_takes_its_blocks_with_it_and_the_model_is_the_same(
    cluster: Hosts, data: str, tmp_path: Path, kind: str
) -> None:
    nodes = nodes_of(cluster)
    for node in nodes:
        if not node.has_ray:  # of the test before
            cluster.start_ray(node)
    cluster.wait_for_view(cpus=len(nodes))
    with start_dray(["train", data, *KINDS[kind], "--workers", "0", "--out", "alone"], cwd=tmp_path) as alone:
        undisturbed = alone.finish()
    arguments = ["train", data, *KINDS[kind], "--workers", "2", "--threads", "1", "--cluster", cluster.address]
    with start_dray(arguments, cwd=tmp_path, env=cluster.environment, prefix=cluster.head.prefix) as run:
        run.wait_round(4)
        gone = next(node for node in nodes if node.name == run.hosts()[1])
        gone.kill_raylet()
        result = run.finish()
        hosts = run.hosts()
    assert result["model_digest"] == undisturbed["model_digest"]
    assert result["metrics"] == undisturbed["metrics"]
    [lost] = run.events("worker_lost")
    assert (lost["worker"], lost["host"], lost["phase"]) == (1, gone.name, "train")
    assert result["failures"] == 1
    assert hosts[1] not in {gone.name, hosts[0]}
    assert {event["round"] for event in run.events("round")} == set(range(1, ROUNDS + 1))
    assert 0 < result["rows_reloaded"] < ROWS


@pytest.fixture(scope="module")
def many_items(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Blocks of items that go from node to node. Small ones go with Ray's messages, through the driver."""
    return write(tmp_path_factory.mktemp("many") / "rows.parquet", rated(ROWS, 3_000, 16_000), ROWS // 8)


LONG = [*KINDS["explicit"], "--rounds", "150", "--heartbeat", "4"]


@contextmanager
def training_on_two_nodes(cluster: Hosts, data: str, place: Path, *flags: str) -> Iterator[DrayProcess]:
    nodes = nodes_of(cluster)
    for node in nodes:
        if not node.has_ray:
            cluster.start_ray(node)
    cluster.wait_for_view(cpus=len(nodes))
    arguments = ["train", data, *LONG, "--workers", "2", "--threads", "1", "--cluster", cluster.address]
    with start_dray([*arguments, *flags], cwd=place, env=cluster.environment, prefix=cluster.head.prefix) as run:
        run.wait_round(4)
        yield run


def hosts_of_workers(cluster: Hosts, run: DrayProcess) -> tuple[RayHost, RayHost]:
    nodes = {node.name: node for node in nodes_of(cluster)}
    return nodes[run.hosts()[0]], nodes[run.hosts()[1]]


def test_two_nodes_that_do_not_reach_each_other_for_a_while_go_on_to_the_same_model(
    cluster: Hosts, many_items: str, tmp_path: Path
) -> None:
    with start_dray(["train", many_items, *LONG, "--workers", "0", "--out", "alone"], cwd=tmp_path) as alone:
        undisturbed = alone.finish()
    with training_on_two_nodes(cluster, many_items, tmp_path) as run:
        one, other = hosts_of_workers(cluster, run)
        one.cut_from(other)
        try:
            run.wait_event("warning", lambda event: "No connection" in event["message"])
        finally:
            one.reach_again(other)
        result = run.finish()
        assert result["model_digest"] == undisturbed["model_digest"]
        assert result["failures"] == 0
        assert [event["round"] for event in run.events("round")] == list(range(1, 151))


def test_two_nodes_that_never_reach_each_other_end_the_run_with_both_named(
    cluster: Hosts, many_items: str, tmp_path: Path
) -> None:
    with training_on_two_nodes(cluster, many_items, tmp_path, "--max-failures-in-round", "2") as run:
        one, other = hosts_of_workers(cluster, run)
        one.cut_from(other)
        cut_at = time.monotonic()
        try:
            assert run.wait(90) == 1
            took_s = time.monotonic() - cut_at
        finally:
            one.reach_again(other)
        [failed] = run.events("run_failed")
        assert "No connection from worker" in failed["error"]
        assert f"worker 0 on {one.name}" in failed["error"] and f"worker 1 on {other.name}" in failed["error"]
        assert "dray resume" in failed["fix"]
        assert took_s < 60  # three times the heartbeat, and what it takes to notice


def test_a_way_that_is_closed_in_one_direction_ends_the_run_with_both_named(
    cluster: Hosts, many_items: str, tmp_path: Path
) -> None:
    """One node takes no call from the other: what is made there is sent and never arrives."""
    with training_on_two_nodes(cluster, many_items, tmp_path) as run:
        one, other = hosts_of_workers(cluster, run)
        other.cannot_call(one)
        cut_at = time.monotonic()
        try:
            assert run.wait(90) == 1
            took_s = time.monotonic() - cut_at
        finally:
            other.can_call(one)
        [failed] = run.events("run_failed")
        assert f"from worker 1 on {other.name} to worker 0 on {one.name}" in failed["error"]
        assert took_s < 60
