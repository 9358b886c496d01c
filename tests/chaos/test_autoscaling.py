"""A cluster that grows and shrinks by itself: dray asks for what its workers need, takes what comes, leaves no demand.

Ray's own autoscaler on the head of a cluster of one machine, with Ray's provider that "launches" nodes as processes.
(`ray.cluster_utils.AutoscalingCluster` would end every Ray on the machine first.)
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import datasets
from dray_process import start_dray
from hosts.pace import Pace
from hosts.ray_view import Viewer

MARK = "DRAY_AUTOSCALING"
"""A variable that every process of the cluster inherits, whoever its parent is by now."""
ROUNDS = 150
FLAGS = ["--label", "label", "--weight", "weight", "--ignore", "id", "--rounds", str(ROUNDS), "--threads", "1"]
MOST_NODES = 2
IDLE_MINUTES = 0.03
_NOTHING = (
    *("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands"),
    *("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
)
"""What the autoscaler insists on and a process on this machine has no use for."""


class GrowingCluster:
    """A head with one CPU, and up to two nodes with one CPU each when somebody needs them."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._directory = Path(tempfile.mkdtemp(prefix="dray-as-", dir="/tmp"))  # short: Ray has sockets in it
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            **environment,
            MARK: self._mark,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_FAKE_CLUSTER": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        }

    def start(self) -> str:
        """Start the head; return the address."""
        host, port = _own_address(), _free_port()
        address = f"{host}:{port}"
        config = self._directory / "autoscaling.json"
        config.write_text(json.dumps(_autoscaling(address)))
        command = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={port}", "--num-cpus=1"]
        command += [f"--node-ip-address={host}", f"--autoscaling-config={config}", f"--temp-dir={self._directory}"]
        command += ["--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=100000000"]
        log = self._directory / "start.log"
        with log.open("w") as output:
            done = subprocess.run(
                command, env=self.environment, check=False, stdout=output, stderr=subprocess.STDOUT, timeout=90
            )
        assert done.returncode == 0, log.read_text()
        return address

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def close(self) -> None:
        """End everything, also what the autoscaler starts meanwhile."""
        while left := self.processes():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)
        shutil.rmtree(self._directory, ignore_errors=True)


def _autoscaling(address: str) -> dict[str, object]:
    worker = {"resources": {"CPU": 1, "object_store_memory": 100_000_000}, "node_config": {}}
    return {
        "cluster_name": "growing",
        "max_workers": MOST_NODES,
        "upscaling_speed": 100,
        "idle_timeout_minutes": IDLE_MINUTES,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "launch_multiple": True,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "ray.worker": worker | {"min_workers": 0, "max_workers": MOST_NODES},
        },
        "auth": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **dict.fromkeys(_NOTHING, ()),
    }


def _own_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def pace(tmp_path: Path) -> Pace:
    place = tmp_path / "pace"
    place.mkdir()
    return Pace(place)


@pytest.fixture
def growing(pace: Pace) -> Iterator[GrowingCluster]:
    cluster = GrowingCluster(pace.environment)
    try:
        yield cluster
    finally:
        cluster.close()
    assert cluster.processes() == []


def test_workers_join_on_the_nodes_that_a_run_makes_the_autoscaler_bring(
    growing: GrowingCluster, pace: Pace, tmp_path: Path
) -> None:
    data = datasets.write(tmp_path / "data", datasets.binary())
    address = growing.start()
    viewer = Viewer(address, env=growing.environment)
    assert len(viewer.look().free_cpus) == 1
    pace.begin(0.3)
    driver = {name: value for name, value in growing.environment.items() if name not in pace.environment}
    flags = [*FLAGS, "--workers", "1-3", "--cluster", address]
    with start_dray(["train", data, *flags], cwd=tmp_path, env=driver) as run:
        run.wait_event("ring", lambda event: event["workers"] == 3)
        pace.lift()
        result = run.finish()
    with start_dray(["train", data, *FLAGS, "--workers", "0", "--out", "alone"], cwd=tmp_path) as alone:
        assert result["model_digest"] == alone.finish()["model_digest"]
    # It begins with whom there is room for, one at first, and hands rows over as others come. On a slow machine
    # the nodes are there before the first ring.
    rings = [event["workers"] for event in run.events("ring")]
    assert (rings[-1], rings) == (3, sorted(rings))
    joined = {event["worker"] for event in run.events("joined")}
    assert len(joined) == 3 - rings[0]
    assert {event["worker"] for event in run.events("reload")} == joined
    assert result["failures"] == 0
    assert pace.rounds() == list(range(1, ROUNDS + 1))
    assert viewer.look().groups == []
    wait_until(lambda: len(viewer.look().free_cpus) == 1, 60, "the nodes that nobody needs any more are gone")
    viewer.close()
