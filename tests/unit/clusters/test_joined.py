from __future__ import annotations

import platform
import socket
import time

import pytest
import ray

from dray.clusters.cluster import Node
from dray.clusters.joined import check_reachable, decide_on, refuse
from dray.clusters.placement import busy
from dray.errors import ClusterError


def node(cpus: float, free: float) -> Node:
    return Node("id", "10.0.0.1", cpus, free, 1 << 30)


def test_threads_are_decided_on_what_is_free() -> None:
    assert decide_on([node(8, 4), node(8, 8)], 3, None).threads == 4
    assert decide_on([node(8, 2)], 2, None).threads == 1


def test_what_is_busy_but_exists_is_worth_a_wait() -> None:
    assert decide_on([node(8, 0)], 2, None).threads == 4
    assert decide_on([node(8, 3)], 2, 4).threads == 4


def test_what_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(ClusterError, match="need 12 CPUs; there are 8"):
        decide_on([node(8, 8)], 3, 4)


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:99999", "host:port"])
def test_an_address_must_be_host_and_port(address: str) -> None:
    with pytest.raises(ClusterError, match="not the address"):
        check_reachable(address)


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265"])
def test_a_proxys_address_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="proxy"):
        check_reachable(address)


def test_a_closed_port_is_refused_at_once() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        start = time.monotonic()
        with pytest.raises(ClusterError, match="Nothing answers"):
            check_reachable(f"127.0.0.1:{reserved.getsockname()[1]}")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("none", "No Ray"),
        ("token", "token"),
        ("silent", "does not answer"),
        ("elsewhere", "not part"),
        ("unknown", "joined"),
    ],
)
def test_every_problem_has_words_and_a_fix(problem: str, words: str) -> None:
    with pytest.raises(ClusterError, match=words) as caught:
        refuse({"problem": problem, "address": "10.0.0.1:6379"}, "auto")
    assert caught.value.fix


def test_other_versions_are_refused() -> None:
    same = {"address": "a:1", "ray": ray.__version__, "python": platform.python_version()}
    refuse(same, "a:1")
    refuse({"address": "a:1"}, "a:1")
    with pytest.raises(ClusterError, match=r"ray 2\.9\.0"):
        refuse({**same, "ray": "2.9.0"}, "a:1")
    with pytest.raises(ClusterError, match=r"python 3\.9\.1"):
        refuse({**same, "python": "3.9.1"}, "a:1")


def test_a_busy_cluster_is_told_node_by_node() -> None:
    error = busy([node(8, 1)], 2, 4, 10)
    assert "10.0.0.1: 1 of 8 free" in error.what
