"""Nothing that happens on this side ends a job, but an interrupt; an API server that goes away is waited for."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes

from dray.clusters.kubernetes import api as api_module
from dray.clusters.kubernetes import ray_jobs
from dray.clusters.kubernetes.api import Api, UnreachableError
from dray.clusters.kubernetes.following import JobGoneError, Patience
from dray.clusters.kubernetes.settings import Settings
from dray.errors import ClusterError

RUN = {"data": "s3://bucket/rows", "label": "y", "rounds": 20, "out": "s3://bucket/run"}
LOG = ["loading 1,000 rows", "round 10", "round 20"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_TRIES", 2)


class Outage:
    """Closes the API server's port when the first line of the log is heard; opens it when that is told."""

    def __init__(self, kubernetes: FakeKubernetes, told: Any, *, missed: list[str] | None = None) -> None:
        self._kubernetes, self._told, self._missed = kubernetes, told, missed or []
        self.heard: list[str] = []
        self.count = 0

    def hear(self, line: str) -> None:
        self.heard.append(line)
        if len(self.heard) == 1:
            self._kubernetes.door.close()

    def tell(self, name: str, state: Any, words: str) -> None:
        self._told(name, state, words)
        if "Waiting for it since" in words:
            self.count += 1
            self._kubernetes.logs["train-a-submitter"] += self._missed
            self._kubernetes.door.open()


def deletions(kubernetes: FakeKubernetes) -> list[tuple[str, str, str]]:
    return [call for call in kubernetes.calls if call[0] == "delete"]


def test_a_job_outlives_an_api_server_that_goes_away_and_its_log_is_taken_up_again(
    kubernetes: FakeKubernetes, told: Any
) -> None:
    kubernetes.logs["train-a-submitter"] = LOG[:1]
    kubernetes.job_lasts = 20
    outage = Outage(kubernetes, told, missed=LOG[1:])
    status = ray_jobs.submit(Settings(), RUN, outage.tell, name="train-a", hear=outage.hear)
    assert status.status == "SUCCEEDED"
    assert outage.count == 1
    assert outage.heard == LOG
    assert any("the job is left as it is" in words for _, _, words in told)
    assert any("answers again" in words for _, _, words in told)
    assert deletions(kubernetes) == []


def test_a_job_that_ends_while_the_api_server_is_away_is_heard_to_its_end(
    kubernetes: FakeKubernetes, told: Any
) -> None:
    kubernetes.logs["train-a-submitter"] = LOG[:1]
    kubernetes.job_lasts = 10**9
    outage = Outage(kubernetes, told, missed=LOG[1:])

    def tell(name: str, state: Any, words: str) -> None:
        if "Waiting for it since" in words:
            kubernetes.job_lasts = 0
            kubernetes.step()
        outage.tell(name, state, words)

    assert ray_jobs.submit(Settings(), RUN, tell, name="train-a", hear=outage.hear).status == "SUCCEEDED"
    assert outage.heard == LOG


def test_an_outage_counts_for_no_deadline(told: Any) -> None:
    patience = Patience("train-a", told)
    begun, before = time.monotonic(), patience.clock()

    def ask() -> str:
        if time.monotonic() < begun + 0.2:
            raise UnreachableError("away")
        return "answer"

    assert patience(ask) == "answer"
    assert time.monotonic() - begun >= 0.2 > patience.clock() - before


def test_an_api_server_that_only_fails_is_waited_for_too(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.job_lasts = 5

    def tell(name: str, state: Any, words: str) -> None:
        if words == "submitted":
            kubernetes.failures += [("list", "pods", 503, "no leader")] * 5
        told(name, state, words)

    assert ray_jobs.submit(Settings(), RUN, tell, name="train-a").status == "SUCCEEDED"
    assert any("no leader" in words for _, _, words in told)
    assert deletions(kubernetes) == []


def test_a_permission_that_is_taken_away_ends_the_following_and_not_the_job(
    kubernetes: FakeKubernetes, told: Any
) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.job_lasts = 10**9

    def hear(_: str) -> None:
        kubernetes.forbidden.add(("get", "rayjobs"))

    with pytest.raises(ClusterError, match=r"forbidden.*The job train-a was left as it is") as caught:
        ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=hear)
    assert "dray job logs train-a --follow --on kubernetes --namespace default --context here" in caught.value.fix
    assert caught.value.exit_code == 1
    assert "train-a" in kubernetes.named("RayJob") and deletions(kubernetes) == []


def test_a_job_that_was_deleted_elsewhere_is_said_to_be_gone(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.job_lasts = 10**9

    def hear(_: str) -> None:
        with kubernetes.lock:
            if ("RayJob", "train-a") in kubernetes.objects:
                kubernetes.delete("RayJob", "train-a")

    with pytest.raises(JobGoneError, match="train-a was deleted while it was followed"):
        ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=hear)
    assert deletions(kubernetes) == []


@pytest.mark.parametrize("end", [SystemExit(143), RuntimeError("a fault of this side"), BrokenPipeError()])
def test_a_follower_that_ends_otherwise_leaves_the_job(
    kubernetes: FakeKubernetes, told: Any, end: BaseException
) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.job_lasts = 10**9

    def hear(_: str) -> None:
        raise end

    with pytest.raises(type(end)):
        ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=hear)
    assert "train-a" in kubernetes.named("RayJob") and deletions(kubernetes) == []


def test_a_second_interrupt_leaves_the_job_running(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.job_lasts = 10**9

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    def tell(name: str, state: Any, words: str) -> None:
        told(name, state, words)
        if "interrupt again" in words:
            monkeypatch.setattr(ray_jobs.time, "sleep", interrupt)

    with pytest.raises(KeyboardInterrupt):
        ray_jobs.submit(Settings(), RUN, tell, name="train-a", hear=interrupt)
    monkeypatch.undo()
    assert "train-a" in kubernetes.named("RayJob") and deletions(kubernetes) == []


def test_an_interrupt_during_an_outage_says_how_to_end_the_job_later(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.job_lasts = 10**9

    def hear(_: str) -> None:
        kubernetes.door.close()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=hear)
    assert "later: dray job delete train-a --on kubernetes --namespace default" in told[-1][2]


def test_the_log_of_a_job_is_followed_through_an_outage(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG[:1]
    kubernetes.job_lasts = 20
    ray_jobs.submit(Settings(), RUN, told, name="train-a", wait=False)
    outage = Outage(kubernetes, told, missed=LOG[1:])
    for line in ray_jobs.job_logs(Api("default"), "train-a", tell=outage.tell):
        outage.hear(line)
    assert outage.heard == LOG
    assert outage.count == 1
