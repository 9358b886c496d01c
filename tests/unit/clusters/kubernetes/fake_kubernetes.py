"""A small server that behaves like the Kubernetes API, with a KubeRay operator in it, for the calls that dray makes.

It keeps objects, checks credentials and permissions, applies and patches, refuses what the CRDs do not know (where they
are present), and makes pods. Whoever lists pods moves time on by one step, so that tests wait for nothing else.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kuberay_schema
import yaml

Json = dict[str, Any]

CREDENTIAL = "credential-of-the-tests"
KINDS = {
    "namespaces": "Namespace",
    "pods": "Pod",
    "secrets": "Secret",
    "configmaps": "ConfigMap",
    "serviceaccounts": "ServiceAccount",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "rayclusters": "RayCluster",
    "rayjobs": "RayJob",
}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def waiting(reason: str, message: str = "", last: Json | None = None) -> Json:
    """The status of a pod whose container waits."""
    status = {"name": "ray", "state": {"waiting": {"reason": reason, "message": message}}, "restartCount": 0}
    if last:
        status |= {"lastState": {"terminated": last}, "restartCount": 3}
    return {"phase": "Pending", "containerStatuses": [status]}


def unschedulable(message: str) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


@dataclass
class FakeKubernetes:
    port: int = 0
    door: Any = None
    """Of the server: close() and open()."""
    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """Verb, resource, name."""
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """Verb and resource."""
    kuberay: bool = True
    operator: bool = True
    becomes: Callable[[Json], Json] = lambda pod: READY
    """The status that a pod gets."""
    conditions: list[Json] = field(default_factory=list)
    """Of every RayCluster."""
    failures: list[tuple[str, str, int, str]] = field(default_factory=list)
    """Verb, resource, status, message: the next such call fails, once."""
    logs: dict[str, list[str]] = field(default_factory=dict)
    """By beginning of a pod's name."""
    log_breaks_after: int | None = None
    """The first log that is followed breaks off behind so many lines."""
    job_end: Json = field(default_factory=lambda: {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})
    job_lasts: int = 4
    """Steps that a job runs."""
    backend: int = 0
    """Port of this machine that a forwarded port leads to."""
    leaves: int = 2
    """Steps that a pod takes to end."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.put("Namespace", {"metadata": {"name": "default"}})

    def put(self, kind: str, thing: Json) -> Json:
        thing = {"kind": kind, "apiVersion": "v1"} | copy.deepcopy(thing)
        thing["metadata"].setdefault("uid", str(uuid.uuid4()))
        thing["metadata"].setdefault("generation", 1)
        self.objects[kind, thing["metadata"]["name"]] = thing
        return thing

    def named(self, kind: str) -> list[str]:
        return sorted(name for found, name in self.objects if found == kind)

    def made(self) -> list[tuple[str, str]]:
        """What is there beside the namespace."""
        return sorted(key for key in self.objects if key[0] != "Namespace")

    def step(self) -> None:
        """What the operator and the nodes do meanwhile."""
        if not self.operator:
            return
        for kind, name in list(self.objects):
            thing = self.objects.get((kind, name))
            if thing is None:
                continue
            if kind == "RayCluster":
                self._run_cluster(thing, name, thing["spec"], thing)
            elif kind == "RayJob":
                self._run_job(thing, name)
            elif kind == "Pod" and "deletionTimestamp" in thing["metadata"]:
                thing["left"] = thing.get("left", self.leaves) - 1
                if thing["left"] < 0:
                    del self.objects[kind, name]
            elif kind == "Pod" and thing["metadata"]["labels"]["ray.io/node-type"]:
                thing["status"] = self.becomes(thing)

    def _run_cluster(self, owner: Json, name: str, spec: Json, status_of: Json | None) -> None:
        wanted = {f"{name}-head": ("head", spec["headGroupSpec"])}
        for group in spec["workerGroupSpecs"]:
            for number in range(group["replicas"]):
                wanted[f"{name}-{group['groupName']}-{number}"] = ("worker", group)
        for pod, (node_type, group) in wanted.items():
            if ("Pod", pod) not in self.objects:
                self._make_pod(pod, node_type, group["template"], owner)
        for (kind, pod), thing in self.objects.items():
            owned = thing.get("owner") == owner["metadata"]["uid"]
            if kind == "Pod" and owned and pod not in wanted and thing["metadata"]["labels"]["ray.io/node-type"]:
                thing["metadata"].setdefault("deletionTimestamp", "now")
        if status_of is not None:
            status_of["status"] = {
                "observedGeneration": status_of["metadata"]["generation"],
                "state": "ready",
                "conditions": self.conditions,
            }

    def _run_job(self, job: Json, name: str) -> None:
        status = job.setdefault("status", {})
        if job["spec"].get("suspend"):
            status["jobDeploymentStatus"] = "Suspended"
        if status.get("jobDeploymentStatus") in ("Complete", "Failed", "ValidationFailed", "Suspended"):
            return
        status["jobDeploymentStatus"] = status.get("jobDeploymentStatus", "Initializing")
        self._run_cluster(job, name, job["spec"]["rayClusterSpec"], None)
        pods = [thing for (kind, _), thing in self.objects.items() if kind == "Pod"]
        ray = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"]]
        if all(pod.get("status") == READY for pod in ray):
            status |= {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "startTime": "2026-01-01T00:00:00Z"}
            pod = f"{name}-submitter"
            if ("Pod", pod) not in self.objects:
                self._make_pod(pod, "", job["spec"]["submitterPodTemplate"], job, {"job-name": name})
            self.objects["Pod", pod]["status"] = {"phase": "Running"}
            job["steps"] = job.get("steps", 0) + 1
            if job["steps"] > self.job_lasts:
                self.objects["Pod", pod]["status"] = {"phase": "Succeeded"}
                status |= self.job_end

    def _make_pod(self, name: str, node_type: str, template: Json, owner: Json, labels: Json | None = None) -> None:
        labels = {**template["metadata"]["labels"], "ray.io/node-type": node_type, **(labels or {})}
        spec = copy.deepcopy(template["spec"]) | {"nodeName": f"node-of-{name}"}
        pod = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Pending"}}
        self.put("Pod", pod)["owner"] = owner["metadata"]["uid"]

    def delete(self, kind: str, name: str) -> None:
        gone = self.objects.pop((kind, name))
        for key, thing in list(self.objects.items()):
            owners = [reference["uid"] for reference in thing["metadata"].get("ownerReferences", [])]
            if thing.get("owner") == gone["metadata"]["uid"]:
                thing["metadata"]["deletionTimestamp"] = "now"
            elif gone["metadata"]["uid"] in owners:
                del self.objects[key]


@contextmanager
def serve(fake: FakeKubernetes, directory: Path) -> Iterator[Path]:
    """Serve it; give a kubeconfig that leads there."""

    class Bound(_Handler):
        kubernetes = fake

    fake.door = Door(Bound)
    fake.port = fake.door.port
    fake.door.open()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "fake", "user": "me"}},
            {"name": "nobody", "context": {"cluster": "fake", "user": "nobody"}},
            {"name": "nowhere", "context": {"cluster": "nowhere", "user": "me"}},
        ],
        "clusters": [
            {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{fake.port}"}},
            {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:9"}},
        ],
        "users": [
            {"name": "me", "user": {"token": CREDENTIAL}},
            {"name": "nobody", "user": {"token": "of somebody else"}},
        ],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    try:
        yield path
    finally:
        fake.door.close()


class Door:
    """The port of the server, which can be closed, with all connections, and opened again at the same number."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._handler = handler
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread: threading.Thread | None = None
        self.port = int(self._server.server_address[1])

    def open(self) -> None:
        if self._thread is None:
            self._server = (
                self._server if self._server.fileno() >= 0 else _Server(("127.0.0.1", self.port), self._handler)
            )
            self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
            self._thread.start()

    def close(self) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._thread = None
            for connection in list(self._server.connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that is cut says nothing."""


class _Refusal(Exception):  # noqa: N818
    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message


class _Handler(BaseHTTPRequestHandler):
    kubernetes: FakeKubernetes
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        try:
            if self.headers.get("authorization") != f"Bearer {CREDENTIAL}":
                raise _Refusal(401, "Unauthorized")
            parts = address.path.strip("/").split("/")
            if address.path.endswith("/portforward"):
                self._forward(parts)
                return
            if address.path.endswith("/log"):
                self._log(parts, query)
                return
            with self.kubernetes.lock:
                answer = self._answer(parts, query, body)
            self._reply(200, answer)
        except _Refusal as refusal:
            self._reply(refusal.status, {"kind": "Status", "message": refusal.message, "code": refusal.status})

    def _answer(self, parts: list[str], query: dict[str, str], body: bytes) -> Json:
        fake = self.kubernetes
        if parts == ["apis", "ray.io", "v1"]:
            if not fake.kuberay:
                raise _Refusal(404, "the server could not find the requested resource")
            return {"resources": [{"name": "rayclusters"}, {"name": "rayjobs"}]}
        if parts[-1] == "selfsubjectaccessreviews":
            asked = json.loads(body)["spec"]["resourceAttributes"]
            resource = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
            return {"status": {"allowed": (asked["verb"], resource) not in fake.forbidden}}
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        parts = parts[2:] if len(parts) > 2 else parts
        resource, name = parts[0], parts[1] if len(parts) > 1 else ""
        verb = {"GET": "get" if name else "list", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[self.command]
        if "dryRun" not in query:
            fake.calls.append((verb, resource, name))
        self._permit(verb, resource)
        if resource in ("rayclusters", "rayjobs") and not fake.kuberay:
            raise _Refusal(404, "the server could not find the requested resource")
        return self._act(verb, KINDS[resource], name, query, body)

    def _permit(self, verb: str, resource: str) -> None:
        fake = self.kubernetes
        if (verb, resource) in fake.forbidden:
            raise _Refusal(403, f'{resource} is forbidden: User "me" cannot {verb} resource "{resource}"')
        for failure in fake.failures:
            if failure[:2] == (verb, resource):
                fake.failures.remove(failure)
                raise _Refusal(*failure[2:])

    def _act(self, verb: str, kind: str, name: str, query: dict[str, str], body: bytes) -> Json:
        fake = self.kubernetes
        if verb == "list":
            fake.step()
            key, _, value = query["labelSelector"].partition("=")
            found = [t for (k, _), t in fake.objects.items() if k == kind and t["metadata"]["labels"].get(key) == value]
            return {"items": copy.deepcopy(found)}
        there = fake.objects.get((kind, name))
        if verb == "create":
            sent = json.loads(body)
            if (kind, sent["metadata"]["name"]) in fake.objects:
                raise _Refusal(409, f'"{sent["metadata"]["name"]}" already exists')
            self._validate(sent)
            return copy.deepcopy(fake.put(kind, sent))
        if verb == "patch" and "apply" in self.headers["content-type"]:
            return self._apply(kind, name, there, json.loads(body), query)
        if there is None:
            raise _Refusal(404, f'{kind} "{name}" not found')
        if verb == "patch":
            _json_patch(there, json.loads(body))
            there["metadata"]["generation"] += 1
        if verb == "delete":
            fake.delete(kind, name)
        return copy.deepcopy(there)

    def _apply(self, kind: str, name: str, there: Json | None, sent: Json, query: dict[str, str]) -> Json:
        assert query["fieldManager"] == "dray" and query["fieldValidation"] == "Strict"
        self._validate(sent)
        if query.get("dryRun") == "All":
            return sent
        if there is not None:
            if there.get("spec") != sent.get("spec"):
                there["metadata"]["generation"] += 1
            there["metadata"] |= sent["metadata"]
            there |= {key: value for key, value in sent.items() if key != "metadata"}
            return copy.deepcopy(there)
        return copy.deepcopy(self.kubernetes.put(kind, sent))

    def _validate(self, sent: Json) -> None:
        if sent["kind"] in kuberay_schema.FILES and kuberay_schema.present():
            found = kuberay_schema.mistakes(sent)
            if found:
                raise _Refusal(400, f"strict decoding error: unknown field: {found[0]}")

    def _log(self, parts: list[str], query: dict[str, str]) -> None:
        fake, pod = self.kubernetes, parts[5]
        self._permit("get", "pods/log")
        if ("Pod", pod) not in fake.objects:
            raise _Refusal(404, f'pods "{pod}" not found')
        lines = next((lines for begin, lines in fake.logs.items() if pod.startswith(begin)), [])
        lines = [f"2026-01-01T00:00:{number:02d}Z {line}" for number, line in enumerate(lines)]
        if "timestamps" not in query:
            lines = [line.partition(" ")[2] for line in lines][-int(query["tailLines"]) :]
        lines = [line for line in lines if line.partition(" ")[0] >= query.get("sinceTime", "")]
        if query.get("follow") and fake.log_breaks_after is not None:
            data = "".join(f"{line}\n" for line in lines[: fake.log_breaks_after]).encode()
            fake.log_breaks_after = None
            self._head(200, len(data) + 100)  # and it will not come
            self.wfile.write(data)
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = "".join(f"{line}\n" for line in lines).encode()
        self._head(200, len(data))
        self.wfile.write(data)

    def _forward(self, parts: list[str]) -> None:
        fake = self.kubernetes
        self._permit("create", "pods/portforward")
        if ("Pod", parts[5]) not in fake.objects:
            raise _Refusal(404, f'pods "{parts[5]}" not found')
        fake.calls.append(("create", "pods/portforward", parts[5]))
        magic = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode())
        self.send_header("sec-websocket-protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        port = int(parse_qs(urlsplit(self.path).query)["ports"][0])
        for channel in (0, 1):
            self._frame(bytes([channel]) + struct.pack("<H", port))
        with socket.create_connection(("127.0.0.1", fake.backend)) as end:
            threading.Thread(target=self._to_backend, args=(end,), daemon=True).start()
            while piece := end.recv(1 << 14):
                self._frame(b"\0" + piece)
        with suppress(OSError):
            self.wfile.write(b"\x88\x00")  # close
            self.connection.shutdown(socket.SHUT_RDWR)

    def _frame(self, data: bytes) -> None:
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        self.wfile.write(b"\x82" + size + data)
        self.wfile.flush()

    def _to_backend(self, end: socket.socket) -> None:
        with suppress(OSError, ValueError, struct.error):
            while head := self.rfile.read(2):
                size = head[1] & 0x7F
                if size == 126:
                    [size] = struct.unpack(">H", self.rfile.read(2))
                elif size == 127:
                    [size] = struct.unpack(">Q", self.rfile.read(8))
                mask, data = self.rfile.read(4), self.rfile.read(size)
                if head[0] & 0x0F == 8:
                    break
                end.sendall(bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))[1:])
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def _reply(self, status: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self._head(status, len(data))
        self.wfile.write(data)

    def _head(self, status: int, size: int) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(size))
        self.end_headers()


def _json_patch(thing: Json, operations: list[Json]) -> None:
    for operation in operations:
        *way, last = operation["path"].strip("/").split("/")
        place: Any = thing
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if operation["op"] == "test":
            if place[last] != operation["value"]:
                raise _Refusal(422, "the server rejected our request: test failed")
        elif operation["op"] == "replace" and last not in place:
            raise _Refusal(422, f"replace operation does not apply: {operation['path']} is missing")
        else:
            place[last] = operation["value"]
