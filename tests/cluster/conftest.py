"""A cluster for a module of tests, and a witness that nothing outlives it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dray.cluster.cluster import Cluster
from dray.cluster.connect import connect


@pytest.fixture(scope="module")
def three_cpus() -> Iterator[Cluster]:
    """An embedded cluster that deals out 3 CPUs. Runs of this process use it instead of starting their own."""
    children, directories = _children(), _directories()
    with connect("local", workers=3) as cluster:
        assert [node.cpus for node in cluster.nodes()] == [3]
        yield cluster
    assert _children() - children == set()
    assert _directories() - directories == set()


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _directories() -> set[Path]:
    """The embedded cluster's own kind only: other runs on this machine may come and go."""
    return {path for path in Path(tempfile.gettempdir()).glob("dray-*") if path.is_dir() and _is_ours(path)}


def _is_ours(directory: Path) -> bool:
    open_here = {Path(file.path) for child in _children() for file in _open_files(child)}
    return any(directory in path.parents for path in open_here)


def _open_files(process: psutil.Process) -> list[psutil._common.popenfile]:
    try:
        return process.open_files()
    except psutil.Error:
        return []
