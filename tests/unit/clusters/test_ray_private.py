"""Every private part of Ray may be gone: a slower public way is taken, or an error says what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from dray.clusters import joined, ray_private
from dray.clusters.environment import own_token, refresh_authentication
from dray.clusters.lean import lean_start
from dray.clusters.probe import probe
from dray.clusters.quiet import quiet
from dray.clusters.ray_private import MissingPartError, part
from dray.clusters.spark.start import spark_starter
from dray.errors import ClusterError

MODULES = (
    *("ray._private.node", "ray._private.services", "ray._private.utils", "ray._private.worker", "ray._private.state"),
    *("ray._raylet", "ray._common.usage.usage_lib", "ray._private.authentication.authentication_token_setup"),
    *("ray.autoscaler._private.spark.spark_job_server", "ray.util.spark.cluster_init"),
)


@pytest.fixture(params=["the module", "the name"])
def lose(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Take a part away as another version of Ray would: the module cannot be imported, or has no such name."""
    import ray  # before its modules are gone

    assert ray

    def lose(module: str, name: str) -> None:
        if request.param == "the module":
            monkeypatch.setitem(sys.modules, module, None)
        else:
            *owners, last = name.split(".")
            if not hasattr(part(module, ".".join(owners)), last):
                pytest.skip("this Ray has no such part")
            monkeypatch.delattr(part(module, ".".join(owners)), last)

    return lose


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("ray._private.services", "start_ray_process"),
        ("ray._private.services", "resolve_ip_for_localhost"),
        ("ray._private.node", "Node.start_monitor"),
        ("ray._private.utils", "get_dashboard_dependency_error"),
        ("ray._raylet", "persist_port"),
    ],
)
def test_without_the_starter_ray_starts_in_its_own_way(
    lose: Callable[[str, str], None], module: str, name: str
) -> None:
    lose(module, name)
    with lean_start(2) as lean:
        assert not lean


def test_without_the_listener_ray_only_says_more(lose: Callable[[str, str], None]) -> None:
    lose("ray._private.worker", "listen_error_messages")
    with quiet():
        pass


def test_without_what_is_free_nothing_is_known(lose: Callable[[str, str], None]) -> None:
    lose("ray._private.state", "available_resources_per_node")
    assert ray_private.free_resources() is None


def test_without_notice_no_node_is_draining(all_gone: None) -> None:
    assert ray_private.draining_nodes() == {}


def test_without_reading_the_token_again_that_of_the_environment_is_used_or_asked_for(
    all_gone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh_authentication()
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(ClusterError, match="was started without one") as caught:
        own_token()
    assert "RAY_AUTH_MODE=token" in caught.value.fix
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x" * 40)
    assert own_token() == {}


def test_a_token_is_new_for_every_cluster() -> None:
    first, second = own_token(), own_token()
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]


def test_without_a_probe_ray_itself_tries_to_join(all_gone: None) -> None:
    with pytest.raises(MissingPartError):
        probe("127.0.0.1:6379")
    assert joined._probe("127.0.0.1:6379") == {"address": "127.0.0.1:6379"}


def test_versions_that_a_cluster_does_not_tell_are_not_compared(all_gone: None) -> None:
    assert ray_private.cluster_versions(None) == {"ray": "", "python": ""}


def test_without_the_starter_in_spark_an_error_names_the_versions(lose: Callable[[str, str], None]) -> None:
    lose("ray.autoscaler._private.spark.spark_job_server", "_start_spark_job_server")
    with pytest.raises(ClusterError, match="in a way that dray does not know") as caught:
        spark_starter()
    assert "ray>=2.52" in caught.value.fix


def test_this_version_of_ray_has_the_starter_in_spark() -> None:
    assert spark_starter().active is None


@pytest.fixture
def all_gone(monkeypatch: pytest.MonkeyPatch) -> Any:
    for module in MODULES:
        monkeypatch.setitem(sys.modules, module, None)
