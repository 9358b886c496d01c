"""What keeps pods from running is told in words, and given up on in time."""

from __future__ import annotations

from typing import Any

import pytest
from fake_kubernetes import READY, unschedulable, waiting

from dray.clusters.kubernetes import readiness
from dray.clusters.kubernetes.waiting import Watch


def pod(status: dict[str, Any], name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {}, "status": status}


FAILED = {
    "phase": "Failed",
    "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}],
}
INIT = {
    "phase": "Pending",
    "initContainerStatuses": [{"name": "wait-gcs-ready", "state": {"running": {}}}],
    "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (READY, "done", "ready"),
        ({"phase": "Running"}, "working", "starting"),
        ({"phase": "Pending"}, "waiting", "waiting for a node"),
        (INIT, "waiting", "waiting (wait-gcs-ready)"),
        (unschedulable("0/3 nodes are available."), "waiting", "Unschedulable 0/3 nodes are available"),
        (waiting("ImagePullBackOff", "no such image"), "failed", "ImagePullBackOff no such image"),
        (FAILED, "failed", "Failed OOMKilled, exit code 137"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "failed", "Failed Evicted low on disk"),
    ],
)
def test_a_pod_says_how_it_does(status: dict[str, Any], state: str, words: str) -> None:
    assert readiness.state_of(pod(status)) == (state, words)


def test_a_pod_that_is_going_is_not_ready() -> None:
    assert not readiness.is_ready(pod(READY, deletionTimestamp="now"))
    assert readiness.state_of(pod(READY, deletionTimestamp="now")) == ("working", "ending")


def test_every_trouble_has_a_fix() -> None:
    for reason in (*readiness.GRACE_S, "Unschedulable"):
        assert readiness.Trouble("p", reason, "").fix


def test_a_trouble_has_its_time_to_pass() -> None:
    now = 0.0
    watch = Watch(lambda *_: None, clock=lambda: now)
    pulling = [pod(waiting("ErrImagePull"))]
    assert watch.hopeless(watch.look(pulling)) is None
    now = 59.0
    assert watch.hopeless(watch.look([pod(waiting("ImagePullBackOff"))])) is None  # the same trouble, in its other word
    now = 61.0
    assert watch.hopeless(watch.look(pulling)) is not None


def test_a_trouble_that_passed_begins_anew() -> None:
    now = 0.0
    watch = Watch(lambda *_: None, clock=lambda: now)
    watch.look([pod(waiting("ErrImagePull"))])
    now = 30.0
    watch.look([pod(READY)])
    now = 70.0
    assert watch.hopeless(watch.look([pod(waiting("ErrImagePull"))])) is None


def test_a_node_may_always_come() -> None:
    now = 0.0
    watch = Watch(lambda *_: None, clock=lambda: now)
    watch.look([pod(unschedulable("no room"))])
    now = 1e6
    assert watch.hopeless(watch.look([pod(unschedulable("no room"))])) is None


def test_only_what_is_new_is_told() -> None:
    told: list[Any] = []
    watch = Watch(lambda *words: told.append(words))
    for status in (INIT, INIT, READY, READY):
        watch.look([pod(status)])
    assert told == [("p", "waiting", "waiting (wait-gcs-ready)"), ("p", "done", "ready")]


def labelled(kind: str, status: dict[str, Any] = READY, **metadata: Any) -> dict[str, Any]:
    return pod(status, labels={"ray.io/node-type": kind}, **metadata)


HEAD, WORKER, STARTING = labelled("head"), labelled("worker"), labelled("worker", {"phase": "Running"})
CLUSTER = {"metadata": {"name": "c", "generation": 2}, "status": {"observedGeneration": 2}}


