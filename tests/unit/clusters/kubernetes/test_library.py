"""The one private part of the `kubernetes` package that is used: without it the way is another, and the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_kubernetes import FakeKubernetes

from dray.clusters.kubernetes import library, ray_jobs
from dray.clusters.kubernetes.api import Api, UnreachableError
from dray.clusters.kubernetes.settings import Settings
from dray.errors import ClusterError

RUN = {"data": "s3://bucket/rows", "label": "y", "out": "s3://bucket/run"}


@pytest.fixture(params=["with its pool", "without"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without":
        client = library._part("client")
        made = client.ApiClient

        def without(configuration: Any) -> Any:
            found = made(configuration)
            monkeypatch.delattr(found, "rest_client")
            return found

        monkeypatch.setattr(client, "ApiClient", without)
    return str(request.param)


@pytest.mark.usefixtures("version")
def test_a_job_is_followed_to_its_end_by_either_version(kubernetes: FakeKubernetes, told: Any) -> None:
    kubernetes.logs["train-a-submitter"] = ["round 1"]
    heard: list[str] = []
    assert ray_jobs.submit(Settings(), RUN, told, name="train-a", hear=heard.append).status == "SUCCEEDED"
    assert heard == ["round 1"]


@pytest.mark.usefixtures("version", "kubernetes")
def test_a_server_that_is_not_there_is_told_by_either_version() -> None:
    with pytest.raises(UnreachableError, match="Connection refused"):
        Api("default", "nowhere").find("Pod", "x=y")


def test_certificates_reach_a_pool_of_our_own_and_a_proxy_is_refused_with_words() -> None:
    settings = {"proxy": None, "verify_ssl": True, "ssl_ca_cert": "/ca.pem", "cert_file": "/me.pem", "key_file": "/me"}
    configuration = SimpleNamespace(**settings, assert_hostname=None, tls_server_name="api.example")
    options = library._pool(SimpleNamespace(), configuration).connection_pool_kw
    assert (options["cert_reqs"], options["ca_certs"], options["cert_file"]) == ("CERT_REQUIRED", "/ca.pem", "/me.pem")
    assert options["server_hostname"] == "api.example"
    configuration.proxy = "http://me:secret@proxy:3128"
    with pytest.raises(ClusterError, match="cannot be used through the proxy proxy:3128"):
        library._pool(SimpleNamespace(), configuration)
