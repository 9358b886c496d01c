"""What manifests must keep beyond their schema: KubeRay's own conditions, and ours. Pure.

KubeRay notices some of these only in its operator, where a user does not look: the manifest is taken, and nothing
happens. Each rule here is an error with its fix instead, before anything is applied.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dray.clusters.kubernetes import images
from dray.clusters.kubernetes.images import Versions
from dray.clusters.kubernetes.quantities import GIB, format_bytes, format_cpus, parse_bytes, parse_cpus
from dray.config.private import is_secret_name, texts_in
from dray.errors import ConfigError

if TYPE_CHECKING:
    from dray.clusters.kubernetes.settings import NodeSize

Manifest = Mapping[str, Any]

NAME_LIMITS = {"RayCluster": 53, "RayJob": 47}
"""KubeRay makes longer names from them, for pods and services."""
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "GOTO_NUM_THREADS"),
)
TOKEN_SINCE = (2, 52)

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MEMORY = re.compile(r"\d+(Gi|Mi)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USERINFO = re.compile(r"://[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule that a manifest does not keep."""

    rule: str
    what: str
    fix: str


def check(manifests: Sequence[Manifest], *, versions: Versions, node: NodeSize | None = None) -> None:
    """Raise the first broken rule; say how many more there are."""
    found = [broken for manifest in manifests for broken in broken_rules(manifest, versions=versions, node=node)]
    if found:
        more = f" ({len(found) - 1} more to mend after that.)" if len(found) > 1 else ""
        raise ConfigError(found[0].what, fix=found[0].fix + more)


def broken_rules(manifest: Manifest, *, versions: Versions, node: NodeSize | None = None) -> list[Broken]:
    """Return every rule that a RayCluster or a RayJob breaks."""
    cluster = manifest["spec"] if manifest["kind"] == "RayCluster" else manifest["spec"].get("rayClusterSpec")
    found = [*_names(manifest), *_labels(manifest)]
    if manifest["kind"] == "RayJob":
        found += _job(manifest["spec"])
    if cluster:
        for rule in _CLUSTER_RULES:
            found += rule(cluster)
        for container in _containers(manifest):
            found += [*_resources(container), *_environment(container)]
            for what, fix in images.mistakes(container["image"], versions) if "image" in container else ():
                found.append(Broken("image", what, fix))
        found += _room(cluster, node) if node else []
    return list(dict.fromkeys(found))


def check_run(run_file: Mapping[str, Any], *, volumes: Mapping[str, Any]) -> None:
    """Refuse a run whose output would go with its pod, or whose data no pod has."""
    fix_here = "Use s3://, or a path below a volume (volumes: {/data: {claim: NAME}})."
    out = run_file.get("out")
    if out is None:
        raise ConfigError(
            "The run has no out, so its result would lie on the disk of a pod, and go with it.",
            fix=f"Add out: s3://bucket/run. {fix_here}",
        )
    if not _is_kept(out, volumes):
        raise ConfigError(f"out: {out} lies on the disk of a pod, and would go with it.", fix=fix_here)
    for path, volume in volumes.items():
        if _is_below(out, path) and volume.read_only:
            raise ConfigError(f"out: {out} lies on the volume {path}, which is read-only.", fix="Write elsewhere.")
    for key in ("data", "eval", "continue_from"):
        given = run_file.get(key) or []
        for location in [given] if isinstance(given, str) else given:
            if not _is_kept(str(location), volumes):
                raise ConfigError(f"{key}: {location} is a path of this machine; pods do not have it.", fix=fix_here)
    if any(_USERINFO.search(text) for text in texts_in(run_file)):
        raise ConfigError(
            "The run file holds an address with credentials, which all users of the namespace could read.",
            fix="Take them out; give them as secrets, by reference.",
        )
    storage = run_file.get("storage") or {}
    if isinstance(storage, Mapping) and storage.get("profile"):
        raise ConfigError(
            f"storage.profile: {storage['profile']} is a profile of this machine; pods do not have it.",
            fix="Give the keys by reference (secrets: {AWS_ACCESS_KEY_ID: {secret: NAME, key: KEY}, ...}), "
            "or a service account with a role.",
        )


def _is_kept(location: str, volumes: Mapping[str, Any]) -> bool:
    return location.startswith("s3://") or any(_is_below(location, path) for path in volumes)


def _is_below(location: str, path: str) -> bool:
    place = posixpath.normpath(location.removeprefix("file://"))
    return place == posixpath.normpath(path) or place.startswith(posixpath.normpath(path).rstrip("/") + "/")


def _names(manifest: Manifest) -> Iterator[Broken]:
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    limit = NAME_LIMITS[kind]
    if len(name) > limit:
        yield Broken(
            "name", f'"{name}" has {len(name)} characters; a {kind} may have {limit}.', "Choose a shorter name."
        )
    if not _DNS_1035.fullmatch(name):
        yield Broken(
            "name",
            f'"{name}" cannot be the name of a {kind}.',
            "Use small letters, digits and dashes, beginning with a letter and not ending with a dash.",
        )
    namespace = manifest["metadata"].get("namespace", "default")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace):
        yield Broken("name", f'"{namespace}" cannot be the name of a namespace.', "Change namespace.")


