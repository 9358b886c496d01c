"""The Kubernetes API, as far as it is needed: plain JSON over the connection that the official client sets up.

`library.py` finds the cluster, its certificates and credentials (kubeconfig with contexts and login plugins, or the
service account of a pod); what it says comes back as plain values, and what goes wrong as a `ClusterError`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from dray.clusters.kubernetes.library import Connection
from dray.clusters.kubernetes.shapes import Json, sound
from dray.errors import ClusterError

FIELD_MANAGER = "dray"
_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_TIMEOUT_S = 30.0
_SILENCE_S = 60.0
"""A log that says nothing for so long is asked for anew: a connection may die without a word."""
_TRIES = 4
LONGEST_LINE = 1 << 20
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)")
_PASSING = (429, 500, 502, 503, 504)

_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims",
    "RayCluster": "/apis/ray.io/v1/namespaces/{namespace}/rayclusters",
    "RayJob": "/apis/ray.io/v1/namespaces/{namespace}/rayjobs",
}


class RefusedError(ClusterError):
    """The API answered with an error."""

    def __init__(self, what: str, fix: str = "", status: int = 0) -> None:
        super().__init__(what, fix)
        self.args = (what, fix, status)

    @property
    def status(self) -> int:
        return int(self.args[2])


class UnreachableError(RefusedError):
    """The API server does not answer, or says that it cannot at the moment; later it may."""


class Api:
    """One namespace of one cluster. May be used by several threads."""

    def __init__(self, namespace: str, context: str | None = None) -> None:
        self.namespace = namespace
        self._connection = Connection(context)
        self.context, self._host = self._connection.context, self._connection.host

    def get(self, kind: str, name: str) -> Json | None:
        """Return an object, or None if there is none."""
        try:
            return self._object("GET", self._path(kind, name))
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def find(self, kind: str, selector: str) -> list[Json]:
        """Return the objects with a label; what is no object among them is passed over."""
        items = self._ask("GET", self._path(kind), {"labelSelector": selector}).get("items")
        found = (sound(item) for item in (items if isinstance(items, list) else []))
        return [thing for thing in found if thing is not None]

    def apply(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Json:
        """Create or update an object so that it has what the manifest says; unknown fields are refused."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        path = self._path(manifest["kind"], manifest["metadata"]["name"])
        return self._object("PATCH", path, query | ({"dryRun": "All"} if dry_run else {}), manifest, _APPLY)

    def create(self, manifest: Mapping[str, Any]) -> Json:
        """Create an object; one that is there already is an error."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._object("POST", self._path(manifest["kind"]), query, manifest)

    def patch(self, kind: str, name: str, operations: list[Json]) -> Json:
        return self._ask("PATCH", self._path(kind, name), {}, operations, _JSON_PATCH)

    def delete(self, kind: str, name: str) -> bool:
        """Delete an object and what it owns; return whether it was there."""
        try:
            self._ask("DELETE", self._path(kind, name), {"propagationPolicy": "Background"})
        except RefusedError as error:
            if error.status == 404:
                return False
            raise
        return True

    def serves_kuberay(self) -> bool:
        try:
            answer = self._ask("GET", "/apis/ray.io/v1").get("resources")
        except RefusedError as error:
            if error.status == 404:
                return False
            raise
        found = [resource.get("name") for resource in answer or () if isinstance(resource, dict)]
        return "rayclusters" in found and "rayjobs" in found

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Return whether these credentials may do that here."""
        resource, _, part = resource.partition("/")
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": resource, "subresource": part}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        answer = self._ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}, review)
        status = answer.get("status")
        return isinstance(status, dict) and status.get("allowed") is True

    def log(self, pod: str, container: str, *, lines: int, previous: bool = False) -> list[str]:
        query = {"container": container, "tailLines": str(lines)} | ({"previous": "true"} if previous else {})
        return self._text(f"{self._path('Pod', pod)}/log", query).splitlines()

    def follow_log(self, pod: str, container: str, since: str | None) -> Iterator[tuple[str, str]]:
        """Yield (time, line) until the container ends or the connection breaks."""
        query = {"container": container, "follow": "true", "timestamps": "true"} | (
            {"sinceTime": since} if since else {}
        )
        response = self._send("GET", f"{self._path('Pod', pod)}/log", query, None, "", _SILENCE_S, stream=True)
        if response.status >= 400:
            raise self._refused(response.status, response.data, "GET", "the log")
        try:
            for line in lines_of(response.stream(1 << 16)):
                yield _timed(line)
        except Connection.errors() as error:
            raise RefusedError(f"The log of {pod} broke off: {error}.", status=0) from error
        finally:
            response.release_conn()

    def open_port(self, pod: str, port: int) -> Any:
        """Return a socket-like object that ends at a port of a pod."""
        return self._connection.open_port(self.namespace, pod, port)

    def _path(self, kind: str, name: str = "") -> str:
        path = _PATHS[kind].format(namespace=self.namespace)
        return f"{path}/{name}" if name else path

    def _object(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, content: str = ""
    ) -> Json:
        found = sound(self._ask(method, path, query, body, content))
        if found is None:
            raise self._not_understood()
        return found

    def _not_understood(self) -> RefusedError:
        return RefusedError(
            f"{self._host} does not answer as the Kubernetes API does.", fix="Check the server in the kubeconfig."
        )

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, content: str = ""
    ) -> Json:
        text = self._text(path, query or {}, method, body, content)
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._not_understood()
        return answer

    def _text(
        self, path: str, query: Mapping[str, str], method: str = "GET", body: Any = None, content: str = ""
    ) -> str:
        sent = None if body is None else json.dumps(body).encode()
        for attempt in range(1, _TRIES + 1):
            # A create that was answered with an error may still have happened; everything else may be said twice.
            last = attempt == _TRIES or (method == "POST" and not path.endswith("reviews"))
            try:
                response = self._send(method, path, query, sent, content, _TIMEOUT_S)
            except UnreachableError:
                if last:
                    raise
            else:
                if response.status < 400:
                    return str(response.data.decode("utf-8", "replace"))
                if not _may_pass(response.status, response.data):
                    raise self._refused(response.status, response.data, method, path)
                if last:
                    raise UnreachableError(*self._refused(response.status, response.data, method, path).args)
            time.sleep(0.2 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        content: str,
        timeout_s: float,
        *,
        stream: bool = False,
    ) -> Any:
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"accept": "application/json, */*", "content-type": content or "application/json"}
        try:
            return self._connection.request(method, url, headers, timeout_s, body=body, preload_content=not stream)
        except Connection.errors() as error:
            raise UnreachableError(
                f"The Kubernetes API at {self._host} does not answer: {_reason(error)}.",
                fix="Check the context (kubectl config get-contexts) and the network.",
            ) from error

    def _refused(self, status: int, data: bytes, method: str, path: str) -> RefusedError:
        try:
            message = str(json.loads(data)["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            message = data.decode("utf-8", "replace")[:300] or f"status {status}"
        what = f"Kubernetes refuses {method} {path}: {message.rstrip('.')}."
        return RefusedError(what, _fix(status, message, self.namespace), status)


def _reason(error: BaseException) -> str:
    """The innermost reason, in the system's words."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error).rstrip(".") or type(error).__name__


def _may_pass(status: int, data: bytes) -> bool:
    return status in _PASSING and b"field not declared" not in data  # which an API server calls its own error


def _fix(status: int, message: str, namespace: str) -> str:
    if "field not declared in schema" in message or "unknown field" in message:
        return "KubeRay in this cluster is too old for it: update the operator and its CRDs to 1.7."
    match status:
        case 401:
            return "Log in again: the credentials in the kubeconfig are missing or have expired."
        case 403 if "exceeded quota" in message:
            return "Ask for less, or for a larger quota."
        case 403:
            return f"Ask the cluster's administrator for that permission in the namespace {namespace}."
        case 404:
            return "Check the name and the namespace."
        case 409:
            return "It was changed at the same time, or exists already: look at it, and try again."
        case 422:
            return "Change what the message names."
    return "Try again; if it stays, ask the cluster's administrator."


def _timed(line: bytes) -> tuple[str, str]:
    """A line with the time that Kubernetes puts before it; "" where there is none."""
    text = line.decode("utf-8", "replace")
    moment, _, rest = text.partition(" ")
    return (moment, rest) if _MOMENT.fullmatch(moment) else ("", text)


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines, from pieces of any length; one that has no end is cut, so that no more than a piece is kept."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
        if len(rest) > LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest
