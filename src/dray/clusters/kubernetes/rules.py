"""What settings can make of a manifest that its schema lets pass: KubeRay's own conditions, and ours. Pure.

KubeRay notices some of these only in its operator, where a user does not look: the manifest is taken, and nothing
happens. Each rule here is an error with its fix instead, before anything is applied. What no setting can break is kept
by `render.py`: `tests/unit/clusters/kubernetes/manifest_rules.py` has those conditions.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dray.clusters.kubernetes import images
from dray.clusters.kubernetes.images import Versions
from dray.clusters.kubernetes.quantities import GIB, format_bytes, format_cpus, parse_bytes, parse_cpus
from dray.config.private import is_secret_name, texts_in
from dray.errors import ConfigError

if TYPE_CHECKING:
    from dray.clusters.kubernetes.settings import NodeSize

Manifest = Mapping[str, Any]
Mistake = tuple[str, str]
"""What is wrong, and the fix."""

NAME_LIMITS = {"RayCluster": 53, "RayJob": 47}
"""KubeRay makes longer names from them, for pods and services."""
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS"),
    *("OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "GOTO_NUM_THREADS"),
)

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USERINFO = re.compile(r"://[^/\s@]+@")


def check(manifest: Manifest, *, versions: Versions, node: NodeSize | None = None) -> None:
    """Raise the first mistake of a RayCluster or a RayJob; say how many more there are."""
    if found := list(dict.fromkeys(_mistakes(manifest, versions, node))):
        what, fix = found[0]
        more = f" ({len(found) - 1} more to mend after that.)" if len(found) > 1 else ""
        raise ConfigError(what, fix=fix + more)


def _mistakes(manifest: Manifest, versions: Versions, node: NodeSize | None) -> Iterator[Mistake]:
    spec = manifest["spec"]
    cluster = spec if manifest["kind"] == "RayCluster" else spec["rayClusterSpec"]
    yield from _names(manifest)
    yield from _labels(manifest)
    if _USERINFO.search(spec.get("runtimeEnvYAML", "")):
        yield (
            "The job holds an address with credentials, which all users that may list jobs can read.",
            "Take them out; give them as secrets, by reference.",
        )
    if not any(group["maxReplicas"] for group in cluster["workerGroupSpecs"]) and not _head_works(cluster):
        yield (
            "Nothing could run tasks: there are no workers, and the head has no CPUs.",
            "Set workers.replicas, or head.works: true.",
        )
    for container in (one for group in _groups(cluster) for one in group["template"]["spec"]["containers"]):
        yield from _environment(container)
        yield from images.mistakes(container["image"], versions)
    if node:
        yield from _room(cluster, node)


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


def _names(manifest: Manifest) -> Iterator[Mistake]:
    kind, name, namespace = manifest["kind"], manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    limit = NAME_LIMITS[kind]
    if len(name) > limit:
        yield f'"{name}" has {len(name)} characters; a {kind} may have {limit}.', "Choose a shorter name."
    if not _DNS_1035.fullmatch(name):
        yield (
            f'"{name}" cannot be the name of a {kind}.',
            "Use small letters, digits and dashes, beginning with a letter and not ending with a dash.",
        )
    if not _DNS_1123.fullmatch(namespace):
        yield f'"{namespace}" cannot be the name of a namespace.', "Change namespace."


def _labels(manifest: Manifest) -> Iterator[Mistake]:
    for key, value in manifest["metadata"]["labels"].items():
        prefix, _, name = key.rpartition("/")
        if not _LABEL_PART.fullmatch(name) or (value and not _LABEL_PART.fullmatch(value)):
            yield (
                f'The label {key}: "{value}" is not one that Kubernetes takes.',
                "Use at most 63 letters, digits, dots, dashes and underscores.",
            )
        if prefix == "ray.io" or prefix.endswith(".ray.io"):
            yield f"The label {key} belongs to KubeRay.", "Choose another name."


def _environment(container: Manifest) -> Iterator[Mistake]:
    for variable in container["env"]:
        name = variable["name"]
        if not _VARIABLE.fullmatch(name):
            yield f'"{name}" is not the name of a variable.', "Use letters, digits and underscores."
        if name in THREAD_VARIABLES:
            yield (
                f"{name} in the environment of the pods would hold every process to so many threads.",
                "Leave it out: dray gives each worker its own; use threads in the run file to choose.",
            )
        if "value" in variable and (is_secret_name(name) or _USERINFO.search(variable["value"])):
            yield (
                f"{name} looks like a secret, and its value in the manifest can be read by all users of the namespace.",
                f"Put it into a Secret, and write secrets: {{{name}: {{secret: NAME, key: KEY}}}}.",
            )


def _room(cluster: Manifest, node: NodeSize) -> Iterator[Mistake]:
    for group in _groups(cluster):
        wanted = [container["resources"]["limits"] for container in group["template"]["spec"]["containers"]]
        if group is cluster["headGroupSpec"] and cluster.get("enableInTreeAutoscaling"):
            wanted.append(cluster["autoscalerOptions"]["resources"]["limits"])
        cpus = sum(parse_cpus(amounts["cpu"]) for amounts in wanted)
        memory = sum(parse_bytes(amounts["memory"]) for amounts in wanted)
        name = group.get("groupName", "head")
        if cpus > node.cpu - 1:
            yield (
                f"A pod of {name} takes {format_cpus(cpus)} CPUs of a node with {format_cpus(node.cpu)}: the system's "
                "own pods need one.",
                f"Ask for at most {format_cpus(max(0.0, node.cpu - 1))} CPUs.",
            )
        if memory > node.memory - GIB:
            yield (
                f"A pod of {name} takes {format_bytes(memory)} of a node with {format_bytes(node.memory)}: the "
                "system's own pods need 1Gi.",
                f"Ask for at most {format_bytes(max(0, node.memory - GIB))}.",
            )


def _head_works(cluster: Manifest) -> bool:
    return bool(cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] != "0")


def _groups(cluster: Manifest) -> list[Manifest]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
