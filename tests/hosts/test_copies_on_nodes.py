"""Copies to Parquet on several hosts: the nodes make them; a cache that a node does not see is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray_process import start_dray
from hosts.ray_nodes import Hosts, RayHost

FLAGS = ["--label", "y", "--rounds", "3", "--workers", "2"]


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that one of the hosts sees as an empty one of its own."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def hosts(can_have_hosts: None, hidden: Path) -> Iterator[Hosts]:
    class Blind(RayHost):
        @property
        def prefix(self) -> list[str]:
            over = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden))
            return [*super().prefix, *over]

    with Hosts() as started:
        started.start_head(cpus=1)
        blind = started.add("blind", Blind)
        started.start_ray(blind, cpus=1)
        yield started


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("rows") / "rows.csv"
    place.write_text("x,y\n" + "\n".join(f"{row},{row % 2}" for row in range(400)) + "\n")
    return str(place)


def test_the_nodes_copy_other_formats_to_a_cache_that_all_see(hosts: Hosts, rows: str, tmp_path: Path) -> None:
    with start_dray(["train", rows, *FLAGS, "--workers", "0", "--out", "alone"], cwd=tmp_path) as alone:
        here = alone.finish()
    arguments = ["train", rows, *FLAGS, "--cache", str(tmp_path / "cache"), "--cluster", hosts.address]
    with start_dray(arguments, cwd=tmp_path, env=hosts.environment, prefix=hosts.head.prefix) as run:
        there = run.finish()
        assert "cannot read" not in run.stderr
    assert there["model_digest"] == here["model_digest"]
    assert there["workers"] == 2


def test_a_cache_that_a_node_does_not_see_is_refused_with_the_node(
    hosts: Hosts, hidden: Path, rows: str, tmp_path: Path
) -> None:
    arguments = ["train", rows, *FLAGS, "--cache", str(hidden / "cache"), "--cluster", hosts.address]
    with start_dray(arguments, cwd=tmp_path, env=hosts.environment, prefix=hosts.head.prefix) as run:
        assert run.process.wait(120) == 2
        error = json.loads(run.stdout)["error"]
    assert error["type"] == "StorageError"
    assert f"which the node {hosts.hosts[1].address} of the cluster cannot read" in error["what"]
    assert "--cache s3://bucket/cache" in error["fix"]
    assert not list(hidden.iterdir())


def test_files_that_a_node_does_not_see_are_copied_by_this_machine(hosts: Hosts, hidden: Path, tmp_path: Path) -> None:
    (hidden / "rows.csv").write_text("x,y\n" + "\n".join(f"{row},{row % 2}" for row in range(400)) + "\n")
    arguments = ["train", str(hidden / "rows.csv"), *FLAGS, "--cache", str(tmp_path), "--cluster", hosts.address]
    with start_dray(arguments, cwd=tmp_path, env=hosts.environment, prefix=hosts.head.prefix) as run:
        assert run.finish()["workers"] == 2
        said = run.stderr
    (hidden / "rows.csv").unlink()
    assert f"the node {hosts.hosts[1].address} of the cluster cannot read" in said
    assert "this machine copies" in said
