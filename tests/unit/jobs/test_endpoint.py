"""What answers at an address, over real HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dray.clusters import known
from dray.clusters.known import Known
from dray.errors import ClusterError, ConfigError
from dray.jobs import endpoint
from dray.jobs.endpoint import from_environment, is_loopback, look, open_endpoint, token_at_hand

TOKEN = "t" * 32
VERSION = {"ray_version": "2.60.0", "session_name": "session_x"}


@pytest.fixture(autouse=True)
def no_token_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", *endpoint.ADDRESS_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@contextmanager
def server(*, token: str | None = None, body: bytes | None = None, redirect: str | None = None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization")
            status = 200 if token is None or given == f"Bearer {token}" else 401 if given is None else 403
            self.send_response(302 if redirect else status)
            if redirect:
                self.send_header("Location", redirect)
            self.end_headers()
            if status == 200:
                self.wfile.write(json.dumps(VERSION).encode() if body is None else body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def test_a_ray_endpoint_tells_its_version_and_its_session() -> None:
    with server(token=TOKEN) as url:
        found = look(f"{url}/", TOKEN)
    assert (found.url, found.ray, found.session, found.warnings) == (url, "2.60.0", "session_x", ())
    assert TOKEN not in repr(found)


def test_a_missing_and_a_wrong_token_are_told_apart() -> None:
    with server(token=TOKEN) as url:
        with pytest.raises(ClusterError, match="wants a token") as caught:
            look(url)
        assert "RAY_AUTH_TOKEN" in caught.value.fix
        with pytest.raises(ClusterError, match="refuses this token"):
            look(url, "wrong")


def test_the_token_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with server(token=TOKEN) as url:
        assert look(url).token == TOKEN


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b'{"version": 1}'])
def test_what_is_no_ray_is_said_to_be_none(body: bytes) -> None:
    with server(body=body) as url, pytest.raises(ClusterError, match="is not a Ray job server"):
        look(url)


def test_a_token_does_not_follow_a_redirection() -> None:
    with (
        server(token=TOKEN) as other,
        server(redirect=f"{other}/api/version") as url,
        pytest.raises(ClusterError, match="is not a Ray job server"),
    ):
        look(url, TOKEN)


def test_an_address_where_nobody_listens_says_so() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ClusterError, match=f"Nothing answers at http://127.0.0.1:{port}: Connection refused"):
        look(f"http://127.0.0.1:{port}")


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LOOK_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ClusterError, match="Nothing answers"):
            look(f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_what_speaks_another_language_is_no_ray() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def answer() -> None:
            connection, _ = other.accept()
            connection.recv(1000)
            connection.sendall(b"+PONG\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ClusterError, match="is not a Ray job server"):
            look(f"http://127.0.0.1:{other.getsockname()[1]}")


@pytest.mark.parametrize("url", ["http://me:pw@host:8265", "http://host:8265?token=x"])
def test_an_address_with_more_in_it_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        look(url)
    assert "pw" not in str(caught.value)
    assert "token=x" not in str(caught.value)


def test_an_open_endpoint_on_the_network_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "is_loopback", lambda _: False)
    with server() as url:
        assert any("without a token" in warning for warning in look(url).warnings)
    with server(token=TOKEN) as url:
        [warning] = look(url, TOKEN).warnings
        assert "unencrypted" in warning


def test_rays_own_token_file_is_for_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("mine\n")
    assert token_at_hand({}, loopback=True) == "mine"
    assert token_at_hand({}, loopback=False) is None
    named = {"RAY_AUTH_TOKEN_PATH": str(tmp_path / ".ray" / "auth_token")}
    assert token_at_hand(named, loopback=False) == "mine"
    with pytest.raises(ClusterError, match="cannot be read"):
        token_at_hand({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "gone")}, loopback=True)


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "http://127.0.0.1:8265"),
        ({"RAY_API_SERVER_ADDRESS": "http://a:1", "RAY_DASHBOARD_ADDRESS": "http://b:2"}, "http://a:1"),
        ({"RAY_DASHBOARD_ADDRESS": "b:2"}, "http://b:2"),
        ({"RAY_ADDRESS": "https://c"}, "https://c"),
        ({"RAY_ADDRESS": "10.0.0.5:6379"}, "http://127.0.0.1:8265"),
    ],
)
def test_rays_variables_name_the_endpoint(variables: dict[str, str], address: str) -> None:
    assert from_environment(variables) == address


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.2", True), ("::1", True), ("10.0.0.1", False), ("head", False)],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_name_is_reached_through_its_provider_with_its_own_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path))
    known.save(Known("lab", "fleet", "10.0.0.1:6379", "http://10.0.0.1:8265"))
    token = known.make_token("lab")

    class Tunnel:
        @contextmanager
        def endpoint(self, _: Known) -> Iterator[str]:
            with server(token=token) as url:
                yield url

    with open_endpoint("lab", lambda _: Tunnel()) as found:  # type: ignore[arg-type, return-value]
        assert found.token == token
        assert found.option == "--cluster lab"
    with pytest.raises(ClusterError, match='no cluster "labs"'), open_endpoint("labs", lambda _: Tunnel()):  # type: ignore[arg-type, return-value]
        pass


@pytest.mark.parametrize("word", ["local", "auto", "10.0.0.1:6379"])
def test_what_is_no_job_endpoint_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="not a job endpoint"), open_endpoint(word, lambda _: None):  # type: ignore[arg-type, return-value]
        pass