@pytest.mark.parametrize(
    ("pods", "workers", "exactly", "up"),
    [
        ([HEAD, WORKER, WORKER], 2, False, True),
        ([HEAD, WORKER, STARTING], 2, False, False),
        ([WORKER, WORKER, WORKER], 2, False, False),
        ([labelled("head", {"phase": "Running"}), WORKER, WORKER], 2, False, False),
        ([HEAD, WORKER, WORKER, STARTING], 2, False, True),
        ([HEAD, WORKER, WORKER, STARTING], 2, True, False),
        ([HEAD, WORKER, WORKER], 2, True, True),
        ([HEAD, WORKER, WORKER], 3, True, False),
        ([HEAD], 0, True, True),
        ([], 0, False, False),
    ],
)
def test_a_cluster_is_up_with_its_head_and_its_workers(
    pods: list[dict[str, Any]], workers: int, exactly: bool, up: bool
) -> None:
    assert readiness.is_up(CLUSTER, pods, workers, exactly=exactly) is up
    behind = {**CLUSTER, "status": {"observedGeneration": 1}}
    assert not readiness.is_up(behind, pods, workers, exactly=exactly)
    assert not readiness.is_up({**CLUSTER, "status": {}}, pods, workers, exactly=exactly)
    assert readiness.is_up({"metadata": {"name": "c"}}, pods, workers, exactly=exactly) is up


def test_pods_are_known_by_their_labels() -> None:
    kinds = [(readiness.is_head(one), readiness.is_worker(one), readiness.is_submitter(one)) for one in (
        HEAD, WORKER, pod(READY), pod(READY, labels={"job-name": "x"}),
        pod(READY, labels={"batch.kubernetes.io/job-name": "x"}),
    )]  # fmt: skip
    assert kinds == [
        (True, False, False),
        (False, True, False),
        (False, False, False),
        (False, False, True),
        (False, False, True),
    ]


def test_what_kuberay_cannot_make_is_told() -> None:
    def cluster(**condition: str) -> dict[str, Any]:
        return {"metadata": {"name": "c"}, "status": {"conditions": [condition]}}

    found = readiness.trouble_of_cluster(cluster(type="ReplicaFailure", status="True", message="exceeded  quota."))
    assert found == readiness.Trouble("c", "ReplicaFailure", "exceeded quota")
    assert str(found) == "c: ReplicaFailure (exceeded quota)"
    assert "a quota" in found.fix
    found = readiness.trouble_of_cluster(cluster(type="ReplicaFailure", status="True", reason="FailedCreate"))
    assert str(found) == "c: ReplicaFailure (FailedCreate)"
    assert readiness.trouble_of_cluster(cluster(type="ReplicaFailure", status="False", message="x")) is None
    assert readiness.trouble_of_cluster(cluster(type="Ready", status="True", message="x")) is None


def test_a_container_that_crashes_is_told_with_how_it_ended() -> None:
    status = waiting("CrashLoopBackOff", "back-off 40s")
    status["containerStatuses"][0]["lastState"] = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    found = readiness.trouble_of(pod(status))
    assert str(found) == "p: CrashLoopBackOff (back-off 40s; it ended with OOMKilled, exit code 137)"
    assert readiness.trouble_of(pod(waiting("ContainerCreating"))) is None
    scheduled = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert readiness.trouble_of(pod(scheduled)) is None
    assert str(readiness.Trouble("p", "Odd", "")) == "p: Odd"
    assert readiness.Trouble("p", "Odd", "").fix == "kubectl describe pod tells more."


def test_a_pod_on_its_way_says_where_it_is() -> None:
    there = pod({"phase": "Pending"})
    there["spec"]["nodeName"] = "n1"
    assert readiness.state_of(there) == ("waiting", "on n1")
    not_ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    assert readiness.state_of(pod(not_ready)) == ("working", "starting")
    other = {"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}]}
    assert not readiness.is_ready(pod(other))


def test_long_messages_are_cut() -> None:
    found = readiness.trouble_of(pod(waiting("ErrImagePull", "x" * 301)))
    assert found is not None and found.message == "x" * 300 + "..."
    found = readiness.trouble_of(pod(waiting("ErrImagePull", "x" * 300)))
    assert found is not None and found.message == "x" * 300
