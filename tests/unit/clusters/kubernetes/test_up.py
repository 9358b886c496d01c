"""Clusters are made, changed and removed through the API; what cannot work leaves nothing behind."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import READY, FakeKubernetes, unschedulable, waiting

from dray.clusters import known as knowledge
from dray.clusters.kubernetes import readiness, up
from dray.clusters.kubernetes import waiting as patience
from dray.clusters.kubernetes.settings import Settings, make_settings
from dray.errors import ClusterError, ConfigError

IMAGE_ERROR = waiting("ImagePullBackOff", 'Back-off pulling image "nowhere/dray:1"')


def workers_are(status: dict[str, Any]) -> Any:
    return lambda pod: status if pod["metadata"]["labels"]["ray.io/node-type"] == "worker" else READY


def test_a_cluster_comes_up_with_its_token_in_a_secret(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    assert kubernetes.named("RayCluster") == ["dray"]
    assert kubernetes.named("Pod") == ["dray-head", "dray-workers-0", "dray-workers-1"]
    secret = kubernetes.objects["Secret", "dray-token"]
    assert base64.b64decode(secret["data"]["auth_token"]).decode() == knowledge.token("dray")
    assert known == knowledge.read("dray")
    assert (known.kind, known.address) == ("kubernetes", "dray-head-svc.default.svc:6379")
    assert known.details["context"] == "here"
    assert ("dray-head", "done", "ready") in told
    assert told[-1] == ("dray", "done", "ready: the head and 2 workers")


def test_the_token_is_nowhere_but_in_its_secret(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    token = knowledge.token("dray")
    others = {key: thing for key, thing in kubernetes.objects.items() if key != ("Secret", "dray-token")}
    assert token not in repr((others, told, known))


def test_the_secret_goes_with_the_cluster_whoever_deletes_it(kubernetes: FakeKubernetes, told: Any) -> None:
    up.up(Settings(), told)
    kubernetes.delete("RayCluster", "dray")
    assert kubernetes.named("Secret") == []


def test_up_again_changes_nothing_and_makes_what_is_missing(kubernetes: FakeKubernetes, told: Any) -> None:
    up.up(Settings(), told)
    token, before = knowledge.token("dray"), kubernetes.objects["RayCluster", "dray"]["metadata"]["generation"]
    del kubernetes.objects["Pod", "dray-workers-1"]
    del kubernetes.objects["Secret", "dray-token"]
    up.up(Settings(), told)
    assert kubernetes.named("Pod") == ["dray-head", "dray-workers-0", "dray-workers-1"]
    assert kubernetes.objects["RayCluster", "dray"]["metadata"]["generation"] == before
    assert knowledge.token("dray") == token


def test_a_token_that_is_gone_is_not_replaced_under_running_pods(kubernetes: FakeKubernetes, told: Any) -> None:
    up.up(Settings(), told)
    knowledge.token_file("dray").unlink()
    with pytest.raises(ClusterError, match=r"token of the cluster dray is gone.*Take it down and up"):
        up.up(Settings(), told)


def test_up_again_leaves_what_the_autoscaler_decided(kubernetes: FakeKubernetes, told: Any) -> None:
    settings = make_settings({"autoscale": True, "workers": {"replicas": 1, "max": 4}})
    up.up(settings, told)
    kubernetes.objects["RayCluster", "dray"]["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    up.up(settings, told)
    assert kubernetes.objects["RayCluster", "dray"]["spec"]["workerGroupSpecs"][0]["replicas"] == 3


def test_other_settings_for_running_pods_are_refused(kubernetes: FakeKubernetes, told: Any) -> None:
    up.up(Settings(), told)
    with pytest.raises(ClusterError, match=r"runs with other settings.*down dray, then up"):
        up.up(make_settings({"workers": {"cpu": 8}}), told)
    up.up(make_settings({"workers": {"replicas": 3}}), told)
    assert "dray-workers-2" in kubernetes.named("Pod")


@pytest.mark.parametrize(
    ("forbidden", "words"),
    [
        (
            ("create", "rayclusters"),
            "may not create rayclusters in the namespace default.*Ask the cluster's administrator",
        ),
        (("create", "pods/portforward"), "may not create pods/portforward"),
    ],
)
def test_without_permission_nothing_is_made(
    kubernetes: FakeKubernetes, told: Any, forbidden: tuple[str, str], words: str
) -> None:
    kubernetes.forbidden.add(forbidden)
    with pytest.raises(ClusterError, match=words):
        up.up(Settings(), told)
    assert kubernetes.made() == [] and knowledge.names() == []


def test_a_refusal_that_no_review_foresaw_undoes_what_was_made(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.failures.append(("patch", "secrets", 403, 'secrets "dray-token" is forbidden: exceeded quota: q'))
    with pytest.raises(ClusterError, match=r"exceeded quota.*a larger quota"):
        up.up(Settings(), told)
    assert kubernetes.made() == [] and knowledge.names() == []


def test_without_kuberay_the_error_says_how_to_install_it(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.kuberay = False
    with pytest.raises(ClusterError, match=r"here has no KubeRay.*helm install kuberay-operator"):
        up.up(Settings(), told)


def test_a_name_that_somebody_else_has_is_refused(kubernetes: FakeKubernetes, told: Any) -> None:
    theirs = kubernetes.put("RayCluster", {"metadata": {"name": "dray", "labels": {}}, "spec": {}})
    kubernetes.operator = False
    with pytest.raises(ClusterError, match=r"name is taken: there is a RayCluster dray"):
        up.up(Settings(), told)
    theirs["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "dray"  # a colleague's
    with pytest.raises(ClusterError, match=r"Choose another name"):
        up.up(Settings(), told)
    assert kubernetes.made() == [("RayCluster", "dray")] and knowledge.names() == []


def test_a_name_that_means_something_else_is_refused(kubernetes: FakeKubernetes, told: Any) -> None:
    with pytest.raises(ConfigError, match=r'"auto" cannot be the name of a cluster'):
        up.up(Settings(name="auto"), told)
    assert kubernetes.calls == []


@pytest.mark.parametrize("kind", ["Secret", "RayJob"])
def test_a_name_that_a_part_would_have_is_refused(kubernetes: FakeKubernetes, told: Any, kind: str) -> None:
    name = "dray-token" if kind == "Secret" else "dray"
    kubernetes.operator = False
    kubernetes.put(kind, {"metadata": {"name": name, "labels": {}}, "data": {}})
    with pytest.raises(ClusterError, match=f"{kind} {name}"):
        up.up(Settings(), told)
    assert kubernetes.made() == [(kind, name)]


def test_a_name_that_is_known_elsewhere_is_refused(kubernetes: FakeKubernetes, told: Any) -> None:
    knowledge.save(knowledge.Known("dray", "fleet", "host:6379", "http://127.0.0.1:8265"))
    with pytest.raises(ClusterError, match=r'"dray" is known already, elsewhere \(fleet\)'):
        up.up(Settings(), told)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"namespace": "nowhere"}, 'no namespace "nowhere".*kubectl create namespace nowhere'),
        ({"secrets": {"AWS_ACCESS_KEY_ID": {"secret": "s3", "key": "access"}}}, "no Secret s3 .*secrets names it"),
        ({"pull_secrets": ["registry"]}, "no Secret registry .*pull_secrets names it"),
        ({"service_account": "robot"}, "no ServiceAccount robot"),
        ({"volumes": {"/data": {"claim": "rows"}}}, "no PersistentVolumeClaim rows"),
    ],
)
def test_what_the_settings_refer_to_must_be_there(
    kubernetes: FakeKubernetes, told: Any, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ClusterError, match=words):
        up.up(make_settings(given), told)
    assert kubernetes.made() == []


def test_a_namespace_that_may_not_be_looked_at_may_still_be_used(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.forbidden.add(("get", "namespaces"))
    up.up(Settings(), told)


def test_an_image_that_cannot_be_pulled_is_named_and_all_is_removed(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readiness.GRACE_S, "ImagePullBackOff", 0.05)
    kubernetes.becomes = workers_are(IMAGE_ERROR)
    with pytest.raises(ClusterError, match=r"dray-workers-0: ImagePullBackOff .*nowhere/dray:1.*Check image"):
        up.up(make_settings({"image": "nowhere/dray:1"}), told)
    assert kubernetes.made() == [] and knowledge.names() == []
    assert ("dray-head", "done", "ready") in told


def test_a_pod_that_fits_no_node_has_until_the_deadline(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.becomes = workers_are(unschedulable("0/3 nodes are available: 3 Insufficient cpu."))
    with pytest.raises(ClusterError, match=r"After 2 s .*0 of 2 workers .*Insufficient cpu.*less"):
        up.up(make_settings({"start_deadline_s": 2}), told)
    assert kubernetes.made() == []


def test_a_pod_that_crashes_is_named_with_its_end(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readiness.GRACE_S, "CrashLoopBackOff", 0.0)
    crash = waiting("CrashLoopBackOff", "back-off 10s", {"reason": "OOMKilled", "exitCode": 137})
    kubernetes.becomes = workers_are(crash)
    with pytest.raises(ClusterError, match=r"CrashLoopBackOff .*OOMKilled, exit code 137"):
        up.up(Settings(), told)


def test_an_operator_that_cannot_make_pods_is_heard(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readiness.GRACE_S, "ReplicaFailure", 0.0)
    message = "pods is forbidden: exceeded quota"
    kubernetes.conditions = [{"type": "ReplicaFailure", "status": "True", "message": message}]
    kubernetes.becomes = workers_are({"phase": "Pending"})
    with pytest.raises(ClusterError, match=r"ReplicaFailure .*exceeded quota"):
        up.up(Settings(), told)


def test_without_an_operator_the_error_says_so(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.operator = False
    with pytest.raises(ClusterError, match=r"there is no pod of dray.*KubeRay operator runs"):
        up.up(make_settings({"start_deadline_s": 1}), told)
    assert kubernetes.made() == []


def test_a_cluster_that_was_there_stays_when_it_cannot_be_repaired(kubernetes: FakeKubernetes, told: Any) -> None:
    up.up(Settings(), told)
    kubernetes.becomes = workers_are(unschedulable("no room"))
    with pytest.raises(ClusterError, match=r"no room"):
        up.up(make_settings({"workers": {"replicas": 3}, "start_deadline_s": 1}), told)
    assert kubernetes.named("RayCluster") == ["dray"] and knowledge.names() == ["dray"]


def test_a_change_at_the_same_time_is_told(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.failures.append(("patch", "rayclusters", 409, 'Apply failed with 1 conflict: conflict with "kubectl"'))
    with pytest.raises(ClusterError, match=r'conflict with "kubectl".*at the same time'):
        up.up(Settings(), told)
    assert kubernetes.made() == []


def test_an_api_server_that_restarts_is_waited_for(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.failures += [("list", "pods", 503, "the server is starting")] * 2
    up.up(Settings(), told)


def test_unknown_fields_mean_an_old_kuberay(kubernetes: FakeKubernetes, told: Any) -> None:
    message = "failed to create typed patch object: .spec.authOptions.secretName: field not declared in schema"
    kubernetes.failures.append(("patch", "rayclusters", 500, message))
    with pytest.raises(ClusterError, match=r"too old for it: update the operator and its CRDs to 1.7"):
        up.up(Settings(), told)


def test_a_removal_that_fails_leaves_what_is_known_for_down(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readiness.GRACE_S, "ImagePullBackOff", 0.0)
    kubernetes.becomes = workers_are(IMAGE_ERROR)
    kubernetes.failures.append(("delete", "rayclusters", 403, "no"))
    with pytest.raises(ClusterError, match=r"ImagePullBackOff") as caught:
        up.up(Settings(), told)
    assert "could not be removed" in caught.value.__notes__[0]
    assert knowledge.names() == ["dray"]
    up.down(knowledge.read("dray"), told)
    assert kubernetes.made() == [] and knowledge.names() == []


def test_down_ends_pods_before_it_takes_their_secret(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    kubernetes.objects["Secret", "dray-token"]["metadata"].pop("ownerReferences")  # as if nobody collected
    kubernetes.calls.clear()
    up.down(known, told)
    deleted = [(resource, name) for verb, resource, name in kubernetes.calls if verb == "delete"]
    assert deleted == [("rayclusters", "dray"), ("secrets", "dray-token")]
    last_look = max(place for place, call in enumerate(kubernetes.calls) if call[:2] == ("list", "pods"))
    assert last_look < kubernetes.calls.index(("delete", "secrets", "dray-token"))
    assert kubernetes.made() == [] and knowledge.names() == []
    assert ("dray-head", "working", "ending") in told


def test_down_of_a_cluster_that_is_gone_forgets_it(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    kubernetes.objects.clear()
    up.down(known, told)
    assert knowledge.names() == []


def test_a_cluster_that_somebody_made_with_the_same_name_stays(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    kubernetes.objects["RayCluster", "dray"]["metadata"]["uid"] = "of a colleague's"
    with pytest.raises(ClusterError, match=r"name is taken"):
        up.up(Settings(), told)
    up.down(known, told)
    assert kubernetes.named("RayCluster") == ["dray"] and knowledge.names() == []


def test_down_without_permission_forgets_nothing(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    kubernetes.forbidden.add(("delete", "rayclusters"))
    with pytest.raises(ClusterError, match=r"cannot delete.*Ask the cluster's administrator"):
        up.down(known, told)
    assert knowledge.names() == ["dray"]


def test_pods_that_do_not_go_are_named(kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = up.up(Settings(), told)
    kubernetes.leaves = 10**9
    monkeypatch.setattr(patience, "GONE_S", 0.1)
    with pytest.raises(ClusterError, match=r"still there: dray-head, dray-workers-0"):
        up.down(known, told)
    assert knowledge.names() == ["dray"]


def test_the_number_of_workers_changes(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(Settings(), told)
    up.scale(known, 4, told)
    assert len(kubernetes.named("Pod")) == 5
    up.scale(known, 1, told)
    assert kubernetes.named("Pod") == ["dray-head", "dray-workers-0"]
    assert kubernetes.objects["RayCluster", "dray"]["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 4


def test_an_autoscaling_cluster_has_no_number_to_change(kubernetes: FakeKubernetes, told: Any) -> None:
    known = up.up(make_settings({"autoscale": True}), told)
    with pytest.raises(ClusterError, match=r"come and go by themselves.*workers.min"):
        up.scale(known, 4, told)


def test_later_commands_talk_to_the_cluster_that_was_meant(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = up.up(Settings(), told)
    path = Path(os.environ["KUBECONFIG"])
    path.write_text(path.read_text().replace("current-context: here", "current-context: nowhere"))
    up.scale(known, 1, told)


@pytest.mark.parametrize(
    ("context", "error", "words"),
    [
        ("ther", ConfigError, r'no context "ther".*Use one of: here, nobody, nowhere'),
        ("nobody", ClusterError, "Unauthorized.*Log in again"),
        ("nowhere", ClusterError, r"API at http://127.0.0.1:9 does not answer.*kubectl config get-contexts"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_told(
    kubernetes: FakeKubernetes, told: Any, context: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        up.up(Settings(context=context), told)


def test_without_a_kubeconfig_the_error_names_it(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(ClusterError, match=r"no kubeconfig at /nowhere/config"):
        up.up(Settings(), told)


def test_without_the_library_the_error_names_the_extra(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ConfigError, match=r"pip install 'dray\[kubernetes\]'"):
        up.up(Settings(), told)
