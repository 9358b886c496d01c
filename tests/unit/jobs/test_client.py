"""Ray's own client, by its public methods alone, against servers that do not behave."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dray.errors import ClusterError
from dray.jobs import client
from dray.jobs.client import Jobs, Unreachable, within
from dray.jobs.endpoint import Endpoint

JOB = {"type": "SUBMISSION", "submission_id": "dray-1", "status": "RUNNING", "entrypoint": "x", "start_time": 1000}


@contextmanager
def server(answers: dict[str, bytes], status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/api/version":
                body = json.dumps({"ray_version": "2.60.0", "version": "4"}).encode()
            else:
                body = answers["*"]
            self.send_response(200 if self.path == "/api/version" else status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def jobs_at(url: str) -> Jobs:
    return Jobs(Endpoint(url, None, "2.60.0", ""))


def test_a_job_is_told_as_ray_tells_it() -> None:
    with server({"*": json.dumps(JOB).encode()}) as url:
        info = jobs_at(url).info("dray-1")
    assert (info.id, info.status, info.started, info.over) == ("dray-1", "RUNNING", 1.0, False)


def test_the_client_of_ray_is_used_by_its_public_methods_alone() -> None:
    with server({"*": b"{}"}) as url:
        assert type(jobs_at(url)._client).__module__.startswith("ray.")


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with server({"*": b"{}"}) as url:
        jobs = jobs_at(url)
    with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2]))):  # accepts, and says nothing
        monkeypatch.setattr(client, "ANSWER_TIMEOUT_S", 0.2)
        begun = time.monotonic()
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
            jobs.info("dray-1")
    assert time.monotonic() - begun < 5


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.com")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server({"*": json.dumps(JOB).encode()}) as url:
        assert jobs_at(url).info("dray-1").status == "RUNNING"


BAD: list[Any] = [
    b"",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"3",
    b"{}",
    b'"text"',
    *(
        json.dumps(JOB | change).encode()
        for change in ({"status": "DANCING"}, {"start_time": "soon"}, {"status": None})
    ),
    json.dumps(JOB | {"metadata": [1]}).encode(),
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("status", [200, 404, 500])
def test_whatever_a_server_answers_is_a_cluster_error_at_worst(body: bytes, status: int) -> None:
    with server({"*": body}, status) as url:
        jobs = jobs_at(url)
        for ask in (lambda: jobs.info("dray-1"), jobs.list, lambda: jobs.logs("dray-1")):
            try:
                ask()
            except ClusterError as error:
                assert error.fix


def test_an_error_in_the_thread_is_raised_here() -> None:
    with pytest.raises(KeyError):
        within(1.0, lambda: {}["x"])
    assert within(1.0, lambda: None) is None
