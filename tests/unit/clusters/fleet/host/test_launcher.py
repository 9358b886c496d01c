"""Starting nodes and asking Ray where the parts of it that are not public are gone: another Ray stands in for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.fleet.host.sending import MARK, boot, modules

RAY = """
__version__ = "9.9"
def init(**values): print(values)
def shutdown(): pass
def nodes():
    return [{"NodeID": "1f", "NodeName": "a/1", "Alive": True, "NodeManagerAddress": "10.0.0.1",
             "NodeManagerPort": 6406, "Resources": {"CPU": 2.0}}]
"""
STATE = """
class Job: job_id, entrypoint = "7", "python train.py"
def list_jobs(filters): return [Job]
"""
COMMAND = """#!/bin/sh
printf '%s\\n' "$@" "$DRAY_FLEET_NODE" "$RAY_START_HOOK" "$PWD"
[ -e fail ] && { echo 'ValueError: no'; exit 3; }
exit 0
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An environment with a Ray that has nothing but what is public."""
    state = tmp_path / "lib" / "ray" / "util" / "state"
    state.mkdir(parents=True)
    (tmp_path / "lib" / "ray" / "__init__.py").write_text(RAY)
    (state.parent / "__init__.py").touch()
    (state / "__init__.py").write_text(STATE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "bin" / "ray").write_text(COMMAND)
    (tmp_path / "bin" / "ray").chmod(0o755)
    return tmp_path / "bin" / "python"


def ask(python: Path, do: str, **values: Any) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-S", "-c", boot("launcher")],
        input=f"{modules('launcher')}\n{json.dumps({'do': do, **values})}\n",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(python.parents[1] / "lib")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    [line] = [line for line in done.stdout.split("\n") if line.startswith(MARK)]
    answer: dict[str, Any] = json.loads(line[len(MARK) :])
    return answer


def test_nodes_are_started_by_the_command_of_ray(python: Path, tmp_path: Path) -> None:
    nodes = {}
    for index in "12":
        temp = tmp_path / index
        temp.mkdir()
        nodes[index] = {"temp": str(temp), "log": str(tmp_path / f"{index}.log"), "arguments": ["--num-cpus=2"]}
        nodes[index] |= {"variables": {"DRAY_FLEET_NODE": f"mark/{index}"}, "agent_ports": {}}
    (tmp_path / "2" / "fail").touch()
    found = ask(python, "start", nodes=nodes, limit_s=30)["answer"]
    assert set(found["1"]) == {"session", "began"}
    assert found["2"]["error"] == "ValueError: no"
    assert (tmp_path / "1.log").read_text().splitlines() == [
        *("start", "--num-cpus=2", f"--temp-dir={tmp_path / '1'}", "mark/1"),
        *("dray.clusters.fleet.host.launcher.without_client_server", str(tmp_path / "1")),
    ]


def test_nodes_and_jobs_are_asked_for_as_a_driver_does(python: Path) -> None:
    found = ask(python, "view", address="10.0.0.1:6379")["answer"]
    [node] = found["nodes"]
    assert (node["name"], node["alive"], node["address"], node["port"]) == ("a/1", True, "10.0.0.1", 6406)
    assert [job["entrypoint"] for job in found["jobs"]] == ["python train.py"]


def test_draining_says_that_this_ray_cannot(python: Path) -> None:
    words = ask(python, "drain", address="10.0.0.1:6379", ids=["1f"], deadline_s=1)["error"]
    assert "Ray 9.9 there cannot be asked to drain a node" in words
    assert "install the version that dray was tested with" in words
