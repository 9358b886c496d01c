"""Look before anything is made: is KubeRay there, may we, is what is referred to there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from dray.clusters.kubernetes.api import Api, RefusedError
from dray.clusters.kubernetes.settings import Settings
from dray.errors import ClusterError

_RAY = "ray.io"
_FOR_ALL = [
    *[(verb, "", "secrets") for verb in ("get", "create", "patch", "delete")],
    *[("list", "", "pods"), ("get", "", "pods/log")],
]
FOR_CLUSTER = [
    *[(verb, _RAY, "rayclusters") for verb in ("get", "create", "patch", "delete")],
    *_FOR_ALL,
    ("get", _RAY, "rayjobs"),
    ("create", "", "pods/portforward"),
]
FOR_JOB = [
    ("get", _RAY, "rayclusters"),
    *[(verb, _RAY, "rayjobs") for verb in ("get", "create", "patch", "delete")],
    *_FOR_ALL,
    *[(verb, "", "configmaps") for verb in ("get", "create", "patch", "delete")],
]


def check_place(api: Api, settings: Settings, permissions: Sequence[tuple[str, str, str]]) -> None:
    """Raise when the cluster or the namespace cannot take what is asked."""
    if not api.serves_kuberay():
        raise ClusterError(
            f"The cluster {api.context or 'of this pod'} has no KubeRay: ray.io/v1 is not served there.",
            fix="Install it: `helm repo add kuberay https://ray-project.github.io/kuberay-helm && "
            "helm install kuberay-operator kuberay/kuberay-operator --version 1.7.0`",
        )
    if not _is_there(api, "Namespace", settings.namespace):
        raise ClusterError(
            f'There is no namespace "{settings.namespace}".',
            fix=f"kubectl create namespace {settings.namespace}, or change namespace.",
        )
    with ThreadPoolExecutor(max_workers=8) as pool:  # a dozen questions to a server that may be far away
        allowed = list(pool.map(lambda permission: api.allows(*permission), permissions))
    lacking = [f"{verb} {resource}" for (verb, _, resource), may in zip(permissions, allowed, strict=True) if not may]
    if lacking:
        raise ClusterError(
            f"These credentials may not {', '.join(lacking)} in the namespace {settings.namespace}.",
            fix="Ask the cluster's administrator for a role with these, or use another namespace or context.",
        )
    for kind, name, key in _references(settings):
        if not _is_there(api, kind, name):
            raise ClusterError(
                f"There is no {kind} {name} in the namespace {settings.namespace}; {key} names it.",
                fix=f"Make it, or change {key}.",
            )


def _references(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for name in sorted({place.secret for place in settings.secrets.values()}):
        yield "Secret", name, "secrets"
    yield from (("Secret", name, "pull_secrets") for name in settings.pull_secrets)
    if settings.service_account:
        yield "ServiceAccount", settings.service_account, "service_account"
    for name in sorted({volume.claim for volume in settings.volumes.values()}):
        yield "PersistentVolumeClaim", name, "volumes"


def _is_there(api: Api, kind: str, name: str) -> bool:
    try:
        return api.get(kind, name) is not None
    except RefusedError as error:
        if error.status == 403:
            return True  # without the right to look it may still be used: the pods will tell
        raise
