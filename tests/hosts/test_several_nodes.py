"""Training on several Ray nodes, each with an address of its own: the same model as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import datasets
from dray_process import start_dray
from hosts.ray_nodes import Hosts

FLAGS = ["--label", "label", "--weight", "weight", "--ignore", "id", "--rounds", "8", "--eval-fraction", "0.2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("data"), datasets.binary())


@pytest.fixture(scope="module")
def in_one_process(data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with start_dray(["train", data, *FLAGS, "--workers", "0"], cwd=tmp_path_factory.mktemp("alone")) as alone:
        return alone.finish()


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_on_several_hosts_make_the_same_model(
    three_hosts: Hosts, data: str, in_one_process: dict[str, Any], tmp_path: Path, workers: int
) -> None:
    arguments = ["train", data, *FLAGS, "--workers", str(workers), "--cluster", three_hosts.address]
    head = three_hosts.head
    with start_dray(arguments, cwd=tmp_path, env=three_hosts.environment, prefix=head.prefix) as run:
        result = run.finish()
        hosts = run.hosts()
    assert result["model_digest"] == in_one_process["model_digest"]
    assert result["metrics"] == in_one_process["metrics"]
    assert result["workers"] == len(hosts) == workers
    assert len(set(hosts.values())) == workers
    assert set(hosts.values()) <= {host.name for host in three_hosts.hosts}
    assert {proof["host"] for proof in result["threads"]} == set(hosts.values())
