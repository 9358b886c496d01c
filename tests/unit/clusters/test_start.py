from __future__ import annotations

import os

import pytest

from dray.clusters.environment import environment_for_ray
from dray.clusters.lean import lean_raylet, lean_start


def test_the_environment_is_put_back_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = dict(os.environ)
    with pytest.raises(KeyError), environment_for_ray({"OMP_NUM_THREADS": "4", "RAY_AUTH_TOKEN": "x"}):
        assert os.environ["OMP_NUM_THREADS"] == "4"
        os.environ["RAY_AUTH_MODE"] = "token"
        raise KeyError
    assert dict(os.environ) == before


def test_the_raylet_gets_idle_agents_and_as_many_workers_as_will_be_used() -> None:
    command = ["raylet", "--dashboard_agent_command=python agent.py --a=b", "--num_prestart_python_workers=8", "--head"]
    assert lean_raylet(command, prestart=2) == [
        "raylet",
        "--dashboard_agent_command=/bin/cat",
        "--num_prestart_python_workers=2",
        "--head",
    ]


def test_ray_is_as_it_was_after_a_lean_start() -> None:
    import ray._private.node as node
    import ray._private.services as services

    before = (node.Node.start_api_server, services.start_ray_process, services.resolve_ip_for_localhost)
    with lean_start(2) as lean:
        if not lean:
            pytest.skip("this Ray starts in its own way")
        assert node.Node.start_api_server is not before[0]
    assert (node.Node.start_api_server, services.start_ray_process, services.resolve_ip_for_localhost) == before


def test_a_ray_with_other_insides_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray._private.node as node

    monkeypatch.delattr(node.Node, "start_monitor")
    start_api_server = node.Node.start_api_server
    with lean_start(2) as lean:
        assert not lean
        assert node.Node.start_api_server is start_api_server
