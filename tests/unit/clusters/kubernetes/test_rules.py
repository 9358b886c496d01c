"""Every rule that the schema does not check is kept by what is rendered, and noticed when it is broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dray.clusters.kubernetes import images
from dray.clusters.kubernetes.images import Versions
from dray.clusters.kubernetes.render import render_cluster, render_job
from dray.clusters.kubernetes.rules import broken_rules, check_run
from dray.clusters.kubernetes.settings import Settings, Volume, make_settings
from dray.errors import ConfigError

VERSIONS = Versions("2.60.0", "3.11")
RUN = {"data": "s3://bucket/rows", "label": "y", "out": "s3://bucket/run"}
Change = Callable[[dict[str, Any]], Any]


def job(**given: Any) -> dict[str, Any]:
    return render_job(make_settings({"autoscale": True} | given), RUN, versions=VERSIONS)[1]


def cluster_of(manifest: dict[str, Any]) -> dict[str, Any]:
    return dict(manifest["spec"]["rayClusterSpec"])


def head(manifest: dict[str, Any]) -> dict[str, Any]:
    return dict(cluster_of(manifest)["headGroupSpec"])


def worker(manifest: dict[str, Any]) -> dict[str, Any]:
    return dict(cluster_of(manifest)["workerGroupSpecs"][0])


def container(group: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = group["template"]["spec"]["containers"][0]
    return found


BREAKING: list[tuple[str, Change]] = [
    ("name", lambda m: m["metadata"].update(name="n" * 48)),
    ("name", lambda m: m["metadata"].update(name="1st")),
    ("name", lambda m: m["metadata"].update(name="a-")),
    ("name", lambda m: m["metadata"].update(namespace="A")),
    ("label", lambda m: m["metadata"]["labels"].update(team="a b")),
    ("label", lambda m: m["metadata"]["labels"].update({"ray.io/cluster": "x"})),
    ("ttl", lambda m: m["spec"].pop("shutdownAfterJobFinishes")),
    ("ttl", lambda m: m["spec"].update(deletionStrategy={"deletionRules": [{"policy": "DeleteSelf"}]})),
    ("ttl", lambda m: m["spec"].update(ttlSecondsAfterFinished=-1)),
    ("retries", lambda m: m["spec"].update(backoffLimit=1, clusterSelector={"ray.io/cluster": "x"})),
    ("cluster", lambda m: m["spec"].pop("rayClusterSpec")),
    ("deadline", lambda m: m["spec"].pop("preRunningDeadlineSeconds")),
    ("deadline", lambda m: m["spec"].update(activeDeadlineSeconds=900)),
    ("secret", lambda m: m["spec"].update(entrypoint="dray train s3://key:secret@bucket/x")),
    ("secret", lambda m: m["spec"].update(runtimeEnvYAML="pip: ['x @ https://me:pw@host/x.whl']")),
    ("token", lambda m: cluster_of(m)["authOptions"].update(mode="disabled")),
    ("token", lambda m: m["spec"]["rayClusterSpec"].update(rayVersion="2.51.2")),
    ("token", lambda m: m["spec"]["rayClusterSpec"].pop("rayVersion")),
    ("token", lambda m: container(worker(m)).update(env=[])),
    ("token", lambda m: m["spec"]["submitterPodTemplate"]["spec"]["containers"][0].pop("env")),
    ("exposure", lambda m: cluster_of(m)["headGroupSpec"].update(serviceType="LoadBalancer")),
    ("exposure", lambda m: cluster_of(m)["headGroupSpec"].update(headService={"spec": {"type": "NodePort"}})),
    ("exposure", lambda m: cluster_of(m)["headGroupSpec"].update(enableIngress=True)),
    ("autoscaler", lambda m: head(m)["template"]["spec"].update(restartPolicy="Always")),
    ("autoscaler", lambda m: worker(m)["template"]["spec"].update(restartPolicy="OnFailure")),
    ("replicas", lambda m: cluster_of(m)["workerGroupSpecs"][0].update(minReplicas=3)),
    ("replicas", lambda m: cluster_of(m)["workerGroupSpecs"][0].update(replicas=9)),
    ("replicas", lambda m: cluster_of(m)["workerGroupSpecs"].clear()),
    ("params", lambda m: head(m)["rayStartParams"].update({"num-cpus": 1})),
    ("params", lambda m: cluster_of(m)["workerGroupSpecs"][0].update(resources={"CPU": "4"})),
    ("requests", lambda m: container(worker(m))["resources"]["requests"].update(cpu="1")),
    ("requests", lambda m: container(worker(m)).pop("resources")),
    ("requests", lambda m: cluster_of(m)["autoscalerOptions"]["resources"]["limits"].update(memory="2Gi")),
    ("requests", lambda m: container(worker(m))["resources"]["limits"].update({"nvidia.com/gpu": "1"})),
    ("memory", lambda m: [part.update(memory="8G") for part in container(worker(m))["resources"].values()]),
    ("gpu", lambda m: [p.update({"nvidia.com/gpu": "0.5"}) for p in container(worker(m))["resources"].values()]),
    ("threads", lambda m: container(worker(m))["env"].append({"name": "OMP_NUM_THREADS", "value": "1"})),
    ("env", lambda m: container(worker(m))["env"].append({"name": "a-b", "value": "1"})),
    ("secret", lambda m: container(head(m))["env"].append({"name": "AWS_SECRET_ACCESS_KEY", "value": "x"})),
    ("secret", lambda m: container(head(m))["env"].append({"name": "DB", "value": "postgres://me:pw@host/db"})),
    ("image", lambda m: container(worker(m)).update(image="rayproject/ray:2.59.0-py311")),
    ("image", lambda m: container(worker(m)).update(image="rayproject/ray:2.60.0-py312")),
]


@pytest.mark.parametrize(("rule", "change"), BREAKING, ids=[f"{r}-{n}" for n, (r, _) in enumerate(BREAKING)])
def test_a_broken_rule_is_noticed(rule: str, change: Change) -> None:
    manifest = job()
    assert broken_rules(manifest, versions=VERSIONS) == []
    change(manifest)
    found = broken_rules(manifest, versions=VERSIONS)
    assert rule in {broken.rule for broken in found}
    assert all(broken.what.endswith(".") and broken.fix for broken in found)


def test_a_cluster_may_have_a_longer_name_than_a_job() -> None:
    settings = make_settings({"name": "n" * 53})
    render_cluster(settings, versions=VERSIONS)
    with pytest.raises(ConfigError, match=r"has 53 characters; a RayJob may have 47"):
        render_job(settings, RUN, versions=VERSIONS)
    with pytest.raises(ConfigError, match=r"has 54 characters; a RayCluster may have 53"):
        render_cluster(make_settings({"name": "n" * 54}), versions=VERSIONS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workers": {"cpu": 7.5}}, "workers takes 7500m CPUs of a node with 8: .*at most 7 CPUs"),
        ({"workers": {"memory": "31.5Gi"}}, "workers takes 32256Mi of a node with 32Gi.*at most 31Gi"),
        ({"head": {"cpu": 7}, "autoscale": True}, "head takes 7500m CPUs"),
    ],
)
def test_room_is_left_on_the_node(given: dict[str, Any], words: str) -> None:
    node = {"node": {"cpu": 8, "memory": "32Gi"}}
    render_cluster(make_settings({"workers": {"cpu": 7, "memory": "31Gi"}} | node), versions=VERSIONS)
    with pytest.raises(ConfigError, match=words):
        render_cluster(make_settings(given | node), versions=VERSIONS)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("rayproject/ray:2.60.0-py311", ""),
        ("rayproject/ray:2.60.0-py311-gpu", ""),
        ("localhost:5000/rayproject/ray:2.60.0-py311", ""),
        ("registry:5000/me/dray:1.4.2", ""),
        ("me/dray@sha256:0123", ""),
        ("me/dray:2.60.0-py310", "Python 3.10"),
        ("rayproject/ray:2.60.0", "names no Python"),
        ("rayproject/ray:2.61.0-py311", "has Ray 2.61.0"),
        ("rayproject/ray-ml:2.60.0-py312", "Python 3.12"),
        ("registry:5000/me/dray", "has no tag"),
    ],
)
def test_the_tag_of_an_image_fits_this_ray_and_python(image: str, words: str) -> None:
    found = list(images.mistakes(image, VERSIONS))
    assert (words in found[0][0]) if words else found == []


def test_several_broken_rules_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"3 more to mend"):
        render_cluster(
            make_settings({"name": "A", "env": {"OMP_NUM_THREADS": "1", "MY_TOKEN": "x"}, "image": "ray"}),
            versions=VERSIONS,
        )


def test_nobody_to_work_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"Nobody could work"):
        render_cluster(make_settings({"workers": {"replicas": 0}}), versions=VERSIONS)
    render_cluster(make_settings({"workers": {"replicas": 0}, "head": {"works": True}}), versions=VERSIONS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"out": None}, "has no out, .*Add out: s3://bucket/run"),
        ({"out": "runs/1"}, "out: runs/1 lies on the disk of a pod"),
        ({"out": "/data/../tmp/run"}, "lies on the disk of a pod"),
        ({"out": "/rows/run"}, "on the volume /rows, which is read-only"),
        ({"data": ["s3://b/x", "rows.parquet"]}, "data: rows.parquet is a path of this machine"),
        ({"eval": "/home/me/rows"}, "eval: /home/me/rows is a path of this machine"),
        ({"continue_from": "runs/0"}, "continue_from: runs/0 is a path"),
        ({"params": {"x": "postgres://me:pw@host"}}, "an address with credentials"),
        ({"storage": {"profile": "work"}}, "storage.profile: work is a profile of this machine.*by reference"),
    ],
)
def test_a_run_must_be_one_that_pods_can_do(given: dict[str, Any], words: str) -> None:
    volumes = {"/data": Volume(claim="a"), "/rows": Volume(claim="b", read_only=True)}
    check_run(RUN | {"out": "/data/run", "eval": ["/rows/test"]}, volumes=volumes)
    with pytest.raises(ConfigError, match=words):
        check_run(RUN | given, volumes=volumes)


def test_the_defaults_keep_every_rule() -> None:
    [cluster] = render_cluster(Settings(), versions=VERSIONS)
    assert broken_rules(cluster, versions=VERSIONS) == []
