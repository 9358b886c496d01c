"""All that is used of the `kubernetes` package: where a cluster is, which user is used there, and connections to it.

By its public names, but for one: the pool of connections that its client makes (`rest_client.pool_manager`), with the
proxies and certificates of the kubeconfig. A version that has it no longer gets a pool of our own.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from dray.errors import ClusterError, ConfigError, nearest


class Connection:
    """How to reach the API server of one context. Several threads may use it."""

    def __init__(self, context: str | None) -> None:
        self._configuration, self.context = _configuration(context)
        self._client = _part("client").ApiClient(self._configuration)
        self.host = str(self._configuration.host).rstrip("/")
        self._pool = _pool(self._client, self._configuration)

    @staticmethod
    def errors() -> tuple[type[BaseException], ...]:
        """What `request` raises when there is no connection, or none any more."""
        return (import_module("urllib3.exceptions").HTTPError, OSError)

    def request(self, method: str, url: str, headers: dict[str, str], timeout_s: float, **options: Any) -> Any:
        """Return urllib3's response."""
        return self._pool.request(
            method, url, headers=self._credentials() | headers, timeout=timeout_s, retries=False, **options
        )

    def open_port(self, namespace: str, pod: str, port: int) -> Any:
        """Return a socket-like object that ends at a port of a pod."""
        # With a client of its own: `portforward` changes it for as long as it takes, and other threads use ours.
        pods = _part("client").CoreV1Api(_part("client").ApiClient(self._configuration))
        try:
            forward = _part("stream").portforward(
                pods.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port)
            )
        except Exception as error:  # the websocket library's own, which is not imported here
            reason = " ".join(str(getattr(error, "reason", None) or error).split())
            raise ClusterError(
                f"No port-forward to {pod}: {reason[:300]}.",
                fix="Check with kubectl port-forward; it needs pods/portforward.",
            ) from error
        return forward.socket(port)

    def _credentials(self) -> dict[str, str]:
        settings = self._configuration.auth_settings().values()  # asked each time: a login plugin may renew them
        return {item["key"]: item["value"] for item in settings if item["in"] == "header" and item["value"]}


def _pool(client: Any, configuration: Any) -> Any:
    made = getattr(getattr(client, "rest_client", None), "pool_manager", None)
    if made is not None and hasattr(made, "request"):
        return made
    if configuration.proxy:
        proxy = str(configuration.proxy).rpartition("@")[2]  # without a password
        raise ClusterError(
            f"This version of the kubernetes package cannot be used through the proxy {proxy}.",
            fix="pip install 'kubernetes>=34,<38'",
        )
    options = {
        "cert_reqs": "CERT_REQUIRED" if configuration.verify_ssl else "CERT_NONE",
        "ca_certs": configuration.ssl_ca_cert,
        "ca_cert_data": getattr(configuration, "ca_cert_data", None),
        "cert_file": configuration.cert_file,
        "key_file": configuration.key_file,
        "assert_hostname": configuration.assert_hostname,
        "server_hostname": getattr(configuration, "tls_server_name", None),
    }
    return import_module("urllib3").PoolManager(**{name: value for name, value in options.items() if value is not None})


def _configuration(context: str | None) -> tuple[Any, str]:
    """Return how to reach the cluster, and the name of the context."""
    config, configuration = _part("config"), _part("client").Configuration()
    file = os.environ.get("KUBECONFIG") or "~/.kube/config"
    found = any(Path(part).expanduser().is_file() for part in file.split(os.pathsep) if part)
    try:
        if not found and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, ""
        if not found:
            raise ClusterError(
                f"There is no kubeconfig at {file}, and this process does not run in a pod.",
                fix="Set KUBECONFIG, or log in to a cluster.",
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


def _part(part: str) -> Any:
    """Return a part of the `kubernetes` package, or say which extra brings it."""
    try:
        return import_module(f"kubernetes.{part}")
    except ImportError as error:
        raise ConfigError(
            f"Kubernetes needs the kubernetes package, which is not installed ({error}).",
            fix="pip install 'dray[kubernetes]'",
        ) from error
