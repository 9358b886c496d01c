"""Whatever a server answers, what is read of it has the types that its readers count on."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from fake_kubernetes import READY, FakeKubernetes, waiting

from dray.clusters.kubernetes import api as api_module
from dray.clusters.kubernetes import ray_jobs, readiness
from dray.clusters.kubernetes.api import Api, lines_of
from dray.clusters.kubernetes.following import status_of
from dray.clusters.kubernetes.job_log import submitter
from dray.clusters.kubernetes.shapes import sound
from dray.errors import DrayError

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"job-name": "j", "ray.io/node-type": "head"}, "creationTimestamp": "2026"},
    "spec": {"nodeName": "n"},
    "status": READY | waiting("ErrImagePull", "m", {"exitCode": 1}),
}
JOB = {
    "metadata": {"name": "j", "generation": 1},
    "status": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "r", "message": "m"},
}
ODD: list[Any] = [None, True, -1, 1.5, "", "x", [], [None], [[]], [3], {}, {"": None}, {"x": [1]}]


def change(document: Any, chance: random.Random) -> None:
    """Replace one value, at any depth."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = chance.choice(keys)
        if isinstance(document[key], dict | list) and document[key] and chance.random() < 0.7:
            document = document[key]
            continue
        document[key] = copy.deepcopy(chance.choice(ODD))
        return


def test_what_is_read_of_objects_never_fails() -> None:
    chance = random.Random(0)
    for _ in range(2000):
        pod, job = copy.deepcopy(POD), copy.deepcopy(JOB)
        for document in (pod, job):
            for _ in range(chance.randrange(1, 4)):
                change(document, chance)
        found, work = sound(pod), sound(job)
        if found is not None:
            readiness.state_of(found)
            readiness.trouble_of(found)
            submitter([found, found])
            readiness.is_up(found, [found], 1)
        if work is not None:
            status_of(work)
            readiness.trouble_of_cluster(work)


@pytest.mark.parametrize("answer", ODD)
def test_what_is_no_object_is_none(answer: Any) -> None:
    assert sound(answer) is None
    assert sound({"metadata": answer}) is None


def test_what_is_sound_stays_as_it_is() -> None:
    assert sound(POD) == POD


def test_a_job_that_says_nonsense_of_itself_is_shown(kubernetes: FakeKubernetes) -> None:
    labels = {"app.kubernetes.io/managed-by": "dray"}
    kubernetes.put("RayJob", {"metadata": {"name": "j", "labels": labels}, "status": {"message": 3, "jobStatus": []}})
    kubernetes.operator = False
    assert [job.status for job in ray_jobs.jobs(Api("default"))] == ["PENDING"]


def test_an_object_without_a_name_is_an_error_in_words(
    kubernetes: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module.Api, "_text", lambda *_: '{"metadata": 3}')
    with pytest.raises(DrayError, match="does not answer as the Kubernetes API does"):
        Api("default").get("RayJob", "j")
    monkeypatch.setattr(api_module.Api, "_text", lambda *_: "[" * 100_000)
    with pytest.raises(DrayError, match="does not answer as the Kubernetes API does"):
        Api("default").get("RayJob", "j")


def test_a_log_line_without_an_end_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LONGEST_LINE", 1000)
    lines = list(lines_of(b"x" * 100 for _ in range(100)))
    assert b"".join(lines) == b"x" * 10_000
    assert max(len(line) for line in lines) <= 1100
    assert list(lines_of([b"a\nb", b"c\n", b"d"])) == [b"a", b"bc", b"d"]
