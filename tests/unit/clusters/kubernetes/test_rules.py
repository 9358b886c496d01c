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


ALLOWED: list[Change] = [
    lambda m: m["metadata"].update(name="n" * 47),
    lambda m: m["metadata"].update(name="a"),
    lambda m: m["metadata"].update(namespace="9" * 63),
    lambda m: m["metadata"]["labels"].update(team="", other="x" * 63),
    lambda m: m["metadata"]["labels"].update({"example.com/team": "A.b_c-d", "xray.io/a": "b"}),
    lambda m: (m["spec"].pop("shutdownAfterJobFinishes"), m["spec"].pop("ttlSecondsAfterFinished", None)),
    lambda m: m["spec"].update(backoffLimit=2),
    lambda m: m["spec"].update(deletionStrategy={"deletionRules": []}),
    lambda m: m["spec"].update(preRunningDeadlineSeconds=1),
    lambda m: m["spec"].update(activeDeadlineSeconds=901),
    lambda m: m["spec"].update(entrypoint="dray train s3://bucket/x@y"),
    lambda m: m["spec"]["rayClusterSpec"].update(rayVersion="2.52.0"),
    lambda m: m["spec"]["rayClusterSpec"].update(rayVersion="3.0.0"),
    lambda m: cluster_of(m)["headGroupSpec"].update(serviceType="ClusterIP"),
    lambda m: cluster_of(m)["headGroupSpec"].update(headService={"spec": {"type": "ClusterIP"}}),
    lambda m: cluster_of(m)["headGroupSpec"].update(headService=None, enableIngress=False),
    lambda m: head(m)["template"]["spec"].pop("restartPolicy", None),
    lambda m: (
        m["spec"]["rayClusterSpec"].pop("enableInTreeAutoscaling"),
        head(m)["template"]["spec"].update(restartPolicy="Always"),
    ),
    lambda m: (
        cluster_of(m)["autoscalerOptions"].update(version="v1"),
        head(m)["template"]["spec"].update(restartPolicy="Always"),
    ),
    lambda m: cluster_of(m)["workerGroupSpecs"][0].update(minReplicas=2, replicas=2, maxReplicas=2),
    lambda m: cluster_of(m)["workerGroupSpecs"][0].update(minReplicas=0, replicas=0, maxReplicas=1),
    lambda m: (cluster_of(m)["workerGroupSpecs"].clear(), head(m)["rayStartParams"].update({"num-cpus": "1"})),
    lambda m: (
        cluster_of(m)["workerGroupSpecs"][0].update(resources={"CPU": "4"}),
        worker(m)["rayStartParams"].clear(),
    ),
    lambda m: [p.update({"nvidia.com/gpu": "2"}) for p in container(worker(m))["resources"].values()],
    lambda m: [p.update(memory="8192Mi") for p in container(worker(m))["resources"].values()],
    lambda m: [p.pop("memory") for p in container(worker(m))["resources"].values()],
    lambda m: container(worker(m))["env"].append({"name": "_OK_2", "value": "s3://bucket/x"}),
    lambda m: container(worker(m))["env"].append({"name": "MY_TOKEN", "valueFrom": {"secretKeyRef": {}}}),
    lambda m: container(worker(m)).pop("image"),
]


@pytest.mark.parametrize("change", ALLOWED, ids=range(len(ALLOWED)))
def test_what_keeps_the_rules_is_not_complained_about(change: Change) -> None:
    manifest = job(time_limit_s=3600, workers={"replicas": 2})
    change(manifest)
    assert broken_rules(manifest, versions=VERSIONS) == []


def test_a_job_on_a_cluster_that_is_there_needs_no_deadline_and_no_spec() -> None:
    manifest = job()
    manifest["spec"].pop("rayClusterSpec")
    manifest["spec"].pop("preRunningDeadlineSeconds")
    manifest["spec"].update(clusterSelector={"ray.io/cluster": "x"})
    assert broken_rules(manifest, versions=VERSIONS) == []


def told(change: Change) -> list[tuple[str, str, str]]:
    manifest = job(time_limit_s=3600)
    change(manifest)
    return [(broken.rule, broken.what, broken.fix) for broken in broken_rules(manifest, versions=VERSIONS)]


def test_each_broken_rule_is_told_once_and_alone() -> None:
    assert told(lambda m: m["spec"].update(activeDeadlineSeconds=900)) == [
        (
            "deadline",
            "activeDeadlineSeconds (900) is over before preRunningDeadlineSeconds (900).",
            "Make time_limit_s longer, or start_deadline_s shorter.",
        )
    ]
    assert told(lambda m: m["spec"]["rayClusterSpec"].update(rayVersion="1.99.0"))[0][1] == (
        "Token authentication needs Ray 2.52 or newer, this is Ray 1.99.0."
    )
    assert told(lambda m: m["spec"].update(backoffLimit=-1)) == [
        ("ttl", "ttlSecondsAfterFinished and backoffLimit are numbers from 0 on.", "Change them.")
    ]
    assert told(lambda m: head(m)["rayStartParams"].update({"num-cpus": 0})) == [
        ("params", "rayStartParams num-cpus: 0 is not text.", 'Write "0".')
    ]
    [(rule, what, _)] = told(lambda m: head(m)["template"]["spec"].update(restartPolicy="Always"))
    assert (rule, what) == ("autoscaler", "Autoscaler v2 needs restartPolicy Never; the head has Always.")
    [(rule, what, _)] = told(lambda m: cluster_of(m)["autoscalerOptions"]["resources"]["limits"].update(cpu="9"))
    assert rule == "requests"
    assert what.startswith("Requests and limits of autoscaler differ: ")
    worker_env = {"name": "RAY_AUTH_MODE", "value": "token"}
    [(rule, what, _)] = told(lambda m: container(worker(m)).update(env=[worker_env]))
    assert (rule, what) == ("token", "The container ray-worker is without the token.")
    both = [{"name": "RAY_AUTH_TOKEN", "valueFrom": {}}, {"name": "RAY_AUTH_MODE", "value": "none"}]
    assert [rule for rule, *_ in told(lambda m: container(worker(m)).update(env=both))] == ["token"]
    assert [rule for rule, *_ in told(lambda m: m["metadata"]["labels"].update({"a.ray.io/x": "y"}))] == ["label"]
    assert [rule for rule, *_ in told(lambda m: m["metadata"]["labels"].update({"-": "y"}))] == ["label"]
    assert [rule for rule, *_ in told(lambda m: m["metadata"]["labels"].update({"x": "y" * 64}))] == ["label"]


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


def test_nobody_to_work_is_a_mistake() -> None:
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


def test_the_defaults_keep_every_rule() -> None:
    [cluster] = render_cluster(Settings(), versions=VERSIONS)
    assert broken_rules(cluster, versions=VERSIONS) == []