def _labels(manifest: Manifest) -> Iterator[Broken]:
    for key, value in manifest["metadata"].get("labels", {}).items():
        prefix, _, name = key.rpartition("/")
        if not _LABEL_PART.fullmatch(name) or (value and not _LABEL_PART.fullmatch(value)):
            yield Broken(
                "label",
                f'The label {key}: "{value}" is not one that Kubernetes takes.',
                "Use at most 63 letters, digits, dots, dashes and underscores.",
            )
        if prefix == "ray.io" or prefix.endswith(".ray.io"):
            yield Broken("label", f"The label {key} belongs to KubeRay.", "Choose another name.")


def _job(spec: Manifest) -> Iterator[Broken]:
    shutdown, retries = spec.get("shutdownAfterJobFinishes", False), spec.get("backoffLimit", 0)
    if spec.get("ttlSecondsAfterFinished", 0) and not shutdown:
        yield Broken(
            "ttl", "ttlSecondsAfterFinished needs shutdownAfterJobFinishes.", "Set shutdownAfterJobFinishes: true."
        )
    if spec.get("ttlSecondsAfterFinished", 0) < 0 or retries < 0:
        yield Broken("ttl", "ttlSecondsAfterFinished and backoffLimit are numbers from 0 on.", "Change them.")
    if (spec.get("deletionStrategy") or {}).get("deletionRules") and shutdown:
        yield Broken("ttl", "deletionRules and shutdownAfterJobFinishes exclude each other.", "Keep one of them.")
    if retries and spec.get("clusterSelector"):
        yield Broken(
            "retries",
            "backoffLimit makes a new cluster for each try, and excludes clusterSelector.",
            "Leave out one of them.",
        )
    if not spec.get("rayClusterSpec") and not spec.get("clusterSelector"):
        yield Broken("cluster", "The RayJob has no cluster.", "Give rayClusterSpec or clusterSelector.")
    start, limit = spec.get("preRunningDeadlineSeconds", 0), spec.get("activeDeadlineSeconds")
    if start < 1 and spec.get("rayClusterSpec"):
        yield Broken(
            "deadline",
            "The RayJob has no deadline for its start: with a bad image it would wait for ever.",
            "Set preRunningDeadlineSeconds (start_deadline_s).",
        )
    if limit is not None and limit <= max(0, start):
        yield Broken(
            "deadline",
            f"activeDeadlineSeconds ({limit}) is over before preRunningDeadlineSeconds ({start}).",
            "Make time_limit_s longer, or start_deadline_s shorter.",
        )
    if _USERINFO.search(spec.get("entrypoint", "")) or _USERINFO.search(spec.get("runtimeEnvYAML", "")):
        yield Broken(
            "secret",
            "The job holds an address with credentials, which all users that may list jobs can read.",
            "Take them out; give them as secrets, by reference.",
        )


def _token(cluster: Manifest) -> Iterator[Broken]:
    if (cluster.get("authOptions") or {}).get("mode") != "token":
        yield Broken("token", "The cluster asks for no token.", "Set authOptions: {mode: token}.")
    numbers = re.match(r"(\d+)\.(\d+)", cluster.get("rayVersion", ""))
    if not numbers or (int(numbers[1]), int(numbers[2])) < TOKEN_SINCE:
        yield Broken(
            "token",
            f"Token authentication needs Ray 2.52 or newer, this is Ray {cluster.get('rayVersion') or 'unknown'}.",
            "Use a newer Ray, and name it in rayVersion.",
        )


def _exposure(cluster: Manifest) -> Iterator[Broken]:
    head = cluster["headGroupSpec"]
    service = ((head.get("headService") or {}).get("spec") or {}).get("type")
    for kind in (head.get("serviceType"), service):
        if kind not in (None, "ClusterIP"):
            yield Broken(
                "exposure",
                f"A head service of type {kind} gives the dashboard an address outside of the cluster.",
                "Use ClusterIP, and a port-forward to reach it.",
            )
    if head.get("enableIngress"):
        yield Broken("exposure", "An ingress puts the dashboard on the network.", "Leave out enableIngress.")


def _autoscaler(cluster: Manifest) -> Iterator[Broken]:
    if not cluster.get("enableInTreeAutoscaling") or (cluster.get("autoscalerOptions") or {}).get("version") != "v2":
        return
    for group in _groups(cluster):
        policy = group["template"]["spec"].get("restartPolicy", "Never")
        if policy != "Never":
            yield Broken(
                "autoscaler",
                f"Autoscaler v2 needs restartPolicy Never; the {group.get('groupName', 'head')} has {policy}.",
                "Set restartPolicy: Never.",
            )


