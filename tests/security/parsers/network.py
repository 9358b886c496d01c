"""What comes over connections: a stranger's proof, the list of members, what Kubernetes answers."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from typing import Any

from dray.clusters.kubernetes import provider as kubernetes_provider
from dray.clusters.kubernetes.api import Api
from dray.clusters.kubernetes.ray_jobs import job_status
from dray.clusters.kubernetes.waiting import Watch, pods_of
from dray.rings import handshake
from dray.rings.handshake import GuardedListener, Hello, Purpose
from dray.rings.rendezvous import receive_members
from security.attack import Parser

SECRET, CHALLENGE, OWN = b"s" * 32, b"c" * 32, b"o" * 32


def _proofs() -> list[bytes]:
    hellos = [Hello(Purpose.MEET, 3, 12345), Hello(Purpose.DATA, 0)]
    return [OWN + hello.pack() + handshake._sign(SECRET, b"client", CHALLENGE, OWN, hello.pack()) for hello in hellos]


def _prove(content: bytes) -> Hello | None:
    """Speak to a listener whose challenge is known. Only a proof that is real gets in."""
    listens, (here, there) = socket.create_server(("127.0.0.1", 0)), socket.socketpair()
    with GuardedListener(listens, SECRET) as listener, here, there:
        here.setblocking(False)
        listener._unproven[here] = handshake._Unproven(CHALLENGE, 0.0, bytearray())
        listener._selector.register(here, 1)
        with suppress(BrokenPipeError, BlockingIOError):
            there.setblocking(False)
            there.send(content)
        there.shutdown(socket.SHUT_WR)
        hello = None
        while here in listener._unproven and hello is None:
            hello = listener._hear(here)
        real = content[: len(_REAL[0])] in _REAL
        assert (hello is not None) == real, f"{hello} for a proof that is {'real' if real else 'forged'}"
        return hello


def _lists() -> list[bytes]:
    seats = [[[0, "10.0.0.1", 6400], [1, "10.0.0.2", 6401]], [[7, "::1", 1]]]
    texts = [json.dumps(one).encode() for one in seats]
    return [struct.pack("!I", len(text)) + text for text in texts]


def _seats(content: bytes) -> Any:
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        with suppress(BlockingIOError):
            there.send(content)
        there.shutdown(socket.SHUT_WR)
        with suppress(OSError):  # a ring that breaks, as its callers know it
            return receive_members(here)
    return None


def _answers() -> list[bytes]:
    limits = {"cpu": "500m", "memory": "8Gi"}
    pod = {
        "metadata": {"name": "demo-head", "labels": {"ray.io/node-type": "head"}, "generation": 2},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "ray", "image": "i:2.60", "resources": {"limits": limits}}],
        },
        "status": {
            "phase": "Running",
            "observedGeneration": 2,
            "conditions": [{"type": "Ready", "status": "False", "message": "not yet", "reason": "Starting"}],
            "containerStatuses": [{"name": "ray", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}],
            "jobStatus": "RUNNING",
            "jobDeploymentStatus": "Running",
            "startTime": "2026-01-01T00:00:00Z",
        },
    }
    cluster = {**pod, "spec": {"rayVersion": "2.60.0", "headGroupSpec": {}, "workerGroupSpecs": [{"replicas": 2}]}}
    return [json.dumps({**cluster, "items": [pod, pod]}).encode(), json.dumps({**cluster, "items": []}).encode()]


def _kubernetes(content: bytes) -> dict[str, Any] | None:
    """Read an answer as the pods, the cluster and the job that it may be; return what was read of each."""
    api = Api.__new__(Api)
    api.namespace, api.context, api._host = "ml", "c", "https://k"
    api._text = lambda *_, **__: content.decode("utf-8", "replace")  # type: ignore[method-assign]
    pods, cluster = pods_of(api, "demo"), api.get("RayCluster", "demo")
    Watch(lambda *_: None).look(pods, cluster)
    nodes = [kubernetes_provider._node(pod, cluster or {}) for pod in pods]
    if cluster is None:
        return None
    warnings = list(kubernetes_provider._warnings(cluster, pods))
    return {"pods": len(pods), "nodes": nodes, "warnings": warnings, "job": job_status(api, "demo")}


def _is_read(read: dict[str, Any] | None) -> bool:
    return read is not None and read["job"] is not None and len(read["nodes"]) == read["pods"]


_REAL = _proofs()

PARSERS = {
    "proof": Parser(_proofs, _prove, lambda hello: hello is not None),
    "seats": Parser(_lists, _seats, lambda members: bool(members), structured=True),
    "kubernetes": Parser(_answers, _kubernetes, _is_read, structured=True),
}
