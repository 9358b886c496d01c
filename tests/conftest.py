"""Fixtures for every folder of tests."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from dray.clusters.cluster import Cluster
    from dray.errors import DrayError

sys.path.insert(0, str(Path(__file__).parent))  # so that tests find s3_server.py in any import mode

from s3_server import CACHE_S, S3Server, serve_s3


def pytest_configure() -> None:
    """Have Ctrl-C and SIGTERM heard by the tests and by all that they start, whatever the parent did with them.

    `make test &` of a script ignores Ctrl-C, and what is ignored or blocked is inherited by every process below. dray
    keeps to that, as programs do; the tests, which send these signals, would wait for an end that does not come.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


@pytest.fixture(scope="session", autouse=True)
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What dray keeps between commands (copies of data, clusters) is the tests' own, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("DRAY_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def hints_that_work() -> Iterator[None]:
    """Every hint that a command or a public function shows in a test can be followed there."""
    from dray import hints
    from dray.cli import main as cli
    from hints import faults_in_function, faults_shown_by

    fail, told = cli._run, hints._told

    def run(arguments: list[str]) -> int:
        shown: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_fail", lambda *given, fail=cli._fail: (shown.append(given[2]), fail(*given))[1])
            code = fail(arguments)
        for hint in shown:
            assert not (wrong := faults_shown_by(hint, arguments)), f"{hint}: {wrong}"
        return code

    def tell(error: DrayError) -> None:
        told(error)
        assert not (wrong := faults_in_function(str(error.args[1]))), f"{error}: {wrong}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_run", run)
        patch.setattr(hints, "_told", tell)
        yield


@pytest.fixture(scope="session")
def s3_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serve_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_server(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """A real S3 endpoint with an empty bucket, and the AWS_* variables to reach it."""
    for place in s3_process.directory.iterdir():
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    time.sleep(2 * CACHE_S)  # till the server has forgotten what was there
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-aws-credentials"))
    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    return s3_process


@pytest.fixture(scope="module")
def three_cpus() -> Iterator[Cluster]:
    """An embedded cluster that deals out 3 CPUs. Runs of this process use it instead of starting their own."""
    from dray.clusters.connect import connect

    before = set(psutil.Process().children(recursive=True))
    with connect("local", workers=3) as cluster:
        assert [node.cpus for node in cluster.nodes()] == [3]
        assert cluster.logs is not None
        directory = cluster.logs.parent.parent
        yield cluster
    assert set(psutil.Process().children(recursive=True)) - before == set()
    assert not directory.exists()
