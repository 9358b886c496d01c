"""A node is lost while a recommender is trained, and the blocks that were on it with it: the model is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dray_process import start_dray
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_node_takes_its_blocks_with_it_and_the_model_is_the_same(
    cluster: Hosts, data: str, tmp_path: Path, kind: str
) -> None:
    nodes = [host for host in cluster.hosts if isinstance(host, RayHost) and host is not cluster.head]
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
