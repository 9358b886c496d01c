"""What settings can break is refused; every other rule that the schema does not check is kept by what is rendered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from manifest_rules import broken_rules

from dray.clusters.kubernetes import images
from dray.clusters.kubernetes.images import Versions
from dray.clusters.kubernetes.render import render_cluster, render_job
from dray.clusters.kubernetes.rules import check_run
from dray.clusters.kubernetes.settings import Volume, make_settings
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
    ("ttl", lambda m: m["spec"].pop("shutdownAfterJobFinishes")),
    ("ttl", lambda m: m["spec"].update(deletionStrategy={"deletionRules": [{"policy": "DeleteSelf"}]})),
    ("ttl", lambda m: m["spec"].update(ttlSecondsAfterFinished=-1)),
    ("ttl", lambda m: m["spec"].update(backoffLimit=-1)),
    ("retries", lambda m: m["spec"].update(backoffLimit=1, clusterSelector={"ray.io/cluster": "x"})),
    ("cluster", lambda m: m["spec"].pop("rayClusterSpec")),
    ("deadline", lambda m: m["spec"].pop("preRunningDeadlineSeconds")),
    ("deadline", lambda m: m["spec"].update(activeDeadlineSeconds=900)),
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
    ("params", lambda m: head(m)["rayStartParams"].update({"num-cpus": 1})),
    ("params", lambda m: cluster_of(m)["workerGroupSpecs"][0].update(resources={"CPU": "4"})),
    ("requests", lambda m: container(worker(m))["resources"]["requests"].update(cpu="1")),
    ("requests", lambda m: container(worker(m)).pop("resources")),
    ("requests", lambda m: cluster_of(m)["autoscalerOptions"]["resources"]["limits"].update(memory="2Gi")),
    ("requests", lambda m: container(worker(m))["resources"]["limits"].update({"nvidia.com/gpu": "1"})),
    ("memory", lambda m: [part.update(memory="8G") for part in container(worker(m))["resources"].values()]),
    ("gpu", lambda m: [p.update({"nvidia.com/gpu": "0.5"}) for p in container(worker(m))["resources"].values()]),
]


@pytest.mark.parametrize(("rule", "change"), BREAKING, ids=[f"{r}-{n}" for n, (r, _) in enumerate(BREAKING)])
def test_these_tests_notice_a_broken_rule(rule: str, change: Change) -> None:
    manifest = job()
    assert not broken_rules(manifest)
    change(manifest)
    assert broken_rules(manifest) == {rule}


CLUSTERS: list[dict[str, Any]] = [
    {},
    {"autoscale": False, "head": {"works": True}, "workers": {"replicas": 0}},
    {"workers": {"min": 1, "replicas": 2, "max": 9, "cpu": "500m", "memory": "300Mi"}, "idle_s": 1},
    {"workers": {"min": 2, "replicas": 2, "gpu": 2, "memory": 10**9}, "retries": 3, "keep_s": 0},
    {"workers": {"gpu": 1, "gpu_resource": "amd.com/gpu"}, "tls": True, "service_account": "trainer"},
    {"head": {"cpu": 0.1, "memory": "8G"}, "time_limit_s": 901, "image": "me/dray:1"},
    {"start_deadline_s": 1, "time_limit_s": 2, "install": [], "pull_secrets": ["x"]},
    {"env": {"_OK_2": "s3://bucket/x"}, "secrets": {"MY_TOKEN": {"secret": "a", "key": "b"}}},
    {"volumes": {"/data": {"claim": "a", "read_only": True}}, "node_selector": {"a": "b"}},
    {"labels": {"team": "", "other": "x" * 63, "example.com/team": "A.b_c-d", "xray.io/a": "b"}},
    {"name": "n" * 47, "namespace": "9" * 63},
    {"name": "a", "tolerations": [{"key": "spot", "operator": "Exists"}]},
]


@pytest.mark.parametrize("given", CLUSTERS, ids=range(len(CLUSTERS)))
def test_what_is_rendered_keeps_every_rule(given: dict[str, Any]) -> None:
    assert not broken_rules(job(**given))
    [cluster] = render_cluster(make_settings({"autoscale": True} | given), versions=VERSIONS)
    assert not broken_rules(cluster)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "n" * 48}, "has 48 characters; a RayJob may have 47"),
        ({"name": "1st"}, '"1st" cannot be the name of a RayJob.'),
        ({"name": "a_b"}, '"a_b" cannot be the name of a RayJob.'),
        ({"namespace": "A"}, '"A" cannot be the name of a namespace.'),
        ({"labels": {"team": "a b"}}, 'The label team: "a b" is not one that Kubernetes takes.'),
        ({"labels": {"-": "y"}}, 'The label -: "y" is not one that Kubernetes takes.'),
        ({"labels": {"x": "y" * 64}}, "is not one that Kubernetes takes."),
        ({"labels": {"ray.io/cluster": "x"}}, "The label ray.io/cluster belongs to KubeRay."),
        ({"labels": {"a.ray.io/x": "y"}}, "The label a.ray.io/x belongs to KubeRay."),
        ({"install": ["x @ https://me:pw@host/x.whl"]}, "The job holds an address with credentials"),
        ({"env": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS in the environment of the pods would hold"),
        ({"env": {"a-b": "1"}}, '"a-b" is not the name of a variable.'),
        ({"secrets": {"a-b": {"secret": "a", "key": "b"}}}, '"a-b" is not the name of a variable.'),
        ({"env": {"AWS_SECRET_ACCESS_KEY": "x"}}, "AWS_SECRET_ACCESS_KEY looks like a secret"),
        ({"env": {"DB": "postgres://me:pw@host/db"}}, "DB looks like a secret"),
        ({"image": "rayproject/ray:2.59.0-py311"}, "has Ray 2.59.0"),
        ({"image": "rayproject/ray:2.60.0-py312"}, "has Python 3.12"),
    ],
)
def test_what_settings_can_break_is_refused_once_and_with_a_fix(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        job(**given)
    assert words in caught.value.what
    assert caught.value.fix
    assert "more to mend" not in caught.value.fix


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


def test_a_node_must_hold_the_pod_and_what_the_system_needs_beside_it() -> None:
    def complain(node: dict[str, Any], **given: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            render_cluster(make_settings(given | {"node": node}), versions=VERSIONS)
        return f"{caught.value.what} {caught.value.fix}"

    assert "Ask for at most 0 CPUs." in complain({"cpu": 0.5, "memory": "64Gi"})
    assert "Ask for at most 0Gi." in complain({"cpu": 64, "memory": "512Mi"}).replace("0Mi", "0Gi")
    # The autoscaler is a container of the head's pod alone.
    size = {"cpu": 3, "memory": "9Gi"}
    render_cluster(
        make_settings({"workers": {"cpu": 2, "memory": "8Gi"}, "head": {"cpu": 2, "memory": "8Gi"}, "node": size}),
        versions=VERSIONS,
    )
    told = complain(size, workers={"cpu": 2, "memory": "8Gi"}, head={"cpu": 2, "memory": "8Gi"}, autoscale=True)
    assert told.startswith("A pod of head takes 2500m CPUs of a node with 3")
    assert "(1 more to mend after that.)" in told


def test_several_broken_rules_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"3 more to mend"):
        render_cluster(
            make_settings({"name": "A", "env": {"OMP_NUM_THREADS": "1", "MY_TOKEN": "x"}, "image": "ray"}),
            versions=VERSIONS,
        )


def test_a_cluster_that_could_run_no_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Nothing could run tasks"):
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


@pytest.mark.parametrize("out", ["/data", "/data/", "file:///data/run", "/data/x/../run", "s3://b/run"])
def test_a_volume_and_all_below_it_is_kept(out: str) -> None:
    check_run(RUN | {"out": out, "eval": None, "storage": {"region": "x"}}, volumes={"/data/": Volume(claim="a")})


@pytest.mark.parametrize("out", ["/database", "/", "data/run", "s4://b"])
def test_what_only_looks_like_a_volume_is_not_kept(out: str) -> None:
    with pytest.raises(ConfigError, match="lies on the disk of a pod"):
        check_run(RUN | {"out": out}, volumes={"/data": Volume(claim="a")})
