"""A cluster on Kubernetes shows its status and its logs, and is reached on 127.0.0.1 alone."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fake_kubernetes import READY, FakeKubernetes, waiting

from dray.clusters.known import Known
from dray.clusters.kubernetes import up
from dray.clusters.kubernetes.provider import Kubernetes
from dray.clusters.kubernetes.settings import Settings
from dray.clusters.provider import Provider
from dray.errors import ClusterError


@pytest.fixture
def known(kubernetes: FakeKubernetes, told: Any) -> Known:
    return up.up(Settings(), told)


@contextmanager
def dashboard() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            answer = f"{self.headers.get('authorization')} {len(data)} ".encode() + b"x" * 300_000
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(url: str, data: bytes) -> bytes:
    request = urllib.request.Request(f"{url}/api/jobs/", data=data, headers={"authorization": "Bearer t"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return bytes(response.read())


def test_the_status_tells_of_every_pod(known: Known) -> None:
    provider: Provider = Kubernetes()
    status = provider.status(known)
    assert [(node.name, node.alive, node.head) for node in status.nodes] == [
        ("dray-head", True, True),
        ("dray-workers-0", True, False),
        ("dray-workers-1", True, False),
    ]
    worker = status.nodes[1]
    assert (worker.host, worker.cpus, worker.memory_bytes) == ("node-of-dray-workers-0", 4.0, 16 << 30)
    assert worker.ray and worker.python
    assert status.warnings == ()


def test_the_status_tells_why_a_pod_is_not_alive(kubernetes: FakeKubernetes, known: Known) -> None:
    crash = waiting("CrashLoopBackOff", "", {"reason": "OOMKilled", "exitCode": 137})
    kubernetes.becomes = lambda pod: crash if pod["metadata"]["name"].endswith("-1") else READY
    status = Kubernetes().status(known)
    assert [node.alive for node in status.nodes] == [True, True, False]
    assert "OOMKilled, exit code 137" in status.nodes[2].reason
    assert status.warnings == ("1 of 2 workers are ready.",)


def test_an_open_cluster_is_warned_of(kubernetes: FakeKubernetes, known: Known) -> None:
    spec = kubernetes.objects["RayCluster", "dray"]["spec"]
    del spec["authOptions"]
    spec["headGroupSpec"]["serviceType"] = "LoadBalancer"
    assert [warning.partition(":")[0] for warning in Kubernetes().status(known).warnings] == [
        "The cluster is open",
        "The dashboard has an address outside of the cluster (LoadBalancer).",
    ]


def test_a_cluster_that_somebody_deleted_is_told(kubernetes: FakeKubernetes, known: Known) -> None:
    kubernetes.objects.clear()
    with pytest.raises(ClusterError, match=r"dray is no longer in the namespace default.*dray cluster down dray"):
        Kubernetes().status(known)


def test_logs_stand_behind_the_names_of_their_pods(kubernetes: FakeKubernetes, known: Known) -> None:
    kubernetes.logs = {"dray-head": ["one", "two"], "dray-workers": ["ValueError: three"]}
    logs = Kubernetes().logs
    assert list(logs(known, "head", errors=False, lines=1)) == ["dray-head: two"]
    assert list(logs(known, "dray-workers-1", errors=False, lines=9)) == ["dray-workers-1: ValueError: three"]
    assert list(logs(known, None, errors=True, lines=9)) == [
        "dray-workers-0: ValueError: three",
        "dray-workers-1: ValueError: three",
    ]
    with pytest.raises(ClusterError, match=r'no pod "dray-worker-1". Did you mean "dray-workers-1"'):
        list(logs(known, "dray-worker-1", errors=False, lines=9))


def test_the_endpoint_leads_to_the_dashboard_of_the_head(kubernetes: FakeKubernetes, known: Known) -> None:
    with dashboard() as port:
        kubernetes.backend = port
        with Kubernetes().endpoint(known) as url:
            assert url.startswith("http://127.0.0.1:")
            for size in (10, 200_000, 30):
                answer = ask(url, b"y" * size)
                assert answer.startswith(f"Bearer t {size} x".encode()) and answer.endswith(b"x" * 1000)
            threads = [threading.Thread(target=ask, args=(url, b"y" * 1000)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
            assert not any(thread.is_alive() for thread in threads)
    assert {name for verb, resource, name in kubernetes.calls if resource == "pods/portforward"} == {"dray-head"}


def test_the_endpoint_listens_on_the_loopback_alone_and_not_after_its_end(
    kubernetes: FakeKubernetes, known: Known
) -> None:
    with dashboard() as port:
        kubernetes.backend = port
        with Kubernetes().endpoint(known) as url:
            number = int(url.rpartition(":")[2])
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.2", number), timeout=1)
            socket.create_connection(("127.0.0.1", number), timeout=1).close()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", number), timeout=1)


def test_a_connection_that_is_open_ends_with_the_endpoint(kubernetes: FakeKubernetes, known: Known) -> None:
    with dashboard() as port:
        kubernetes.backend = port
        with Kubernetes().endpoint(known) as url:
            idle = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)
            idle.sendall(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx")
            assert idle.recv(10) == b"HTTP/1.1 2"
        while idle.recv(1 << 16):
            pass
        idle.close()


def test_no_endpoint_without_a_head_that_is_ready(kubernetes: FakeKubernetes, known: Known) -> None:
    kubernetes.becomes = lambda pod: waiting("ImagePullBackOff", "no")
    with pytest.raises(ClusterError, match=r"head of dray is not ready: dray-head: ImagePullBackOff \(no\)"):  # noqa: SIM117
        with Kubernetes().endpoint(known):
            pass


def test_no_endpoint_without_the_permission(kubernetes: FakeKubernetes, known: Known) -> None:
    kubernetes.forbidden.add(("create", "pods/portforward"))
    with (
        pytest.raises(ClusterError, match=r"No port-forward to dray-head.*pods/portforward"),
        Kubernetes().endpoint(known),
    ):
        pass


def test_a_port_where_nobody_listens_ends_the_connection(kubernetes: FakeKubernetes, known: Known) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        kubernetes.backend = free.getsockname()[1]
    with Kubernetes().endpoint(known) as url, pytest.raises(OSError):
        ask(url, b"y")
