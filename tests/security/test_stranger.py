"""A stranger on a host of its own, without a token, tries every open port of a fleet while a job trains on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

import datasets
from dray_process import start_dray
from hosts.network import Host, why_not
from hosts.pace import Pace
from hosts.sshd import Machines, why_no_sshd

HERE = Path(__file__).parent
RING_PORTS = range(20000, 20100)
GUIDE_PORTS = (range(6379, 6380), range(6400, 6412), range(10002, 20000), RING_PORTS)
"""docs/guides/fleet.md: the control service, six for each node, processes, rings."""
CHALLENGE_BYTES = 32
pytestmark = pytest.mark.xdist_group("stranger")
"""One process runs these, in this order: the ring's ports are counted before Ray opens its own on the same hosts."""
FLAGS = ["--label", "label", "--weight", "weight", "--ignore", "id", "--rounds", "30"]


@pytest.fixture(scope="module")
def pace(tmp_path_factory: pytest.TempPathFactory) -> Pace:
    return Pace(tmp_path_factory.mktemp("pace"))


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    if reason := why_not() or why_no_sshd():
        pytest.skip(reason)
    with Machines(["a", "b"]) as machines:
        yield machines
    assert not machines.directory.exists()


@pytest.fixture(scope="module")
def stranger(machines: Machines) -> Host:
    return machines.add("stranger", Host)


