"""The hosts themselves: what the other tests here rely on."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hosts.network import Host, Network

ANSWER = """
import socket, sys
server = socket.create_server((sys.argv[1], 5000))
print("listening", flush=True)
while True:
    connection, _ = server.accept()
    with connection:
        while connection.recv(65536):
            pass
        connection.sendall(b"all")
"""
ASK = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[3]))
began = time.monotonic()
connection.sendall(bytes(int(sys.argv[2])))
connection.shutdown(socket.SHUT_WR)
assert connection.recv(3) == b"all"
print(time.monotonic() - began)
"""


@pytest.fixture
def network(can_have_hosts: None) -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def here(network: Network) -> Host:
    return network.add("here", Host)


@pytest.fixture
def there(network: Network) -> Host:
    """A host that answers once it has all that it is sent."""
    host = network.add("there", Host)
    server = host.start([sys.executable, "-c", ANSWER, host.address], stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"listening\n"
    return host


def seconds_of_an_answer(here: Host, there: Host, size_bytes: int = 1, patience_s: float = 30) -> float:
    asked = here.run([sys.executable, "-c", ASK, there.address, str(size_bytes), str(patience_s)])
    return float(asked.stdout)


def test_a_host_has_a_name_and_others_know_it(here: Host, there: Host) -> None:
    program = "import socket; print(socket.gethostname(), socket.gethostbyname('there'))"
    assert here.run([sys.executable, "-c", program]).stdout.split() == ["here", there.address]
    assert socket.gethostname() != "here"


def test_a_cut_host_does_not_answer_until_it_is_restored(here: Host, there: Host) -> None:
    assert seconds_of_an_answer(here, there) >= 0
    there.cut()
    with pytest.raises(AssertionError, match="timed out"):
        seconds_of_an_answer(here, there, patience_s=1)
    there.restore()
    assert seconds_of_an_answer(here, there) >= 0


def test_a_slow_link_delays_and_holds_to_its_rate(here: Host, there: Host) -> None:
    there.slow(delay_ms=200)
    assert seconds_of_an_answer(here, there) >= 0.2
    there.slow(rate="8mbit")
    assert seconds_of_an_answer(here, there, size_bytes=1_000_000) >= 0.8
    there.fast()
    assert [process.cmdline()[1] for process in there.processes()] == ["-c"]


def test_a_host_without_power_runs_nothing(there: Host) -> None:
    assert there.processes()
    there.power_off()
    assert not there.processes()


def test_what_a_killed_run_left_is_swept_by_the_next(can_have_hosts: None) -> None:
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from hosts.network import Host, Network\n"
        "network = Network()\n"
        "print(network.directory, network.add('left', Host).start(['sleep', '1000']).pid, flush=True)\n"
        "time.sleep(1000)"
    )
    tests = str(Path(__file__).parents[1])
    killed = subprocess.Popen([sys.executable, "-c", program, tests], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    directory, pid = killed.stdout.readline().split()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    name = Path(directory).name
    assert Path(directory).exists()
    assert list(Path("/run/netns").glob(f"{name}-*"))
    with Network():
        assert not Path(directory).exists()
        assert not list(Path("/run/netns").glob(f"{name}-*"))
        assert not list(Path("/etc/netns").glob(f"{name}-*"))
        assert _is_gone(int(pid))


def _is_gone(pid: int, timeout_s: float = 5) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