def _sizes(cluster: Manifest) -> Iterator[Broken]:
    works = cluster["headGroupSpec"].get("rayStartParams", {}).get("num-cpus") != "0"
    for group in cluster.get("workerGroupSpecs", []):
        least, count, most = (group.get(key, 0) for key in ("minReplicas", "replicas", "maxReplicas"))
        works = works or most > 0
        if not least <= count <= most:
            yield Broken(
                "replicas",
                f"{count} replicas are not between minReplicas ({least}) and maxReplicas ({most}).",
                "Put workers.min, workers.replicas and workers.max in order.",
            )
    if not works:
        yield Broken(
            "replicas",
            "Nothing could run tasks: there are no workers, and the head has no CPUs.",
            "Set workers.replicas, or head.works: true.",
        )


def _start_params(cluster: Manifest) -> Iterator[Broken]:
    for group in _groups(cluster):
        params = group.get("rayStartParams", {})
        for key, value in params.items():
            if not isinstance(value, str):
                yield Broken("params", f"rayStartParams {key}: {value!r} is not text.", f'Write "{value}".')
        if group.get("resources") and params.keys() & {"num-cpus", "num-gpus", "memory", "resources"}:
            yield Broken("params", "Resources are in rayStartParams and in resources.", "Keep one of them.")


def _resources(container: Manifest) -> Iterator[Broken]:
    name, resources = container.get("name", "autoscaler"), container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not limits or requests != limits:
        yield Broken(
            "requests",
            f"Requests and limits of {name} differ: {dict(requests)} and {dict(limits)}. Ray counts on the limits.",
            "Set both to the same.",
        )
    for amounts in (requests, limits):
        memory = amounts.get("memory")
        if memory is not None and not _MEMORY.fullmatch(str(memory)):
            yield Broken(
                "memory", f"The memory {memory} of {name} is not in Gi or Mi.", "Write 8Gi: 8G is 7 % less, 8m nothing."
            )
        for resource, amount in amounts.items():
            if "/" in resource and not str(amount).isdigit():
                yield Broken("gpu", f"{resource}: {amount} of {name} is not a whole number.", "GPUs come whole.")


def _environment(container: Manifest) -> Iterator[Broken]:
    given = {variable["name"]: variable for variable in container.get("env", [])}
    if "name" in container and (
        given.get("RAY_AUTH_MODE", {}).get("value") != "token" or "valueFrom" not in given.get("RAY_AUTH_TOKEN", {})
    ):
        yield Broken(
            "token",
            f"The container {container['name']} is without the token.",
            "Set RAY_AUTH_MODE: token, and RAY_AUTH_TOKEN from the Secret.",
        )
    for name, variable in given.items():
        if not _VARIABLE.fullmatch(name):
            yield Broken("env", f'"{name}" is not the name of a variable.', "Use letters, digits and underscores.")
        if name in THREAD_VARIABLES:
            yield Broken(
                "threads",
                f"{name} in the environment of the pods would hold every process to so many threads.",
                "Leave it out: dray gives each worker its own; use threads in the run file to choose.",
            )
        if "value" in variable and (is_secret_name(name) or _USERINFO.search(variable["value"])):
            yield Broken(
                "secret",
                f"{name} looks like a secret, and its value in the manifest can be read by all users of the namespace.",
                f"Put it into a Secret, and write secrets: {{{name}: {{secret: NAME, key: KEY}}}}.",
            )


def _room(cluster: Manifest, node: NodeSize) -> Iterator[Broken]:
    for group in _groups(cluster):
        wanted = [container["resources"]["limits"] for container in group["template"]["spec"]["containers"]]
        if group is cluster["headGroupSpec"] and cluster.get("enableInTreeAutoscaling"):
            wanted.append(cluster["autoscalerOptions"]["resources"]["limits"])
        cpus = sum(parse_cpus(amounts.get("cpu", 0)) for amounts in wanted)
        memory = sum(parse_bytes(amounts.get("memory", 0)) for amounts in wanted)
        name = group.get("groupName", "head")
        if cpus > node.cpu - 1:
            yield Broken(
                "room",
                f"A pod of {name} takes {format_cpus(cpus)} CPUs of a node with {format_cpus(node.cpu)}: the system's "
                "own pods need one.",
                f"Ask for at most {format_cpus(max(0.0, node.cpu - 1))} CPUs.",
            )
        if memory > node.memory - GIB:
            yield Broken(
                "room",
                f"A pod of {name} takes {format_bytes(memory)} of a node with {format_bytes(node.memory)}: the "
                "system's own pods need 1Gi.",
                f"Ask for at most {format_bytes(max(0, node.memory - GIB))}.",
            )


def _groups(cluster: Manifest) -> list[Manifest]:
    return [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", [])]


def _containers(manifest: Manifest) -> Iterator[Manifest]:
    spec = manifest["spec"]
    cluster = spec if manifest["kind"] == "RayCluster" else spec["rayClusterSpec"]
    for group in _groups(cluster):
        yield from group["template"]["spec"]["containers"]
    if cluster.get("enableInTreeAutoscaling"):
        yield cluster.get("autoscalerOptions") or {}
    if "submitterPodTemplate" in spec:
        yield from spec["submitterPodTemplate"]["spec"]["containers"]


_CLUSTER_RULES: tuple[Callable[[Manifest], Iterator[Broken]], ...] = (
    *(_token, _exposure, _autoscaler, _sizes, _start_params),
)
