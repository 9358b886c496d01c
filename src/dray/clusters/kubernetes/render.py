"""Manifests for KubeRay 1.7 from settings. Pure: the same settings give the same text.

The token is never part of what is rendered: pods refer to a Secret, which `token_secret` makes for the API alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from dray.clusters.kubernetes import rules
from dray.clusters.kubernetes.images import Versions, here
from dray.clusters.kubernetes.quantities import format_bytes, format_cpus
from dray.clusters.kubernetes.settings import Settings, Toleration
from dray.clusters.resolve import ON_KUBERNETES

Manifest = dict[str, Any]

API_VERSION = "ray.io/v1"
GROUP = "workers"
MANAGED_BY = "app.kubernetes.io/managed-by"
OF_CLUSTER = "dray/cluster"
"""On everything that is made, the pods included: the name of the cluster or of the job."""
SHAPE = "dray/pods"
"""On a cluster: what its pods were made from. KubeRay leaves running pods as they are when that changes."""
TOKEN_KEY = "auth_token"  # noqa: S105  (the key that KubeRay looks for)
RUN_DIRECTORY = "/etc/dray"
RUN_FILE = "run.yaml"
DASHBOARD_PORT = 8265

_PORTS = {"gcs-server": 6379, "dashboard": DASHBOARD_PORT, "client": 10001}
_SUBMITTER = {"cpu": "500m", "memory": "1Gi"}
_AUTOSCALER = {"cpu": "500m", "memory": "1Gi"}


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as lines."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def render_cluster(settings: Settings, *, versions: Versions | None = None) -> list[Manifest]:
    """Return the RayCluster."""
    versions = versions or here()
    spec = _cluster_spec(settings, settings.name, versions)
    cluster = {
        "apiVersion": API_VERSION,
        "kind": "RayCluster",
        "metadata": _metadata(settings, settings.name) | {"annotations": {SHAPE: _shape(spec)}},
        "spec": spec,
    }
    rules.check(cluster, versions=versions, node=settings.node)
    return [cluster]


def render_job(
    settings: Settings, run_file: Mapping[str, Any], *, name: str | None = None, versions: Versions | None = None
) -> list[Manifest]:
    """Return the run file as a ConfigMap, and the RayJob that trains what it says on a cluster of its own."""
    versions = versions or here()
    name = name or settings.name
    rules.check_run(run_file, volumes=settings.volumes)
    run = {key: value for key, value in run_file.items() if key != "cluster"}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(settings, run_name(name)) | {"labels": _labels(settings, name)},
        "immutable": True,
        "data": {RUN_FILE: yaml.safe_dump(run, sort_keys=False, allow_unicode=True)},
    }
    job_id = f"{ON_KUBERNETES}{settings.namespace}/{name}"  # by which a further try knows the run of the one before
    spec: Manifest = {
        "entrypoint": f"dray train {RUN_DIRECTORY}/{RUN_FILE} --cluster auto --json --job {job_id}",
        "submissionMode": "K8sJobMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": settings.keep_s,
        "preRunningDeadlineSeconds": settings.start_deadline_s,
        "backoffLimit": settings.retries,
    }
    if settings.time_limit_s is not None:
        spec["activeDeadlineSeconds"] = settings.time_limit_s
    if requirements := settings.requirements(str(run_file.get("model") or "")):
        spec["runtimeEnvYAML"] = yaml.safe_dump({"pip": list(requirements)}, sort_keys=False)
    spec["submitterPodTemplate"] = _submitter(settings, name, versions)
    spec["rayClusterSpec"] = _cluster_spec(settings, name, versions, run=run_name(name))
    job = {"apiVersion": API_VERSION, "kind": "RayJob", "metadata": _metadata(settings, name), "spec": spec}
    rules.check(job, versions=versions, node=settings.node)
    return [config, job]


def to_yaml(manifests: Sequence[Manifest]) -> str:
    """Return manifests as a text for `kubectl apply -f -`, with the command for what is not in it: the token."""
    first = manifests[-1]["metadata"]
    name, namespace = token_name(first["name"]), first["namespace"]
    head = (
        "# The token that Ray asks for is not part of this text; `dray cluster up` and `dray job submit` make it.\n"
        "# By hand, before kubectl apply:\n"
        "#   python -c 'import secrets; print(secrets.token_hex(32), end=\"\")' |\n"
        f"#     kubectl create secret generic {name} -n {namespace} --from-file={TOKEN_KEY}=/dev/stdin\n"
    )
    texts = (yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=120) for manifest in manifests)
    return head + "---\n".join(texts)


def token_secret(settings: Settings, name: str, token: str) -> Manifest:
    """Return the Secret with the token: for the API, never to be shown."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(settings, token_name(name)) | {"labels": _labels(settings, name)},
        "type": "Opaque",
        "data": {TOKEN_KEY: b64encode(token.encode()).decode()},
    }


