"""The agent, as it runs on a machine: sent as text to another Python, asked in JSON."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dray.clusters.fleet.host.logs import ERROR
from dray.clusters.fleet.host.processes import NODE_VARIABLE, boot_id, end, look_at, of_nodes
from dray.clusters.fleet.host.ray_process import asked_variables
from dray.clusters.fleet.host.sending import MARK, boot, modules

Ask = Callable[..., Any]

FAKE_DOCKER = """#!/bin/sh
printf '%s\\n' "$@" >> {log}
echo -- >> {log}
file=$(printf '%s\\n' "$@" | grep -A1 -x -e --env-file | tail -1)
[ -z "$file" ] || {{ stat -c %a "$file"; cat "$file"; }} >> {log}.env
case $1 in
  inspect) echo true;;
  run) [ "$2" = --rm ] && echo '{{"ray": "2", "python": "3", "dray": "1", "dashboard": true}}';;
esac
exit 0
"""


@pytest.mark.parametrize("what", ["agent", "launcher"])
def test_what_is_sent_to_a_host_keeps_to_python_3_9(what: str) -> None:
    for source in json.loads(modules(what)).values():
        tree = ast.parse(source, feature_version=(3, 9))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        given = {word.arg for call in calls for word in call.keywords if ast.unparse(call.func) in ("dataclass", "zip")}
        assert not given & {"slots", "kw_only", "strict"}


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    # -S: neither dray nor anything else that is installed here may be needed.
    agent = subprocess.Popen(
        [sys.executable, "-S", "-c", boot("agent")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"], "SSH_CONNECTION": "10.0.0.9 5 10.0.0.1 22"},
    )
    assert agent.stdin
    assert agent.stdout
    agent.stdin.write(modules("agent") + "\n")
    settings = {
        "directory": str(tmp_path / "d"),
        "venv": sys.prefix,
        "cluster": "id",
        "name": "lab",
        "owner": "me@here",
    }

    def send(do: str, **values: Any) -> Any:
        assert agent.stdin
        assert agent.stdout
        agent.stdin.write(json.dumps({"do": do, "id": 1, **settings, **values}) + "\n")
        agent.stdin.flush()
        while (line := agent.stdout.readline()) and not line.startswith(MARK):
            pass
        answer = json.loads(line[len(MARK) :])
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]

    yield send
    agent.stdin.close()
    agent.wait(10)
    agent.stdout.close()


def test_it_tells_what_the_machine_has(ask: Ask) -> None:
    found = ask("look")
    assert found["address"] == "10.0.0.1"
    assert found["cpus"] >= 1
    assert found["memory"]["total"] >= found["memory"]["available"] > 0
    assert found["nodes"] == {}
    assert found["writable"]
    assert found["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["versions"]["ray"]


def test_a_port_in_use_is_found_and_a_free_one_not(ask: Ask) -> None:
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free.bind(("127.0.0.1", 0))
        ports = [taken.getsockname()[1], free.getsockname()[1]]
        free.close()
        assert ask("look", ports={"1": ports})["busy_ports"] == ports[:1]
        address = ["127.0.0.1", ports[0]]
        assert ask("reach", targets=[address, ["127.0.0.1", ports[1]]], limit_s=2) == {
            f"127.0.0.1:{ports[1]}": "Connection refused"
        }


def test_ports_are_opened_for_a_moment_and_others_instead_of_those_in_use(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        low = min(taken.getsockname()[1], 65000)
        ranges = {"ring": [low, low + 200]}
        found = ask("listen", address="127.0.0.1", ranges=ranges)
        assert found["address"] == "127.0.0.1"
        first, middle, last = found["ports"]["ring"]
        assert low < first < middle < last <= low + 200
        targets = [["127.0.0.1", port] for port in (first, middle, last)]
        assert ask("reach", targets=targets, limit_s=2) == {}
        assert ask("listen", address="127.0.0.1", ranges={}) == {"address": "127.0.0.1", "ports": {}}
        assert len(ask("reach", targets=targets, limit_s=2)) == 3
        with pytest.raises(RuntimeError, match=r"it cannot listen at its address 192\.0\.2\.1"):
            ask("listen", address="192.0.2.1", ranges=ranges)


def test_no_environment_and_a_path_that_is_too_long(ask: Ask, tmp_path: Path) -> None:
    found = ask("look", venv=str(tmp_path / "none"), directory=str(tmp_path / ("d" * 100)))
    assert found["versions"] == {}
    assert found["path_too_long"] > 0


def test_an_unknown_request_is_an_error_and_not_the_end(ask: Ask) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        ask("dance")
    assert ask("look")


def test_the_token_is_for_its_owner_alone_and_goes_with_the_rest(ask: Ask, tmp_path: Path) -> None:
    ask("claim", token="secret", launcher=modules("launcher"))
    token = tmp_path / "d" / "token"
    assert token.read_text() == "secret"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
    assert ask("look")["state"] == {"cluster": "id", "name": "lab", "owner": "me@here"}
    ask("stop", cluster="another")
    assert token.exists()
    ask("stop")
    assert not token.parent.exists()


def test_exporters_of_metrics_are_off_unless_the_fleet_file_wants_them(tmp_path: Path) -> None:
    off = {"RAY_enable_metrics_collection": "0", "AUTOSCALER_METRIC_PORT": "-1", "DASHBOARD_METRIC_PORT": "-1"}
    assert asked_variables({}, tmp_path).items() >= off.items()
    wanted = {"RAY_enable_metrics_collection": "1"}
    assert asked_variables({"env": wanted}, tmp_path).items() >= wanted.items()


def test_neither_token_nor_variables_of_a_container_are_on_a_command_line(ask: Ask, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    log = tmp_path / "log"
    docker.write_text(FAKE_DOCKER.format(log=log))
    docker.chmod(0o755)
    settings = {"docker": {"command": str(docker), "image": "dray:1", "shm_size": None, "network": "host"}}
    assert ask("look", **settings)["versions"]["ray"] == "2"
    ask("claim", token="secret", **settings)
    node = {"index": 1, "name": "a/1", "cpus": 2, "memory": 70, "object_store": 30, "arguments": ["--odd=a b; 'c"]}
    assert ask("start", nodes=[node], limit_s=5, env={"X": "$(id)"}, **settings) == {}
    assert ask("look", **settings)["nodes"]["1"]["alive"]
    [started] = [call.split("\n") for call in log.read_text().split("--\n") if "--detach" in call]
    assert "--odd=a b; 'c" in started
    mode, *variables = (tmp_path / "log.env").read_text().splitlines()
    assert mode == "600"
    assert {"X=$(id)", f"RAY_AUTH_TOKEN_PATH={tmp_path}/d/token"} < set(variables)
    assert "$(id)" not in log.read_text()
    assert not list((tmp_path / "d").glob("env*"))
    assert "100" in started[started.index("--memory") + 1]
    assert "secret" not in log.read_text()
    ask("stop", **settings)
    assert "rm\n--force\ndray-lab-" in log.read_text()


def test_old_sessions_go_and_the_latest_stays(ask: Ask, tmp_path: Path) -> None:
    ask("claim", token="secret", launcher=modules("launcher"))
    root = tmp_path / "d" / "ray" / "1"
    names = [f"session_2026-01-0{day}_00-00-00_000000_1" for day in (1, 2, 3)]
    for name in names:
        (root / name / "logs").mkdir(parents=True)
        (root / name / "logs" / "x.log").write_bytes(b"x" * 100_000)
    (root / "session_latest").symlink_to(root / names[2])
    answer = ask("cleanup", limit_bytes=150_000)
    assert answer["removed"] == 1
    assert sorted(path.name for path in root.glob("session_2*")) == names[1:]
    assert ask("cleanup", limit_bytes=0)["removed"] == 1
    assert [path.name for path in root.glob("session_2*")] == names[2:]


def test_logs_are_told_by_node_and_errors_alone_if_asked(ask: Ask, tmp_path: Path) -> None:
    ask("claim", token="secret", launcher=modules("launcher"))
    directory = tmp_path / "d"
    state = json.loads((directory / "state.json").read_text())
    state["nodes"] = {"1": {}, "2": {}}
    (directory / "state.json").write_text(json.dumps(state))
    for index in "12":
        folder = directory / "ray" / index / "session_latest" / "logs"
        folder.mkdir(parents=True)
        (folder / "raylet.out").write_text(f"all is well\nValueError: {index}\nstill well\n")
    assert ask("logs", nodes=None, errors=True, lines=5) == [
        ["1", "raylet.out", "ValueError: 1"],
        ["2", "raylet.out", "ValueError: 2"],
    ]
    assert ask("logs", nodes=["2"], errors=False, lines=1) == [["2", "raylet.out", "still well"]]


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("[2026-11-16 07:52:05,377 E 6175 6196] (raylet) agent.cc:1: x", True),
        ("[2026-11-16 07:52:05,377 I 6175 6196] (raylet) agent.cc:1: x", False),
        ("Traceback (most recent call last):", True),
        ("ray.exceptions.RayTaskError(KeyError)", True),
        ("Killed", True),
        ("all is well", False),
    ],
)
def test_what_looks_like_an_error(line: str, is_one: bool) -> None:
    assert bool(ERROR.search(line)) == is_one


def test_every_process_of_a_node_is_found_and_no_other(tmp_path: Path) -> None:
    """One that was noted, one that it started in a session of its own, an orphan in its session, one with its mark."""
    sleep = "import time; time.sleep(60)"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleep!r}]"
    script = f"{child}, start_new_session=True); {sleep}"
    orphan = f"{child})"
    parent = subprocess.Popen([sys.executable, "-c", script])
    session = subprocess.Popen([sys.executable, "-c", orphan], start_new_session=True, cwd=tmp_path)
    began = look_at(session.pid)
    session.wait()
    marked = subprocess.Popen([sys.executable, "-c", sleep], env={NODE_VARIABLE: "mark/1"})
    other = subprocess.Popen([sys.executable, "-c", sleep], env={NODE_VARIABLE: "mark/2"})
    try:
        noted = look_at(parent.pid)
        assert noted
        node = {
            "processes": [[parent.pid, noted.start, "x"]],
            "session": session.pid,
            "began": began.start if began else 0,
            "temp": str(tmp_path),
        }
        state = {"id": "mark", "boot": boot_id(), "nodes": {"1": node}}
        wait_until(lambda: len(of_nodes(state, ["1"])) == 4)
        found = of_nodes(state, ["1"])
        assert {parent.pid, marked.pid} < found
        assert other.pid not in found
        assert not of_nodes({**state, "boot": "another"}, ["1"])
        again = {**state, "nodes": {"1": {"processes": [[parent.pid, noted.start + 1, "x"]]}}}
        assert of_nodes(again, ["1"]) == {marked.pid}  # the pid alone is not enough
        assert end(lambda: of_nodes(state, ["1"])) == []
        assert not [pid for pid in found if look_at(pid)]
        assert other.poll() is None
    finally:
        for process in (parent, marked, other):
            process.kill()
            process.wait()


def test_a_session_number_that_is_used_again_says_nothing(tmp_path: Path) -> None:
    """The node has died, and the kernel gave the number of its session to another program of the same user."""
    script = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    )
    leader = [sys.executable, "-c", script]
    other = subprocess.Popen(leader, start_new_session=True, stdout=subprocess.PIPE, text=True)
    began = look_at(other.pid)
    assert other.stdout
    orphan = int(other.stdout.readline())
    assert began
    node = {"processes": [[1, 1, "raylet"]], "session": other.pid, "began": began.start - 100, "temp": str(tmp_path)}
    state = {"id": "mark", "boot": boot_id(), "nodes": {"1": node}}
    try:
        assert of_nodes(state, ["1"]) == set()
        other.wait()
        assert of_nodes(state, ["1"]) == set()
        seen = look_at(orphan)
        assert seen
        alive = {**node, "processes": [[orphan, seen.start, "raylet"]]}
        assert of_nodes({**state, "nodes": {"1": alive}}, ["1"]) == {orphan}
    finally:
        os.kill(orphan, signal.SIGKILL)
        other.wait()
        other.stdout.close()


def test_what_was_asked_to_end_is_waited_for_though_nothing_shows_any_more_whose_it_is() -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    deaf = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert deaf.stdout
    deaf.stdout.readline()
    found = iter([{deaf.pid}])
    assert end(lambda: next(found, set())) == []
    assert deaf.wait(5) == -9
    deaf.stdout.close()


def test_one_that_does_not_listen_is_ended_all_the_same() -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    deaf = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert deaf.stdout
    deaf.stdout.readline()
    assert end(lambda: {deaf.pid} if look_at(deaf.pid) else set()) == []
    assert deaf.wait(5) == -9
    deaf.stdout.close()


def wait_until(holds: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_psutil_agrees_on_what_a_process_is() -> None:
    seen = look_at(os.getpid())
    assert seen
    assert seen.parent == psutil.Process().ppid()
    assert seen.session == os.getsid(0)
