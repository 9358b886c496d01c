"""What an agent sees on its machine."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.fleet.host import look

GB = 1_000_000_000


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 GB, 40 of them free, and no container."""
    monkeypatch.setattr(look, "_ROOT", tmp_path)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: {64 * GB // 1024} kB\nMemAvailable: {40 * GB // 1024} kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/pod/container\n")
    group = tmp_path / "sys" / "fs" / "cgroup" / "pod" / "container"
    group.mkdir(parents=True)
    return group


@pytest.mark.parametrize(
    ("limit", "used", "files", "total", "available"),
    [
        ("max", 9 * GB, 8 * GB, 64 * GB, 40 * GB),
        (str(10 * GB), 9 * GB, 0, 10 * GB, GB),
        # Pages of files that were read: the kernel gives them up when asked for memory.
        (str(10 * GB), 9 * GB, 8 * GB, 10 * GB, 9 * GB),
        (str(10 * GB), 11 * GB, 0, 10 * GB, 0),
        (str(100 * GB), 9 * GB, 0, 64 * GB, 40 * GB),
    ],
    ids=["no limit", "in use", "files", "over the limit", "more than the machine has"],
)
def test_memory_is_that_of_the_machine_or_the_container(
    kernel: Path, limit: str, used: int, files: int, total: int, available: int
) -> None:
    (kernel / "memory.max").write_text(f"{limit}\n")
    (kernel / "memory.current").write_text(f"{used}\n")
    (kernel / "memory.stat").write_text(f"anon {used - files}\ninactive_file {files}\n")
    assert look._memory() == {"total": total, "available": available}


def test_the_limit_of_an_enclosing_group_counts(kernel: Path) -> None:
    (kernel.parent / "memory.max").write_text(f"{10 * GB}\n")
    (kernel.parent / "memory.current").write_text(f"{3 * GB}\n")
    assert look._memory() == {"total": 10 * GB, "available": 7 * GB}


def test_without_control_groups_memory_is_the_machines(kernel: Path) -> None:
    assert look._memory() == {"total": 64 * GB, "available": 40 * GB}


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """Ports at which something listens."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        yield [listener.getsockname()[1] for listener in listeners]


def running(tmp_path: Path, *answers: str) -> dict[str, Any]:
    """Note a node for each answer of its container's `docker inspect`; return what to ask with."""
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\ncase $1 in inspect) echo "$4";; version) echo ok;; esac\n')
    docker.chmod(0o755)
    nodes = {str(index): {"container": answer} for index, answer in enumerate(answers, 1)}
    state = {"cluster": "id", "id": "1", "name": "lab", "owner": "me", "boot": "now", "nodes": nodes}
    (tmp_path / "state.json").write_text(json.dumps(state))
    return {"directory": str(tmp_path), "name": "lab", "docker": {"command": str(docker), "image": "dray:1"}}


def test_ports_of_a_node_that_runs_are_its_own_and_not_busy(tmp_path: Path, taken: list[int]) -> None:
    request = running(tmp_path, "true", "false")
    ports = {str(index): [port] for index, port in enumerate(taken, 1)}
    found = look.look({**request, "ports": ports})
    assert {index: node["alive"] for index, node in found["nodes"].items()} == {"1": True, "2": False}
    assert found["busy_ports"] == taken[1:]  # of the node that ended, and of one that was never started


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    there = tmp_path / "there.pem"
    there.write_text("x")
    request = {
        "directory": str(tmp_path),
        "name": "lab",
        "venv": sys.prefix,
        "files": [str(there), str(tmp_path / "gone.pem")],
    }
    assert look.look(request)["missing"] == [str(tmp_path / "gone.pem")]
