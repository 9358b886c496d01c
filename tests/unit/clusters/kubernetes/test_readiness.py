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
