"""A cluster for a module of tests, and a witness that nothing outlives it."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from dray.cluster.cluster import Cluster
from dray.cluster.connect import connect


@pytest.fixture(scope="module")
def three_cpus() -> Iterator[Cluster]:
    """An embedded cluster that deals out 3 CPUs. Runs of this process use it instead of starting their own."""
    before = set(psutil.Process().children(recursive=True))
    with connect("local", workers=3) as cluster:
        assert [node.cpus for node in cluster.nodes()] == [3]
        assert cluster.logs is not None
        directory = cluster.logs.parent.parent
        yield cluster
    assert set(psutil.Process().children(recursive=True)) - before == set()
    assert not directory.exists()