def token_name(name: str) -> str:
    return f"{name}-token"


def run_name(name: str) -> str:
    return f"{name}-run"


def _cluster_spec(settings: Settings, name: str, versions: Versions, run: str | None = None) -> Manifest:
    spec: Manifest = {"rayVersion": versions.ray, "authOptions": {"mode": "token", "secretName": token_name(name)}}
    if settings.tls:
        spec["tlsOptions"] = {"enabled": True}
    if settings.autoscale:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = {
            "version": "v2",
            "idleTimeoutSeconds": settings.idle_s,
            "resources": _resources(_AUTOSCALER),
        }
    workers = settings.workers
    spec["headGroupSpec"] = {
        "serviceType": "ClusterIP",
        "rayStartParams": {
            # In the pod's network: the operator and the submitter come from other pods. The service gives it no
            # address outside of the cluster, and every request needs the token.
            "dashboard-host": "0.0.0.0",  # noqa: S104
            "num-cpus": _ray_cpus(settings.head.cpu) if settings.head.works else "0",
        },
        "template": _head(settings, name, versions, run),
    }
    spec["workerGroupSpecs"] = [
        {
            "groupName": GROUP,
            "replicas": workers.replicas,
            "minReplicas": workers.min,
            "maxReplicas": workers.most,
            "rayStartParams": {"num-cpus": _ray_cpus(workers.cpu)},
            "template": _worker(settings, name, versions),
        }
    ]
    return spec


def _head(settings: Settings, name: str, versions: Versions, run: str | None) -> Manifest:
    container = _ray_container(
        "ray-head", settings, name, versions, {"cpu": settings.head.cpu, "memory": settings.head.memory}
    )
    container["ports"] = [{"name": port, "containerPort": number} for port, number in _PORTS.items()]
    template = _pod(settings, name, container, token_of_kubernetes=settings.autoscale)
    if run:
        container["volumeMounts"] = [
            *container.get("volumeMounts", []),
            {"name": "run", "mountPath": RUN_DIRECTORY, "readOnly": True},
        ]
        template["spec"]["volumes"] = [
            *template["spec"].get("volumes", []),
            {"name": "run", "configMap": {"name": run}},
        ]
    return template


def _worker(settings: Settings, name: str, versions: Versions) -> Manifest:
    workers = settings.workers
    amounts = {"cpu": workers.cpu, "memory": workers.memory}
    gpus = {workers.gpu_resource: str(workers.gpu)} if workers.gpu else {}
    container = _ray_container("ray-worker", settings, name, versions, amounts, gpus)
    return _pod(settings, name, container, selector=workers.node_selector, tolerations=workers.tolerations)


def _submitter(settings: Settings, name: str, versions: Versions) -> Manifest:
    """The pod that hands the job over and follows its logs: KubeRay's own, but with requests equal to limits."""
    container = {
        "name": "ray-job-submitter",
        "image": settings.image_for(versions),
        "env": _token_env(name),
        "resources": _resources(_SUBMITTER),
        "securityContext": _confined(),
    }
    template = _pod(settings, name, container, volumes=False)
    template["spec"]["restartPolicy"] = "Never"
    return template


