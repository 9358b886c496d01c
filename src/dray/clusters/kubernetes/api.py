"""The Kubernetes API, as far as it is needed: plain JSON over the connection that the official client sets up.

`kubernetes` finds the cluster, its certificates and credentials (kubeconfig with contexts and login plugins, or the
service account of a pod); what it says comes back as plain values, and what goes wrong as a `ClusterError`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dray.errors import ClusterError, ConfigError, nearest

Json = dict[str, Any]

FIELD_MANAGER = "dray"
_APPLY = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_TIMEOUT_S = 30.0
_TRIES = 4
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


class Api:
    """One namespace of one cluster. May be used by several threads."""

    def __init__(self, namespace: str, context: str | None = None) -> None:
        self.namespace = namespace
        self._configuration, self.context = _connect(context)
        self._client = _library("client").ApiClient(self._configuration)
        self._host = str(self._configuration.host).rstrip("/")

    def get(self, kind: str, name: str) -> Json | None:
        """Return an object, or None if there is none."""
        try:
            return self._ask("GET", self._path(kind, name))
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def find(self, kind: str, selector: str) -> list[Json]:
        return list(self._ask("GET", self._path(kind), {"labelSelector": selector}).get("items", []))

    def apply(self, manifest: Mapping[str, Any], *, dry_run: bool = False) -> Json:
        """Create or update an object so that it has what the manifest says; unknown fields are refused."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        path = self._path(manifest["kind"], manifest["metadata"]["name"])
        return self._ask("PATCH", path, query | ({"dryRun": "All"} if dry_run else {}), manifest, _APPLY)

    def create(self, manifest: Mapping[str, Any]) -> Json:
        """Create an object; one that is there already is an error."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._ask("POST", self._path(manifest["kind"]), query, manifest)

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
            found = {resource["name"] for resource in self._ask("GET", "/apis/ray.io/v1").get("resources", [])}
        except RefusedError as error:
            if error.status == 404:
                return False
            raise
        return {"rayclusters", "rayjobs"} <= found

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
        return bool(answer.get("status", {}).get("allowed"))

    def log(self, pod: str, container: str, *, lines: int, previous: bool = False) -> list[str]:
        query = {"container": container, "tailLines": str(lines)} | ({"previous": "true"} if previous else {})
        return self._text(f"{self._path('Pod', pod)}/log", query).splitlines()

    def follow_log(self, pod: str, container: str, since: str | None) -> Iterator[tuple[str, str]]:
        """Yield (time, line) until the container ends or the connection breaks."""
        query = {"container": container, "follow": "true", "timestamps": "true"} | (
            {"sinceTime": since} if since else {}
        )
        response = self._send("GET", f"{self._path('Pod', pod)}/log", query, None, "", None, stream=True)
        if response.status >= 400:
            raise self._refused(response.status, response.data, "GET", "the log")
        rest = b""
        try:
            for piece in response.stream(1 << 16):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (_timed(line) for line in whole)
            if rest:
                yield _timed(rest)
        except self._connection_errors() as error:
            raise RefusedError(f"The log of {pod} broke off: {error}.", status=0) from error
        finally:
            response.release_conn()

    def open_port(self, pod: str, port: int) -> Any:
        """Return a socket-like object that ends at a port of a pod."""
        websockets = _library("stream.ws_client")
        url = websockets.get_websocket_url(f"{self._host}{self._path('Pod', pod)}/portforward?ports={port}")
        headers = self._headers() | {"sec-websocket-protocol": "v4.channel.k8s.io"}
        try:
            forward = websockets.PortForward(websockets.create_websocket(self._configuration, url, headers), [port])
        except Exception as error:  # the websocket library's own, which is not imported here
            raise ClusterError(
                f"No port-forward to {pod}: {error}.", fix="Check with kubectl port-forward; it needs pods/portforward."
            ) from error
        return forward.socket(port)

    def _path(self, kind: str, name: str = "") -> str:
        path = _PATHS[kind].format(namespace=self.namespace)
        return f"{path}/{name}" if name else path

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None, content: str = ""
    ) -> Json:
        text = self._text(path, query or {}, method, body, content)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RefusedError(
                f"{self._host} does not answer as the Kubernetes API does.", fix="Check the server in the kubeconfig."
            )
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
            except ClusterError:
                if last:
                    raise
            else:
                if response.status < 400:
                    return str(response.data.decode("utf-8", "replace"))
                if last or not _may_pass(response.status, response.data):
                    raise self._refused(response.status, response.data, method, path)
            time.sleep(0.2 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        content: str,
        timeout_s: float | None,
        *,
        stream: bool = False,
    ) -> Any:
        url = f"{self._host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = self._headers() | {"accept": "application/json, */*", "content-type": content or "application/json"}
        try:
            return self._client.rest_client.pool_manager.request(
                method, url, body=body, headers=headers, timeout=timeout_s, retries=False, preload_content=not stream
            )
        except self._connection_errors() as error:
            raise ClusterError(
                f"The Kubernetes API at {self._host} does not answer: {error}.",
                fix="Check the context (kubectl config get-contexts) and the network.",
            ) from error

    def _headers(self) -> dict[str, str]:
        found = {}
        for setting in self._configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                found[setting["key"]] = setting["value"]
        return found

    def _refused(self, status: int, data: bytes, method: str, path: str) -> RefusedError:
        try:
            message = json.loads(data)["message"]
        except (ValueError, KeyError, TypeError):
            message = data.decode("utf-8", "replace")[:300] or f"status {status}"
        what = f"Kubernetes refuses {method} {path}: {message.rstrip('.')}."
        return RefusedError(what, _fix(status, message, self.namespace), status)

    @staticmethod
    def _connection_errors() -> tuple[type[BaseException], ...]:
        return (import_module("urllib3.exceptions").HTTPError, OSError)


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
            return f"Ask whoever runs the cluster for that permission in the namespace {namespace}."
        case 404:
            return "Check the name and the namespace."
        case 409:
            return "Somebody else changed it at the same time, or it is there already: look at it, and try again."
        case 422:
            return "Change what the message names."
    return "Try again; if it stays, ask whoever runs the cluster."


def _timed(line: bytes) -> tuple[str, str]:
    moment, _, text = line.decode("utf-8", "replace").partition(" ")
    return moment, text


def _connect(context: str | None) -> tuple[Any, str]:
    """Return how to reach the cluster, and the name of the context."""
    config, configuration = _library("config"), _library("client").Configuration()
    file = os.environ.get("KUBECONFIG") or "~/.kube/config"
    found = any(Path(part).expanduser().is_file() for part in file.split(os.pathsep) if part)
    try:
        if not found and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, ""
        if not found:
            raise ClusterError(
                f"There is no kubeconfig at {file}, and this is no pod.", fix="Set KUBECONFIG, or log in to a cluster."
            )
        contexts, active = config.list_kube_config_contexts(config_file=file)
        names = [entry["name"] for entry in contexts]
        chosen = context or active["name"]
        if chosen not in names:
            raise ConfigError(
                f'The kubeconfig {file} has no context "{chosen}".{nearest(chosen, names)}',
                fix=f"Use one of: {', '.join(names)}.",
            )
        config.load_kube_config(config_file=file, context=chosen, client_configuration=configuration)
    except config.ConfigException as error:
        raise ClusterError(
            f"The kubeconfig cannot be used: {str(error).rstrip('.')}.", fix="Check it with kubectl config view."
        ) from error
    return configuration, str(chosen)


def _library(part: str) -> Any:
    """Return a part of the `kubernetes` package, or say which extra brings it."""
    try:
        return import_module(f"kubernetes.{part}")
    except ImportError as error:
        raise ConfigError(
            f"Kubernetes needs the kubernetes package, which is not installed ({error}).",
            fix="pip install 'dray[kubernetes]'",
        ) from error
