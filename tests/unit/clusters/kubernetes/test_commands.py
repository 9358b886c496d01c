"""`dray cluster` and `dray job` on Kubernetes, as commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_kubernetes import FakeKubernetes, waiting

from dray.cli.main import main
from dray.clusters.kubernetes import readiness

RUN = {"data": "s3://bucket/rows", "label": "y", "rounds": 20, "out": "s3://bucket/run"}


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[Any, str]:
    """Run a command with --json; return its document and its words."""
    assert main([*arguments, "--json"]) == code
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def write(path: str, document: dict[str, Any]) -> str:
    Path(path).write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_a_cluster_is_started_watched_scaled_and_ended(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    status, words = run(capsys, "cluster", "up", "--on", "kubernetes", write("kube.yaml", {"name": "demo"}))
    assert (status["name"], status["kind"]) == ("demo", "kubernetes")
    assert [node["alive"] for node in status["nodes"]] == [True, True, True]
    assert "demo-head: ready" in words
    assert run(capsys, "cluster", "list")[0]["clusters"][0]["name"] == "demo"
    assert len(run(capsys, "cluster", "status")[0]["nodes"]) == 3
    scaled, _ = run(capsys, "cluster", "scale", "demo", "--workers", "4")
    assert len(scaled["nodes"]) == 5
    assert run(capsys, "cluster", "down", "demo")[0] == {"name": "demo", "down": True}
    assert kubernetes.named("Pod") == kubernetes.named("Secret") == []
    assert run(capsys, "cluster", "list")[0] == {"clusters": []}


def test_status_is_a_table_for_people(kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", "--on", "kubernetes", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["cluster", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("dray: kubernetes, ")
    assert "dray-head (head)" in lines[2]
    assert "alive" in lines[2]


def test_logs_stand_behind_the_name_of_their_pod(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "up", "--on", "kubernetes", "--quiet"]) == 0
    kubernetes.logs["dray-workers-0"] = ["fine", "ERROR out of disk"]
    capsys.readouterr()
    assert main(["cluster", "logs", "--errors"]) == 0
    assert capsys.readouterr().out == "dray-workers-0: ERROR out of disk\n"


@pytest.mark.parametrize(
    ("command", "what"),
    [(("add", "host-a"), "add a host"), (("remove", "host-a"), "remove a host"), (("cleanup",), "no old sessions")],
)
def test_what_its_kind_cannot_do_is_refused_with_what_it_can(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], what: str
) -> None:
    assert main(["cluster", "up", "--on", "kubernetes", "--quiet"]) == 0
    capsys.readouterr()
    document, _ = run(capsys, "cluster", *command, code=2)
    assert "A cluster of the kind kubernetes" in document["error"]["what"]
    assert what in document["error"]["what"]
    assert "dray cluster scale --workers" in document["error"]["fix"]


def test_an_image_that_cannot_be_pulled_is_named_and_nothing_stays(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(readiness.GRACE_S, "ImagePullBackOff", 0.05)
    kubernetes.becomes = lambda _pod: waiting("ImagePullBackOff", 'Back-off pulling image "nowhere/dray:1"')
    document, _ = run(capsys, "cluster", "up", "--on", "kubernetes", code=2)
    assert "nowhere/dray:1" in document["error"]["what"]
    assert kubernetes.named("RayCluster") == []
    assert run(capsys, "cluster", "list")[0] == {"clusters": []}


def test_without_a_cluster_the_way_to_one_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAY_HOME", str(tmp_path / "empty"))
        document, _ = run(capsys, "cluster", "status", code=2)
    assert document["error"]["what"] == "No clusters were started here."
    assert "dray cluster up" in document["error"]["fix"]


def test_render_prints_a_cluster_or_the_job_of_a_run_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "render", "--on", "kubernetes"]) == 0
    assert [found["kind"] for found in yaml.safe_load_all(capsys.readouterr().out)] == ["RayCluster"]
    path = write("run.yaml", RUN | {"kubernetes": {"name": "first"}})
    assert main(["cluster", "render", "--on", "kubernetes", path]) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [thing["kind"] for thing in found] == ["ConfigMap", "RayJob"]
    assert found[1]["metadata"]["name"] == "first"


def test_a_run_file_is_a_job_there(kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("run.yaml", RUN | {"kubernetes": {"name": "first"}})
    document, _ = run(capsys, "job", "submit", path, "--on", "kubernetes")
    assert document["status"] == "SUCCEEDED"
    name = document["name"]
    assert [job["name"] for job in run(capsys, "job", "list", "--on", "kubernetes")[0]["jobs"]] == [name]
    assert run(capsys, "job", "status", name, "--on", "kubernetes")[0]["status"] == "SUCCEEDED"
    assert run(capsys, "job", "delete", name, "--on", "kubernetes")[0] == {"id": name, "deleted": True}
    assert kubernetes.named("RayJob") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("job", "submit", "script.py", "--on", "kubernetes"), "is no run file"),
        (("job", "submit", "run.yaml", "--on", "kubernetes", "--cluster", "demo"), "makes a cluster for the job"),
        (("job", "submit", "run.yaml", "--on", "kubernetes", "--timeout", "5"), "the run file says everything"),
        (("job", "list", "--namespace", "ml"), "are for Kubernetes"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document, _ = run(capsys, *arguments, code=2)
    assert words in document["error"]["what"]
