"""Start a cluster on Kubernetes, change its size, and end it."""

from __future__ import annotations

from typing import Any

from dray.clusters import known as knowledge
from dray.clusters.known import Known
from dray.clusters.kubernetes import checking
from dray.clusters.kubernetes.api import Api
from dray.clusters.kubernetes.images import here
from dray.clusters.kubernetes.render import (
    DASHBOARD_PORT,
    GROUP,
    MANAGED_BY,
    SHAPE,
    Manifest,
    render_cluster,
    run_name,
    token_name,
    token_secret,
)
from dray.clusters.kubernetes.settings import Settings
from dray.clusters.kubernetes.waiting import wait_until_gone, wait_until_up
from dray.clusters.provider import Tell
from dray.clusters.resolve import check_name
from dray.errors import ClusterError, DrayError


def up(settings: Settings, tell: Tell) -> Known:
    """Make the cluster that the settings describe, or make it so again; return when all of it is ready.

    Nothing is made before all checks have passed, and a new cluster that does not come up is removed.
    """
    check_name(settings.name)
    [cluster] = render_cluster(settings)
    name = settings.name
    api = _api_for(settings)
    tell(name, "working", f"checking {api.context or 'the cluster'}, namespace {settings.namespace}")
    checking.check_place(api, settings, checking.FOR_CLUSTER)
    there = api.get("RayCluster", name)
    if there is not None:
        _check_ours(there, cluster, settings)
        if settings.autoscale:
            _keep_size(cluster, there)
    else:
        check_free(api, settings, name)
    api.apply(cluster, dry_run=True)
    if there is not None:
        known = _make(api, settings, cluster, knowledge.token(name))  # its pods have this one, and keep it
        wait_until_up(api, name, _workers(cluster), settings.start_deadline_s, tell)
    else:
        try:
            known = _make(api, settings, cluster, knowledge.make_token(name))
            wait_until_up(api, name, _workers(cluster), settings.start_deadline_s, tell)
        except BaseException as error:
            _undo(api, name, tell, error)
            raise
    tell(name, "done", f"ready: the head and {_workers(cluster)} workers")
    return known


def scale(known: Known, workers: int, tell: Tell) -> None:
    """Have so many workers; return when they are ready, or when those that are too many have gone."""
    if workers < 0:
        raise ClusterError(f"{workers} workers cannot be.", fix="Give a number from 0 on.")
    api = api_of(known)
    cluster = api.get("RayCluster", known.name)
    if cluster is None:
        raise gone(known)
    if cluster["spec"].get("enableInTreeAutoscaling"):
        raise ClusterError(
            f"The workers of {known.name} come and go by themselves (autoscale).",
            fix="Change workers.min and workers.max in the settings, and run dray cluster up again.",
        )
    groups = cluster["spec"]["workerGroupSpecs"]
    place = next((number for number, group in enumerate(groups) if group["groupName"] == GROUP), None)
    if place is None:
        raise ClusterError(f"{known.name} has no group of pods called {GROUP}.", fix="Take it down and up again.")
    path = f"/spec/workerGroupSpecs/{place}"
    changes: list[dict[str, Any]] = [
        {"op": "test", "path": f"{path}/groupName", "value": GROUP},  # another one may have been put there
        {"op": "replace", "path": f"{path}/replicas", "value": workers},
    ]
    if workers > groups[place].get("maxReplicas", 0):
        changes.append({"op": "replace", "path": f"{path}/maxReplicas", "value": workers})
    if workers < groups[place].get("minReplicas", 0):
        changes.append({"op": "replace", "path": f"{path}/minReplicas", "value": workers})
    api.patch("RayCluster", known.name, changes)
    wait_until_up(api, known.name, workers, known.details["start_deadline_s"], tell, exactly=True)
    tell(known.name, "done", f"{workers} workers")


def down(known: Known, tell: Tell) -> None:
    """End the cluster: first what makes pods, then, when these are gone, what they refer to, then what is known."""
    api = api_of(known)
    there = api.get("RayCluster", known.name)
    if there is not None and not _is_this(there, known):
        knowledge.remove(known.name)
        tell(known.name, "done", "was gone; another cluster has its name now, and stays")
        return
    end(api, "RayCluster", known.name, tell)
    knowledge.remove(known.name)
    tell(known.name, "done", "gone")


def api_of(known: Known) -> Api:
    return Api(known.details["namespace"], known.details["context"] or None)


def gone(known: Known) -> ClusterError:
    return ClusterError(
        f"The RayCluster {known.name} is no longer in the namespace {known.details['namespace']}.",
        fix=f"dray cluster down {known.name} forgets it, dray cluster up makes it anew.",
    )


def check_free(api: Api, settings: Settings, name: str) -> None:
    """Refuse a name that something in the namespace has: a cluster and a job share the names of their parts."""
    for kind, part in (("RayCluster", name), ("RayJob", name), ("Secret", token_name(name))):
        there = api.get(kind, part)
        if there is not None and (kind != "Secret" or not _is_drays(there)):
            raise _taken(f"{kind} {part}", settings)


