"""Connections to machines: what of the user's SSH configuration holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.fleet.checks import Problem
from dray.clusters.fleet.file import make_fleet
from dray.clusters.fleet.host.sending import MARK
from dray.clusters.fleet.ssh import HostError, Reached, connect
from dray.errors import ConfigError


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("asyncssh")
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".ssh" / "config"


def why(**values: str) -> Problem:
    fleet = make_fleet({"name": "lab", "hosts": ["alias"], **values})
    with pytest.raises(HostError) as error:
        asyncio.run(connect(fleet, "alias"))
    return error.value.problem


HERE = "Host alias\n  HostName 127.0.0.1\n  Port 1\n"
"""Where nothing listens."""


@pytest.mark.parametrize("line", ["UserKnownHostsFile none", "userknownhostsfile=NONE"])
def test_a_configuration_that_switches_the_check_of_host_keys_off_is_refused(configuration: Path, line: str) -> None:
    configuration.write_text(f"{HERE}  {line}\n")
    problem = why()
    assert problem.reason == "host key"
    assert "UserKnownHostsFile none" in problem.words
    assert "known_hosts:" in problem.fix


def test_the_fleet_file_may_name_the_file_instead(configuration: Path, tmp_path: Path) -> None:
    configuration.write_text(f"{HERE}  UserKnownHostsFile none\n")
    (tmp_path / "keys").touch()
    assert why(known_hosts=str(tmp_path / "keys")).words == "Connection refused"


@pytest.mark.parametrize("way", ["me@jump:1", "other,jump", "other2"])
def test_a_host_on_the_way_whose_key_is_not_checked_is_refused(configuration: Path, tmp_path: Path, way: str) -> None:
    unchecked = "Host jump\n  HostName 127.0.0.1\n  Port 1\n  UserKnownHostsFile none\n"
    configuration.write_text(f"{HERE}  ProxyJump {way}\n{unchecked}Host other2\n  ProxyJump jump\n")
    (tmp_path / "keys").touch()
    problem = why(known_hosts=str(tmp_path / "keys"))
    assert problem.reason == "host key"
    assert "the check of jump, on the way" in problem.words


def test_a_host_on_the_way_is_called_when_its_key_is_checked(configuration: Path) -> None:
    configuration.write_text(f"{HERE}  ProxyJump jump\nHost jump\n  HostName 127.0.0.1\n  Port 1\n")
    assert why().words == "Connection refused"


def test_any_other_configuration_holds(configuration: Path) -> None:
    configuration.write_text(f"{HERE}  UserKnownHostsFile /dev/null\n")
    assert why().words == "Connection refused"


@pytest.fixture
def server(configuration: Path) -> Iterator[int]:
    """A real SSH server with a key that is known nowhere; it takes every user, and leads on to any host."""
    asyncssh = pytest.importorskip("asyncssh")

    class Open(asyncssh.SSHServer):  # type: ignore[misc,name-defined]
        def begin_auth(self, _user: str) -> bool:
            return False

        def connection_requested(self, *_: object) -> bool:
            return True

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_public_key(str(configuration.parent / "server_key"))

    async def listen() -> Any:
        return await asyncssh.create_server(Open, "127.0.0.1", 0, server_host_keys=[key])

    listener = asyncio.run_coroutine_threadsafe(listen(), loop).result(20)
    yield listener.get_port()
    loop.call_soon_threadsafe(listener.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


FINAL_ELSEWHERE = "Match final host 10.9.9.9\n  UserKnownHostsFile none\n"
FINAL = "Match final host 127.0.0.1\n  UserKnownHostsFile none\n"


@pytest.mark.parametrize("jump", [True, False])
def test_a_second_pass_over_the_configuration_switches_no_check_off(
    configuration: Path, server: int, jump: bool
) -> None:
    at = f"  HostName 127.0.0.1\n  Port {server}\n"
    way = f"Host alias\n{at}  ProxyJump jump\nHost jump\n{at}" if jump else f"Host alias\n{at}"
    configuration.write_text(way + FINAL)
    problem = why()
    assert problem.reason == "host key"
    assert "switched off" in problem.words


def test_a_jump_whose_key_is_unknown_is_refused(configuration: Path, server: int) -> None:
    at = f"  HostName 127.0.0.1\n  Port {server}\n"
    configuration.write_text(f"Host alias\n{at}  ProxyJump jump\nHost jump\n{at}")
    assert why().reason == "host key"


def test_known_hosts_are_reached_through_a_jump(configuration: Path, server: int) -> None:
    public = (configuration.parent / "server_key").read_text()
    (configuration.parent / "known_hosts").write_text(f"[127.0.0.1]:{server} {public}\n")
    at = f"  HostName 127.0.0.1\n  Port {server}\n"
    configuration.write_text(f"Host alias\n{at}  ProxyJump me@jump\nHost jump\n{at}{FINAL_ELSEWHERE}")

    async def call() -> bool:
        connection = await connect(make_fleet({"name": "lab", "hosts": ["alias"]}), "alias")
        connection.close()
        await connection.wait_closed()
        return connection.get_extra_info("username") is not None

    assert asyncio.run(call())


def test_a_way_through_itself_is_told(configuration: Path) -> None:
    configuration.write_text(f"{HERE}  ProxyJump jump\nHost jump\n  ProxyJump jump\n")
    with pytest.raises(ConfigError, match="leads to jump through jump itself"):
        asyncio.run(connect(make_fleet({"name": "lab", "hosts": ["alias"]}), "alias"))


@pytest.mark.parametrize(
    ("text", "words"),
    [("Host alias\n  Port x\n", "cannot be read"), (f"{HERE}  ProxyJump jump:x\n", "port is not a number")],
)
def test_a_configuration_that_cannot_be_read_is_told_in_words(configuration: Path, text: str, words: str) -> None:
    configuration.write_text(text)
    with pytest.raises(ConfigError, match=words) as told:
        asyncio.run(connect(make_fleet({"name": "lab", "hosts": ["alias"]}), "alias"))
    assert "~/.ssh/config" in told.value.fix


class Agent:
    """A process on a machine that says what it was given."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stdin = self.stdout = self.stderr = self

    def write(self, _line: str) -> None:
        return

    async def read(self, _count: int = -1) -> str:
        text, self.text = self.text, ""
        return text


def test_what_an_agent_says_otherwise_is_passed_over() -> None:
    pytest.importorskip("asyncssh")
    noise = ["hello", f"{MARK}{{", f"{MARK}[1]", f"{MARK}{'[' * 100_000}", f'{MARK}{{"id": 1}}', f'{MARK}{{"id": 7}}']
    text = "\n".join([*noise, f'{MARK}{{"id": 1, "answer": 5}}', ""])
    assert asyncio.run(Reached("a", None, Agent(text)).ask("look")) == 5
    with pytest.raises(HostError, match="its Python ended"):
        asyncio.run(Reached("a", None, Agent("\n".join([*noise, ""]))).ask("look"))