def _ray_container(
    container: str,
    settings: Settings,
    name: str,
    versions: Versions,
    amounts: Mapping[str, float],
    gpus: Mapping[str, str] | None = None,
) -> Manifest:
    resources = {"cpu": format_cpus(amounts["cpu"]), "memory": format_bytes(int(amounts["memory"])), **(gpus or {})}
    manifest: Manifest = {
        "name": container,
        "image": settings.image_for(versions),
        "env": [
            *_token_env(name),
            *({"name": key, "value": value} for key, value in sorted(settings.env.items())),
            *(
                {"name": key, "valueFrom": {"secretKeyRef": {"name": place.secret, "key": place.key}}}
                for key, place in sorted(settings.secrets.items())
            ),
        ],
        "resources": _resources(resources),
        "securityContext": _confined(),
    }
    if settings.volumes:
        manifest["volumeMounts"] = [
            {"name": _volume_name(number), "mountPath": path} | ({"readOnly": True} if volume.read_only else {})
            for number, (path, volume) in enumerate(sorted(settings.volumes.items()))
        ]
    return manifest


def _pod(
    settings: Settings,
    name: str,
    container: Manifest,
    *,
    selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    volumes: bool = True,
    token_of_kubernetes: bool = False,
) -> Manifest:
    spec: Manifest = {"containers": [container]}
    if settings.autoscale:
        spec["restartPolicy"] = "Never"
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    elif not token_of_kubernetes:
        spec["automountServiceAccountToken"] = False  # what runs there is user code, and needs no Kubernetes
    if chosen := {**settings.node_selector, **(selector or {})}:
        spec["nodeSelector"] = chosen
    if borne := [*settings.tolerations, *tolerations]:
        spec["tolerations"] = [toleration.model_dump(exclude_none=True) for toleration in borne]
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.pull_secrets]
    if volumes and settings.volumes:
        spec["volumes"] = [
            {
                "name": _volume_name(number),
                "persistentVolumeClaim": {"claimName": volume.claim} | ({"readOnly": True} if volume.read_only else {}),
            }
            for number, (_, volume) in enumerate(sorted(settings.volumes.items()))
        ]
    return {"metadata": {"labels": _labels(settings, name)}, "spec": spec}


def _metadata(settings: Settings, name: str) -> Manifest:
    return {"name": name, "namespace": settings.namespace, "labels": _labels(settings, name)}


def _labels(settings: Settings, name: str) -> dict[str, str]:
    return {**settings.labels, MANAGED_BY: "dray", OF_CLUSTER: name}


def _token_env(name: str) -> list[Manifest]:
    """KubeRay sets the same by authOptions; said here as well, no node can be without, whatever the operator does."""
    reference = {"secretKeyRef": {"name": token_name(name), "key": TOKEN_KEY}}
    return [{"name": "RAY_AUTH_MODE", "value": "token"}, {"name": "RAY_AUTH_TOKEN", "valueFrom": reference}]


def _resources(amounts: Mapping[str, str]) -> Manifest:
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _confined() -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _ray_cpus(cpus: float) -> str:
    """Whole CPUs, rounded down: KubeRay would round up, and threads would wait for each other."""
    return str(max(1, math.floor(cpus)))


def _volume_name(number: int) -> str:
    return f"volume-{number}"


def _shape(spec: Manifest) -> str:
    """Return a digest of what pods are made from."""
    groups = [{key: group[key] for key in ("rayStartParams", "template")} for group in spec["workerGroupSpecs"]]
    parts = [spec["rayVersion"], spec.get("tlsOptions"), spec.get("enableInTreeAutoscaling"), spec["headGroupSpec"]]
    text = json.dumps([*parts, groups], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
