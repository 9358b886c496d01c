"""What is rendered is what KubeRay 1.7 takes, whatever the settings, and holds no secret."""

from __future__ import annotations

from typing import Any

import click
import kuberay_schema
import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dray.cli.main import dray as cli
from dray.clusters.kubernetes.images import Versions
from dray.clusters.kubernetes.render import render_cluster, render_job, to_yaml, token_secret
from dray.clusters.kubernetes.settings import Settings, make_settings
from dray.errors import ConfigError

VERSIONS = Versions("2.60.0", "3.11")
RUN = {"data": ["s3://bucket/rows"], "label": "y", "out": "s3://bucket/run", "cluster": "demo"}
FULL: dict[str, Any] = {
    "name": "demo",
    "namespace": "ml",
    "head": {"cpu": 3, "memory": "12Gi", "works": True},
    "workers": {
        "replicas": 2,
        "min": 1,
        "max": 8,
        "cpu": "3500m",
        "memory": "30G",
        "gpu": 1,
        "node_selector": {"gpu": "yes"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "autoscale": True,
    "idle_s": 30,
    "node": {"cpu": 8, "memory": "64Gi"},
    "service_account": "robot",
    "node_selector": {"pool": "ray"},
    "tolerations": [{"key": "ray", "operator": "Equal", "value": "yes"}],
    "pull_secrets": ["registry"],
    "env": {"AWS_REGION": "eu-west-1"},
    "secrets": {"AWS_ACCESS_KEY_ID": {"secret": "s3", "key": "access"}},
    "volumes": {"/data": {"claim": "rows", "read_only": True}, "/out": {"claim": "results"}},
    "labels": {"team": "blue"},
    "tls": True,
    "start_deadline_s": 600,
    "time_limit_s": 7200,
    "keep_s": 60,
    "retries": 2,
}
needs_crds = pytest.mark.skipif(not kuberay_schema.present(), reason=f"no CRDs in {kuberay_schema.CRDS}")


def both(given: dict[str, Any]) -> list[dict[str, Any]]:
    settings = make_settings(given)
    return [*render_cluster(settings, versions=VERSIONS), render_job(settings, RUN, versions=VERSIONS)[1]]


@needs_crds
@pytest.mark.parametrize("given", [{}, FULL, {"autoscale": True}, {"image": "me/dray:1"}, {"workers": {"gpu": 2}}])
def test_the_schema_takes_what_is_rendered(given: dict[str, Any]) -> None:
    for manifest in both(given):
        assert kuberay_schema.mistakes(manifest) == []
        assert yaml.safe_load(to_yaml([manifest])) == manifest


@needs_crds
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda spec: spec.update(rayVersoin="1"), "rayVersoin"),
        (lambda spec: spec["headGroupSpec"]["template"]["spec"]["containers"][0].update(imgae="x"), "imgae"),
        (lambda spec: spec["headGroupSpec"]["rayStartParams"].update(port=6379), "6379 is not of type 'string'"),
        (lambda spec: spec["authOptions"].update(mode="password"), "'password' is not one of"),
        (lambda spec: spec.pop("headGroupSpec"), "'headGroupSpec' is a required property"),
    ],
)
def test_the_check_against_the_schema_notices_mistakes(change: Any, words: str) -> None:
    [cluster] = render_cluster(Settings(), versions=VERSIONS)
    change(cluster["spec"])
    assert words in "".join(kuberay_schema.mistakes(cluster))


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True),
        "autoscale": st.booleans(),
        "head": st.fixed_dictionaries({"cpu": st.floats(0.1, 64), "memory": st.integers(1 << 28, 1 << 40)}),
        "workers": st.fixed_dictionaries(
            {
                "replicas": st.integers(1, 50),
                "cpu": st.floats(0.1, 200),
                "memory": st.integers(1 << 28, 1 << 42),
                "gpu": st.integers(0, 8),
            }
        ),
        "retries": st.integers(0, 5),
        "keep_s": st.integers(0, 10**6),
        "tls": st.booleans(),
        "env": st.dictionaries(st.from_regex(r"[A-Z]{1,3}_[0-9]", fullmatch=True), st.text(max_size=5), max_size=2),
    },
)


@needs_crds
@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(SETTINGS)
def test_any_settings_that_are_taken_make_manifests_that_are(given: dict[str, Any]) -> None:
    try:
        manifests = both(given)
    except ConfigError:
        return
    for manifest in manifests:
        assert kuberay_schema.mistakes(manifest) == []


