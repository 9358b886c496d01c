"""Clusters for real: an embedded one, and a running one that was started with OMP_NUM_THREADS=1 and a token."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from dray.clusters.cluster import Cluster
from dray.clusters.connect import connect
from dray.clusters.placement import Placements
from dray.errors import ClusterError

TOKEN = "a-token-of-the-tests-0123456789"


def free_port() -> int:
    # Above the ports that a Ray node takes for its workers, below those that the system deals out.
    for port in range(20500, 32000, 7):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no free port")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running cluster of 4 CPUs."""
    port = free_port()
    log = tmp_path_factory.mktemp("head") / "log"
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    directory = f"/tmp/dray-test-{os.getpid()}"
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
    command += ["--num-cpus=4", "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={directory}"]
    command += ["--object-store-memory=100000000", "--dashboard-agent-listen-port=0"]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        processes = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        process.wait(20)
        for left in psutil.wait_procs(processes, timeout=5)[1]:
            left.kill()
        subprocess.run(["rm", "-rf", directory], check=True)


@pytest.fixture
def joined(head: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with connect(head, workers=2) as cluster:
        yield cluster


def placed(cluster: Cluster, workers: int) -> tuple[Placements, list[int]]:
    """Placements for so many workers, and those that were given."""
    places = Placements(cluster)
    for worker in range(workers):
        places.ask(worker)
    return places, places.wait(workers)


class Probe:
    """An actor that does what a worker does first."""

    def threads(self, number: int) -> tuple[int, set[int]]:
        from dray.threads.apply import set_environment

        set_environment(number)
        import xgboost  # noqa: F401
        from threadpoolctl import threadpool_info

        return os.getpid(), {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"}


def test_an_embedded_cluster_starts_quietly_and_leaves_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = dict(os.environ)
    children = set(psutil.Process().children(recursive=True))
    with connect("local", workers=1, threads=2) as cluster:
        assert dict(os.environ) == before
        [node] = cluster.nodes()
        assert node.address == "127.0.0.1"
        assert node.cpus >= 2
        assert cluster.logs is not None
        directory = cluster.logs.parent.parent
        places, _ = placed(cluster, 1)
        actor = ray.remote(Probe).options(**places.options(0)).remote()
        pid, pools = ray.get(actor.threads.remote(2))
        assert pools == {2}
        started = set(psutil.Process().children(recursive=True)) - children
        assert pid in {process.pid for process in started}
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.threads.remote(2))
        time.sleep(0.5)  # Ray would print the loss of the worker about now.
    assert [process for process in started if process.is_running()] == []
    assert not directory.exists()
    assert not ray.is_initialized()
    assert dict(os.environ) == before
    assert capfd.readouterr() == ("", "")
    cluster.close()


def test_more_cpus_than_there_are_is_an_error_before_anything_starts() -> None:
    with pytest.raises(ClusterError, match="need 2000 CPUs"):
        connect("local", workers=2, threads=1000)
    with pytest.raises(ClusterError, match="1000 workers on this machine"):
        connect("local", workers=1000)
    assert not ray.is_initialized()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_that_is_interrupted_or_killed_leaves_no_process(how: signal.Signals) -> None:
    script = (
        "from dray.clusters.connect import connect\n"
        "import time\n"
        "with connect('local', workers=1) as cluster:\n"
        "    print(cluster.logs.parent.parent, flush=True)\n"
        "    time.sleep(60)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    directory = Path(driver.stdout.readline().strip())
    started = psutil.Process(driver.pid).children(recursive=True)
    assert len(started) >= 3
    driver.send_signal(how)
    driver.communicate(timeout=20)
    assert psutil.wait_procs(started, timeout=10)[1] == []
    if how is signal.SIGINT:
        assert not directory.exists()
    subprocess.run(["rm", "-rf", str(directory)], check=True)


def test_a_running_cluster_is_joined_and_left_running(joined: Cluster) -> None:
    assert joined.threads == 2
    assert [node.cpus for node in joined.nodes()] == [4]
    places, given = placed(joined, 2)
    assert given == [0, 1]
    actors = [ray.remote(Probe).options(**places.options(index)).remote() for index in range(2)]
    # Its raylet has OMP_NUM_THREADS=1.
    assert [pools for _, pools in ray.get([actor.threads.remote(2) for actor in actors])] == [{2}, {2}]
    others = Placements(joined)
    others.ask(0)
    with pytest.raises(ClusterError, match="other jobs hold them"):
        others.wait(1, timeout_s=0.5)
    assert others.wait(0, timeout_s=0.1) == []
    # A place that is given back goes to who has asked for one all the while.
    places.give_back(1)
    assert others.wait(1) == [0]
    assert others.with_room([0]) == {0}
    # A place that is there is not asked for again.
    places.ask(0)
    assert places.wait(1) == [0]
    for every in (places, others):
        every.close()
    deadline = time.monotonic() + 10
    while joined.nodes()[0].free_cpus < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert joined.nodes()[0].free_cpus == 4


def test_a_ray_of_the_users_own_is_used_and_left_alone(joined: Cluster, head: str) -> None:
    with connect("local", workers=4) as second:
        assert second.threads == 1
    assert ray.is_initialized()
    with connect(head, workers=1, threads=3) as third:
        assert third.threads == 3
    assert ray.is_initialized()
    with pytest.raises(ClusterError, match="already connected"):
        connect("10.0.0.1:6379", workers=1)


def test_too_much_for_a_running_cluster_is_said_and_it_is_left(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", head)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with pytest.raises(ClusterError, match="2 workers of 3 threads need 6 CPUs; there are 4"):
        connect("auto", workers=2, threads=3)
    assert not ray.is_initialized()


def test_a_wrong_token_is_an_error_that_names_it(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    with pytest.raises(ClusterError, match="token") as caught:
        connect(head, workers=1)
    assert "RAY_AUTH_TOKEN" in caught.value.fix


def test_an_address_where_something_else_listens_fails_in_time(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.clusters.joined.JOIN_TIMEOUT_S", 3.0)
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        start = time.monotonic()
        with pytest.raises(ClusterError, match="does not answer as a Ray cluster"):
            connect(f"127.0.0.1:{listener.getsockname()[1]}", workers=1)
    assert time.monotonic() - start < 10
    assert capfd.readouterr() == ("", "")


def test_a_child_that_another_thread_starts_while_ray_starts_is_left_alone() -> None:
    me = psutil.Process()
    before = set(me.children())
    child: list[subprocess.Popen[bytes]] = []

    def start_one_soon() -> None:
        deadline = time.monotonic() + 30
        while set(me.children()) <= before and time.monotonic() < deadline:
            time.sleep(0.001)
        child.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))

    other = threading.Thread(target=start_one_soon)
    other.start()
    try:
        with connect("local", workers=1):
            assert child, "Ray was there before its first process"
        assert set(me.children()) - before == {psutil.Process(child[0].pid)}
    finally:
        other.join()
        child[0].kill()
        child[0].wait()
