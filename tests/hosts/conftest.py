"""Hosts for a module of tests, and a witness that nothing outlives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.network import why_not
from hosts.ray_nodes import Hosts


@pytest.fixture(scope="session")
def can_have_hosts() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def three_hosts(can_have_hosts: None) -> Iterator[Hosts]:
    """A head and two nodes with a CPU each. For tests that leave the hosts as they are."""
    with Hosts() as hosts:
        hosts.start_head(cpus=1)
        hosts.start_node(cpus=1)
        hosts.start_node(cpus=1)
        yield hosts
    assert not hosts.directory.exists()
    assert [host.processes() for host in hosts.hosts] == [[], [], []]
    assert not list(Path("/run/netns").glob(f"{hosts.directory.name}-*"))
