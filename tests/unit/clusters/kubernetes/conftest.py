"""A Kubernetes to talk to, and a home for what dray knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests find the fake in any import mode

from fake_kubernetes import FakeKubernetes, serve

from dray.clusters.kubernetes import following, ray_jobs, waiting


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes()
    monkeypatch.setattr(waiting, "PAUSE_S", 0.005)
    monkeypatch.setattr(following, "PAUSE_S", 0.02)
    monkeypatch.setattr(ray_jobs, "SECOND_THOUGHTS_S", 0.01)
    with serve(fake, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setenv("DRAY_HOME", str(tmp_path / "home"))
        yield fake


class Told(list[tuple[str, str, str]]):
    """What was told on the way."""

    def __call__(self, name: str, state: str, words: str) -> None:
        self.append((name, state, words))


@pytest.fixture
def told() -> Told:
    return Told()