def own(api: Api, owner: dict[str, Any], kind: str, name: str) -> None:
    """Have Kubernetes delete an object with its owner."""
    reference = {key: owner.get(key) for key in ("apiVersion", "kind")} | {
        key: owner["metadata"].get(key) for key in ("name", "uid")
    }
    api.patch(kind, name, [{"op": "add", "path": "/metadata/ownerReferences", "value": [reference]}])


def _make(api: Api, settings: Settings, cluster: Manifest, token: str) -> Known:
    knowledge.save(_known(settings, api))  # before anything is made: whatever happens now, `down` finds it
    api.apply(token_secret(settings, settings.name, token))
    made = api.apply(cluster)
    known = _known(settings, api, made["metadata"]["uid"])
    knowledge.save(known)
    own(api, made, "Secret", token_name(settings.name))
    return known


def _undo(api: Api, name: str, tell: Tell, error: BaseException) -> None:
    tell(name, "failed", "removing what was made")
    try:
        end(api, "RayCluster", name, tell)
    except DrayError as second:
        # What is known stays, so that `down` can be run later.
        error.add_note(f"It could not be removed: {second}")
        return
    knowledge.remove(name)


def end(api: Api, kind: str, name: str, tell: Tell) -> None:
    """Delete a cluster or a job, wait for its pods to go, then delete what they referred to."""
    there = api.get(kind, name)
    if there is not None and _is_drays(there):
        tell(name, "working", "ending")
        api.delete(kind, name)
    wait_until_gone(api, name, tell)
    for kind, part in (("Secret", token_name(name)), ("ConfigMap", run_name(name))):
        there = api.get(kind, part)
        if there is not None and _is_drays(there):
            api.delete(kind, part)


def _api_for(settings: Settings) -> Api:
    """Return the API, after a look at whether the name is free on this side."""
    api = Api(settings.namespace, settings.context)
    if settings.name in knowledge.names():
        before = knowledge.read(settings.name)
        place = (before.kind, before.details.get("namespace"), before.details.get("context"))
        if place != ("kubernetes", api.namespace, api.context):
            where = before.details.get("namespace", before.kind)
            raise ClusterError(
                f'A cluster "{settings.name}" is known already, elsewhere ({where}).',
                fix=f"Choose another name, or dray cluster down {settings.name} first.",
            )
    return api


def _check_ours(there: dict[str, Any], wanted: Manifest, settings: Settings) -> None:
    if settings.name not in knowledge.names() or not _is_this(there, knowledge.read(settings.name)):
        raise _taken(f"RayCluster {settings.name}", settings)
    if "deletionTimestamp" in there["metadata"]:
        raise ClusterError(
            f"The RayCluster {settings.name} is still being deleted.", fix="Wait until it is gone, and run it again."
        )
    if there["metadata"].get("annotations", {}).get(SHAPE) != wanted["metadata"]["annotations"][SHAPE]:
        raise ClusterError(
            f"The cluster {settings.name} runs with other settings for its pods, and running pods do not change.",
            fix=f"dray cluster down {settings.name}, then up; or give this one another name.",
        )


def _keep_size(cluster: Manifest, there: dict[str, Any]) -> None:
    """What the autoscaler decided stays, within what may be."""
    for group in cluster["spec"]["workerGroupSpecs"]:
        for other in there["spec"]["workerGroupSpecs"]:
            if other["groupName"] == group["groupName"]:
                now = other.get("replicas", group["replicas"])
                group["replicas"] = min(max(now, group["minReplicas"]), group["maxReplicas"])


def _taken(what: str, settings: Settings) -> ClusterError:
    return ClusterError(
        f"The name is taken: there is a {what} in the namespace {settings.namespace} that is not this cluster.",
        fix="Choose another name or another namespace.",
    )


def _is_drays(there: dict[str, Any]) -> bool:
    return bool(there["metadata"].get("labels", {}).get(MANAGED_BY) == "dray")


def _is_this(there: dict[str, Any], known: Known) -> bool:
    """Return whether it is the one that was made here; another one with its name may have been made since."""
    return _is_drays(there) and known.details.get("uid") in (None, there["metadata"]["uid"])


def _workers(cluster: Manifest) -> int:
    return sum(group["replicas"] for group in cluster["spec"]["workerGroupSpecs"])


def _known(settings: Settings, api: Api, uid: str | None = None) -> Known:
    return Known(
        name=settings.name,
        kind="kubernetes",
        address=f"{settings.name}-head-svc.{settings.namespace}.svc:6379",
        dashboard=f"http://127.0.0.1:{DASHBOARD_PORT}",
        details={
            "namespace": settings.namespace,
            "context": api.context,
            "uid": uid,
            "image": settings.image_for(here()),
            "install": list(settings.requirements()),
            "start_deadline_s": settings.start_deadline_s,
        },
    )