def start_stranger(stranger: Host, mark: Path, **request: Any) -> subprocess.Popen[str]:
    process = stranger.start(
        [sys.executable, str(HERE / "stranger.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "STRANGER_MARK": str(mark), "HOME": str(mark.parent)},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    process.stdin = None
    return process


def answer(process: subprocess.Popen[str], timeout_s: float = 100) -> Any:
    said, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, said
    return json.loads(said.splitlines()[-1])


ALLOWED = {"a challenge", "gRPC without an answer", "HTTP 400", "HTTP 401"}
"""All that a port may say to a caller that has no secret."""
_CONTROL_FRAMES = {3, 4, 6, 7, 8}
"""Of HTTP/2: of a connection, and the end of a call; headers (1) and data (0) would be an answer."""
_SETTINGS = b"\x04\0\0\0\0\0"
"""How a server of gRPC begins, behind the length of that frame: kind, no flag, stream 0. A setting has 6 bytes."""


def what_is_said(digits: str) -> str:
    """Return what kind of answer that is; the answer itself if it is of no known kind."""
    said = bytes.fromhex(digits)
    if refused := re.match(rb"HTTP/1\.[01] (400|401) ", said):
        return f"HTTP {refused[1].decode()}"
    if said[3:9] == _SETTINGS and int.from_bytes(said[:3], "big") % 6 == 0:  # a challenge never looks like this
        kinds, at = set(), 0
        while at < len(said):
            kinds.add(said[at + 3])
            at += 9 + int.from_bytes(said[at : at + 3], "big")
        return "gRPC without an answer" if kinds <= _CONTROL_FRAMES else repr(said)
    return "a challenge" if len(said) == CHALLENGE_BYTES else repr(said)


class Ports:
    """Lists the open ports of hosts again and again: those of rings come and go."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._times: Counter[tuple[str, int]] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._list)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _list(self) -> None:
        while not self._over.wait(0.25):
            self._times.update(where for host in self._hosts for where in open_ports(host))

    def seen(self) -> list[tuple[str, int]]:
        return sorted(dict(self._times))

    def unexpected(self) -> list[tuple[str, int]]:
        """Return the ports that the guide does not name, but for what was open for a moment (docs/security.md)."""
        laptop = self._hosts[-1].address
        return [
            (host, port)
            for (host, port), times in self._times.items()
            if times > 1 and (host == laptop or not any(port in ports for ports in GUIDE_PORTS))
        ]


def open_ports(host: Host) -> list[tuple[str, int]]:
    """Where processes on the host listen to other hosts, but for SSH."""
    listed = host.run(["ss", "--listening", "--tcp", "--numeric", "--no-header"]).stdout
    ends = [line.split()[3].rpartition(":") for line in listed.splitlines()]
    found = {int(port) for address, _, port in ends if not address.startswith(("127.", "[::1]", "[::ffff:127."))}
    return [(host.address, port) for port in sorted(found - {22})]


def test_a_stranger_takes_no_seat_while_a_ring_forms(machines: Machines, stranger: Host, tmp_path: Path) -> None:
    """The driver and the first member wait for the second; meanwhile their ports are open."""
    one, other = machines.machines["a"], machines.machines["b"]
    mark = tmp_path / "mark"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    script = [sys.executable, str(HERE / "ring_guest.py")]
    with ExitStack() as started:
        driver = started.enter_context(one.start([*script, "driver", one.address, "2"], **pipes))
        started.callback(driver.kill)
        assert driver.stdout is not None
        address = driver.stdout.readline()
        host, port, _ = json.loads(address)
        members = []
        for number, place in ((0, one), (1, other)):
            if number == 1:
                opened = wait_for_ports(one, 2)
                assert [port for _, port in opened if port not in RING_PORTS] == []
                assert [host, port] in [list(where) for where in opened]
                shouting = start_stranger(stranger, mark, targets=opened, seconds=3)
                tried = answer(start_stranger(stranger, mark, xgboost=opened, seconds=4))
                answers = answer(shouting)
            member = started.enter_context(place.start([*script, "member", str(number)], **pipes))
            started.callback(member.kill)
            assert member.stdin is not None
            member.stdin.write(address)
            member.stdin.flush()
            members.append(member)
        agreed = [json.loads(last_line(member)) for member in members]
        driver.communicate()
    assert agreed == [[0, "from 0"], [1, "from 0"]]
    assert all(f"TRIED {host} {port}" in tried for host, port in opened), tried
    assert "INSIDE" not in tried
    assert set(answers) == {f"{host}:{port}" for host, port in opened}, "both ports challenge a caller"
    assert {what_is_said(said) for all_said in answers.values() for said in all_said} == {"a challenge"}
    assert not mark.exists()


@pytest.fixture(scope="module")
def lab(machines: Machines, pace: Pace) -> None:
    hosts = [machines.machine(name, workers=1) for name in ("a", "b")]
    outcome = machines.call("up", fleet=machines.fleet(hosts, env=pace.environment))
    assert not outcome.error, outcome.error


def test_a_stranger_gets_nothing_of_a_training_and_disturbs_nothing(
    machines: Machines, lab: None, stranger: Host, pace: Pace, tmp_path: Path
) -> None:
    """It tries its own words at every port that ever opens, and Ray's and XGBoost's own clients."""
    data = datasets.write(tmp_path / "data", datasets.binary())
    with start_dray(["train", data, *FLAGS, "--workers", "0", "--out", "alone"], cwd=tmp_path) as alone:
        wanted = alone.finish()["model_digest"]
    mark = tmp_path / "mark"
    ring_ports = [[machines.machines[name].address, port] for name in ("a", "b") for port in RING_PORTS]
    attempts = [(address, token) for address in ray_addresses(machines) for token in ("", "0" * 64)]
    pace.begin(0.7)
    arguments = ["train", data, *FLAGS, "--workers", "2", "--cluster", "lab", "--out", str(tmp_path / "run")]
    with start_dray(arguments, cwd=tmp_path, env=machines.environment, prefix=machines.laptop.prefix) as run:
        from_the_start = start_stranger(stranger, mark, targets=ring_ports, seconds=15)
        as_member = start_stranger(stranger, mark, xgboost=ring_ports, seconds=15)
        with Ports([*machines.machines.values(), machines.laptop]) as ports:
            run.wait_round(2)
            opened = ports.seen()
            shouting = start_stranger(stranger, mark, targets=opened, seconds=5)
            inside = answer(start_stranger(stranger, mark, ray=attempts, seconds=20))
            answers = answer(shouting)
            of_rings = answer(from_the_start)
            member = answer(as_member)
            later = [where for where in ports.seen() if where not in opened]
            answers |= answer(start_stranger(stranger, mark, targets=later, seconds=1))
            pace.lift()
            result = run.finish()
        lost = run.events("worker_lost")
        links = [event for event in run.events("warning") if "No connection" in event["message"]]
    assert not any("INSIDE" in said for said in inside), inside
    assert "INSIDE" not in member, member
    assert not mark.exists(), "something of the stranger's was unpickled"
    assert not ports.unexpected()
    said = {(where, what_is_said(one)) for where, all_said in (answers | of_rings).items() for one in all_said}
    assert {what for _, what in said} <= ALLOWED, sorted(said)
    assert result["model_digest"] == wanted
    assert (result["failures"], lost, links) == (0, [], [])
    assert [event["round"] for event in run.events("round")] == list(range(1, 31))


def test_with_the_token_the_same_call_gets_inside(
    machines: Machines, lab: None, stranger: Host, tmp_path: Path
) -> None:
    """Else it would prove nothing that the stranger does not."""
    token = (machines.machines["a"].directory / "d" / "token").read_text().strip()
    (said,) = answer(start_stranger(stranger, tmp_path / "mark", ray=[(ray_addresses(machines)[0], token)], seconds=60))
    assert "INSIDE 1" in said


def test_the_fleet_is_left_as_it_was(machines: Machines, lab: None) -> None:
    status = machines.call("status")
    assert all(node["alive"] for node in status.result["nodes"]), status
    machines.call("down")
    assert [machines.machines[name].names for name in ("a", "b")] == [[], []]


def ray_addresses(machines: Machines) -> tuple[str, str]:
    """Return the addresses of Ray's control service and of the server of Ray's client, which dray does not start."""
    head = machines.machines["a"].address
    return f"{head}:6379", f"ray://{head}:10001"


def last_line(member: subprocess.Popen[str]) -> str:
    said, _ = member.communicate(timeout=60)
    return said.splitlines()[-1]


def wait_for_ports(host: Host, count: int) -> list[tuple[str, int]]:
    deadline = time.monotonic() + 20
    while len(found := open_ports(host)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found
