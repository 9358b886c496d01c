"""Every kind of clusters is behind one contract, or says how its clusters start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dray
from dray.cli.main import main
from dray.clusters import known
from dray.clusters.known import Known
from dray.clusters.provider import Provider
from dray.clusters.providers import DEFAULT, KINDS, find, provider_of
from dray.errors import ClusterError, ConfigError

STARTED = [kind for kind in KINDS if KINDS[kind].provider]
WITH_A_RUN = [kind for kind in KINDS if not KINDS[kind].provider]


def of_kind(kind: str) -> Known:
    details = {"namespace": "default", "context": None, "start_deadline_s": 60.0} if KINDS[kind].details else {}
    return Known("office", kind, "10.0.0.1:6379", "http://10.0.0.1:8265", details)


def test_every_kind_has_its_folder_and_every_folder_its_kind() -> None:
    folders = (Path(dray.__file__).parent / "clusters").glob("*/__init__.py")
    assert {path.parent.name for path in folders} == set(KINDS)
    assert DEFAULT in STARTED


@pytest.mark.parametrize("kind", STARTED)
def test_a_known_cluster_has_the_provider_of_its_kind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path))
    known.save(of_kind(kind))
    provider = provider_of(known.read("office"))
    assert isinstance(provider, Provider)
    assert provider.kind == kind


@pytest.mark.parametrize("kind", WITH_A_RUN)
def test_a_kind_that_starts_with_a_run_says_so(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", "--on", kind, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert f"the kind {kind}" in error["what"]
    assert "dray train DATA --label COLUMN" in error["fix"]
    with pytest.raises(ConfigError):
        find(kind)


@pytest.mark.parametrize("kind", WITH_A_RUN)
def test_no_cluster_of_such_a_kind_is_known(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path))
    known.save(of_kind(kind))
    with pytest.raises(ClusterError, match=f'its kind is "{kind}"'):
        known.read("office")


def test_help_describes_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}: {kind.what}" in shown for name, kind in KINDS.items())


@pytest.mark.parametrize("asked", [("scale", (2,)), ("render", ())])
def test_a_fleet_says_how_it_changes_instead(asked: tuple[str, tuple[Any, ...]]) -> None:
    name, values = asked
    fleet = find("fleet")
    with pytest.raises(ClusterError, match="A cluster of the kind fleet") as error:
        fleet.render(None) if name == "render" else fleet.scale(of_kind("fleet"), *values, lambda *_: None)
    assert "dray cluster add HOST" in error.value.fix