def test_the_defaults_make_a_cluster() -> None:
    [cluster] = render_cluster(Settings(), versions=VERSIONS)
    spec = cluster["spec"]
    assert (cluster["apiVersion"], cluster["kind"], spec["rayVersion"]) == ("ray.io/v1", "RayCluster", "2.60.0")
    assert spec["authOptions"] == {"mode": "token", "secretName": "dray-token"}
    [worker] = spec["workerGroupSpecs"]
    [container] = worker["template"]["spec"]["containers"]
    assert container["image"] == "rayproject/ray:2.60.0-py311"
    amounts = {"cpu": "4", "memory": "16Gi"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_every_setting_arrives() -> None:
    cluster, job = both(FULL)
    assert cluster["metadata"]["labels"]["team"] == "blue" and cluster["metadata"]["namespace"] == "ml"
    spec = cluster["spec"]
    assert spec["tlsOptions"] == {"enabled": True}
    assert spec["autoscalerOptions"]["idleTimeoutSeconds"] == 30 and spec["enableInTreeAutoscaling"]
    head, [worker] = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert (worker["minReplicas"], worker["replicas"], worker["maxReplicas"]) == (1, 2, 8)
    assert (head["rayStartParams"]["num-cpus"], worker["rayStartParams"]["num-cpus"]) == ("3", "3")
    pod = worker["template"]["spec"]
    [container] = pod["containers"]
    limits = container["resources"]["limits"]
    assert limits == {"cpu": "3500m", "memory": "28610Mi", "nvidia.com/gpu": "1"} == container["resources"]["requests"]
    assert container["image"] == "rayproject/ray:2.60.0-py311-gpu"
    assert pod["nodeSelector"] == {"pool": "ray", "gpu": "yes"} and len(pod["tolerations"]) == 2
    assert head["template"]["spec"]["nodeSelector"] == {"pool": "ray"}
    assert pod["serviceAccountName"] == "robot" and pod["imagePullSecrets"] == [{"name": "registry"}]
    assert {"name": "AWS_REGION", "value": "eu-west-1"} in container["env"]
    reference = {"secretKeyRef": {"name": "s3", "key": "access"}}
    assert {"name": "AWS_ACCESS_KEY_ID", "valueFrom": reference} in container["env"]
    assert container["volumeMounts"][0] == {"name": "volume-0", "mountPath": "/data", "readOnly": True}
    assert pod["volumes"][1] == {"name": "volume-1", "persistentVolumeClaim": {"claimName": "results"}}
    assert [pod["restartPolicy"], head["template"]["spec"]["restartPolicy"]] == ["Never", "Never"]
    keys = ("preRunningDeadlineSeconds", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimit")
    assert [job["spec"][key] for key in keys] == [600, 7200, 60, 2]
    assert job["spec"]["shutdownAfterJobFinishes"] is True


def test_the_run_file_travels_in_a_config_map() -> None:
    config, job = render_job(Settings(), RUN, name="train-1", versions=VERSIONS)
    assert yaml.safe_load(config["data"]["run.yaml"]) == {k: v for k, v in RUN.items() if k != "cluster"}
    command = "dray train /etc/dray/run.yaml --cluster auto --json"
    assert job["spec"]["entrypoint"] == f"{command} --job kubernetes/default/train-1"
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert head["volumes"] == [{"name": "run", "configMap": {"name": config["metadata"]["name"]}}]
    assert head["containers"][0]["volumeMounts"] == [{"name": "run", "mountPath": "/etc/dray", "readOnly": True}]


def test_the_command_of_a_job_is_one_that_dray_has() -> None:
    words = str(render_job(Settings(), RUN, versions=VERSIONS)[1]["spec"]["entrypoint"]).split()
    command = cli.get_command(click.Context(cli), "train")
    assert command is not None and words[:2] == ["dray", "train"]
    with command.make_context("train", words[2:]) as context:
        assert (context.params["cluster"], context.params["as_json"]) == ("auto", True)


def test_a_job_installs_dray_unless_the_image_has_it() -> None:
    assert "dray==" in both({})[1]["spec"]["runtimeEnvYAML"]
    assert "runtimeEnvYAML" not in both({"image": "me/dray:1"})[1]["spec"]
    run = {"data": ["s3://bucket/rows"], "out": "s3://bucket/run", "model": "factorization", "user": "u", "item": "i"}
    assert "dray[recommend]==" in render_job(Settings(), run, versions=VERSIONS)[1]["spec"]["runtimeEnvYAML"]


def test_pods_get_no_token_of_kubernetes_unless_asked() -> None:
    def mounts(given: dict[str, Any]) -> list[bool | None]:
        spec = render_cluster(make_settings(given), versions=VERSIONS)[0]["spec"]
        groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
        return [group["template"]["spec"].get("automountServiceAccountToken") for group in groups]

    assert mounts({}) == [False, False]
    assert mounts({"autoscale": True}) == [None, False]  # the autoscaler beside the head needs it
    assert mounts({"service_account": "robot"}) == [None, None]


def test_the_same_settings_give_the_same_text() -> None:
    shuffled = dict(reversed(FULL.items())) | {"volumes": dict(reversed(FULL["volumes"].items()))}
    assert to_yaml(both(FULL)) == to_yaml(both(shuffled))


def test_the_text_says_how_to_make_the_token_and_holds_none() -> None:
    text = to_yaml(render_cluster(make_settings({"name": "demo", "namespace": "ml"}), versions=VERSIONS))
    assert "kubectl create secret generic demo-token -n ml --from-file=auth_token=/dev/stdin" in text
    assert "kind: Secret" not in text
    secret = token_secret(Settings(), "dray", "abc")
    assert secret["metadata"]["name"] == "dray-token" and secret["data"] == {"auth_token": "YWJj"}


def test_the_shape_of_pods_is_marked_and_their_number_is_not() -> None:
    def mark(given: dict[str, Any]) -> str:
        [cluster] = render_cluster(make_settings(given), versions=VERSIONS)
        return str(cluster["metadata"]["annotations"]["dray/pods"])

    assert mark({}) == mark({"workers": {"replicas": 7}})
    assert len({mark({}), mark({"workers": {"cpu": 5}}), mark({"head": {"cpu": 5}}), mark({"image": "me/x:1"})}) == 4
