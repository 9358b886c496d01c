"""Runs are trained by RayJobs: submitted, followed to their end, stopped, deleted."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from fake_kubernetes import FakeKubernetes, waiting

from dray.clusters.kubernetes import following, ray_jobs, readiness
from dray.clusters.kubernetes.api import Api
from dray.clusters.kubernetes.settings import Settings, make_settings
from dray.errors import ClusterError, ConfigError

RUN = {"data": "s3://bucket/rows", "label": "y", "rounds": 20, "out": "s3://bucket/run", "cluster": "local"}
LOG = ["loading 1,000 rows", "round 20", '{"rounds": 20}']


def test_a_job_is_followed_to_its_end(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    heard: list[str] = []
    status = ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=heard.append)
    assert (status.name, status.status, status.over) == ("train-a", "SUCCEEDED", True)
    assert heard == LOG
    assert told[-1] == ("train-a", "done", "succeeded")
    run = kubernetes.objects["ConfigMap", "train-a-run"]["data"]["run.yaml"]
    assert yaml.safe_load(run) == {key: value for key, value in RUN.items() if key != "cluster"}


def test_a_log_that_breaks_off_is_taken_up_where_it_was(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.log_breaks_after = 2
    kubernetes.job_lasts = 20
    heard: list[str] = []
    ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=heard.append)
    assert heard == LOG


def test_jobs_get_names_of_their_own(kubernetes: FakeKubernetes, told: Any) -> None:
    first, second = (ray_jobs.submit(Settings(), RUN, told, wait=False).name for _ in range(2))
    assert first != second
    assert all(name.startswith("dray-") for name in (first, second))
    long = ray_jobs.submit(make_settings({"name": "n" * 53}), RUN, told, wait=False).name
    assert len(long) <= 47


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed", "message": "exit code 2"},
            "failed, AppFailed, exit code 2",
        ),
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "reason": "DeadlineExceeded"},
            "failed, DeadlineExceeded",
        ),
        ({"jobDeploymentStatus": "ValidationFailed", "message": "name too long"}, "failed, name too long"),
    ],
)
def test_a_job_that_fails_says_why(kubernetes: FakeKubernetes, told: Any, end: dict[str, str], words: str) -> None:
    kubernetes.job_end = end
    status = ray_jobs.submit(Settings(), RUN, told)
    assert status.status == "FAILED"
    assert told[-1][1:] == ("failed", words)


def test_a_job_whose_image_is_bad_is_removed_at_once(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readiness.GRACE_S, "ErrImagePull", 0.0)
    kubernetes.becomes = lambda pod: waiting("ErrImagePull", "not found")
    with pytest.raises(ClusterError, match=r"does not start. .*ErrImagePull .not found.*Check image"):
        ray_jobs.submit(Settings(), RUN, told)
    assert kubernetes.made() == []


def test_a_job_that_nobody_acts_on_is_given_up(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SLACK_S", 0.0)
    kubernetes.operator = False
    with pytest.raises(ClusterError, match=r"did not start after 1 s, and KubeRay did not end it.*operator runs"):
        ray_jobs.submit(make_settings({"start_deadline_s": 1}), RUN, told)
    assert kubernetes.made() == []


def test_a_time_limit_is_kept_from_here_too(
    kubernetes: FakeKubernetes, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SLACK_S", -2.0)
    kubernetes.job_lasts = 10**9
    with pytest.raises(ClusterError, match=r"is not over after 2 s"):
        ray_jobs.submit(make_settings({"start_deadline_s": 3, "time_limit_s": 4}), RUN, told)
    assert kubernetes.made() == []


def test_an_interrupted_job_is_stopped_and_removed(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    kubernetes.job_lasts = 10**9

    def hear(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=hear)
    assert kubernetes.made() == []


def test_a_job_that_is_not_followed_goes_on(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = LOG
    api = Api("default")
    assert ray_jobs.submit(Settings(), RUN, told, name="train-a", wait=False).status == "PENDING"
    assert [job.name for job in ray_jobs.jobs(api)] == ["train-a"]
    with pytest.raises(ClusterError, match=r"has no log: its submitter has not started"):
        list(ray_jobs.job_logs(api, "train-a"))
    assert list(ray_jobs.job_logs(api, "train-a", tell=told)) == LOG
    assert ray_jobs.job_status(api, "train-a").status == "SUCCEEDED"
    assert list(ray_jobs.job_logs(api, "train-a", lines=1)) == LOG[-1:]


def test_a_stopped_job_stays_to_be_looked_at(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.job_lasts = 10**9
    api = Api("default")
    ray_jobs.submit(Settings(), RUN, told, name="train-a", wait=False)
    ray_jobs.stop_job(api, "train-a", told)
    kubernetes.step()
    assert ray_jobs.job_status(api, "train-a").status == "STOPPED"


def test_a_deleted_job_leaves_nothing(kubernetes: FakeKubernetes, told: Any) -> None:
    api = Api("default")
    ray_jobs.submit(Settings(), RUN, told, name="train-a")
    kubernetes.calls.clear()
    ray_jobs.delete_job(api, "train-a", told)
    assert kubernetes.made() == []
    assert next(call for call in kubernetes.calls if call[0] == "delete") == ("delete", "rayjobs", "train-a")


def test_a_job_that_is_not_there_is_named_with_the_nearest(kubernetes: FakeKubernetes, told: Any) -> None:
    ray_jobs.submit(Settings(), RUN, told, name="train-a", wait=False)
    with pytest.raises(ClusterError, match=r'no job "train-b" in the namespace default. Did you mean "train-a"'):
        ray_jobs.delete_job(Api("default"), "train-b", told)


def test_a_name_that_is_taken_is_refused_and_stays(kubernetes: FakeKubernetes, told: Any) -> None:
    ray_jobs.submit(Settings(), RUN, told, name="train-a", wait=False)
    before = kubernetes.made()
    with pytest.raises(ClusterError, match=r"name is taken: there is a RayJob train-a"):
        ray_jobs.submit(Settings(), RUN, told, name="train-a")
    assert kubernetes.made() == before


def test_a_run_that_pods_cannot_do_asks_nobody(kubernetes: FakeKubernetes, told: Any) -> None:
    with pytest.raises(ConfigError, match=r"would lie on the disk of a pod"):
        ray_jobs.submit(Settings(), {"data": "s3://bucket/rows", "label": "y"}, told)
    assert kubernetes.calls == []


def test_the_token_of_a_job_is_in_its_secret_alone(kubernetes: FakeKubernetes, told: Any) -> None:
    status = ray_jobs.submit(Settings(), RUN, told, name="train-a", wait=False)
    token = kubernetes.objects["Secret", "train-a-token"]["data"]["auth_token"]
    others = {key: thing for key, thing in kubernetes.objects.items() if key != ("Secret", "train-a-token")}
    assert token not in repr((others, told, status))
