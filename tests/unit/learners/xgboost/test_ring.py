"""Rings that break: real processes and threads on loopback."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import xgboost
from ring_peer import PARAMS, matrix, rows, train
from xgboost.core import XGBoostError

from dray.learners.xgboost import bootstrap as xgboost_bootstrap
from dray.learners.xgboost import ring
from dray.learners.xgboost.bootstrap import Bootstrap
from dray.learners.xgboost.ring import RingDoor, is_ring_failure
from dray.learners.xgboost.sockets import native_sockets
from dray.rings.handshake import Hello, Purpose, prove
from dray.rings.mesh import Mesh, RingBrokenError
from dray.rings.rendezvous import MemberAddress, Rendezvous, RingAddress, receive_members

HOST = "127.0.0.1"
SOON_S = 10.0
"""Far less than the hours that a member waits for a peer, and more than a busy machine makes of a moment."""


class Member(threading.Thread):
    """A member in a thread of this process."""

    def __init__(self, door: RingDoor, number: int, body: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.door, self.number, self.body = door, number, body
        self.joined = threading.Event()
        self.result: object = None
        self.error: BaseException | None = None
        self.ended_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            with self.door.join(self.number):
                self.joined.set()
                self.result = self.body()
        except BaseException as error:
            self.error = error
        self.ended_at = time.monotonic()

    def end(self) -> object:
        self.join(20)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result

    def fails(self, since: float) -> str:
        """Return the text of the ring's failure, which must have come soon."""
        self.join(20)
        assert self.error is not None
        assert is_ring_failure(self.error), str(self.error)
        assert self.ended_at - since < SOON_S
        return str(self.error)


@contextmanager
def peer(meeting: Rendezvous, number: int, what: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which is ended here."""
    script = str(Path(__file__).with_name("ring_peer.py"))
    command = [sys.executable, script, str(meeting.address.port), str(number), what]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(meeting.address.secret.hex() + "\n")
    process.stdin.flush()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def agree_for_ever() -> None:
    while not ring.agree(False):
        pass


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def open_sockets() -> int:
    """All of this process, whoever opened them."""
    count = 0
    for file in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # closed meanwhile
            count += str(file.readlink()).startswith("socket:")
    return count


def natives() -> int:
    """Threads and sockets of this process."""
    return len(list(Path("/proc/self/task").iterdir())) + open_sockets()


def wait_at_the_meeting(door: RingDoor, number: int) -> Member:
    """Return a member that has met the driver and waits for others."""
    before = open_sockets()
    member = Member(door, number, agree_for_ever)
    wait_for(lambda: open_sockets() >= before + 3)  # both ends of one to the driver, one that listens
    time.sleep(0.05)
    assert member.is_alive()
    return member


@contextmanager
def connection(*, inheritable: bool = False) -> Iterator[Callable[[], bool]]:
    """An unrelated TCP connection of this process; yields whether it still carries data both ways."""
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            for end in (server, one, other):
                end.set_inheritable(inheritable)

            def works() -> bool:
                one.sendall(b"x")
                other.sendall(b"y")
                return one.recv(1) == b"y" and other.recv(1) == b"x"

            yield works


def test_members_in_threads_and_processes_train_the_trees_of_one_process() -> None:
    alone = train(matrix(0, 1, 2))
    with Rendezvous(3, HOST) as meeting, peer(meeting, 2, "train") as process:
        door = RingDoor(meeting.address)
        data = [matrix(0), matrix(1)]
        members = [Member(door, number, lambda number=number: train(data[number])) for number in range(2)]
        boosters = [member.end() for member in members]
        process.wait(10)
    for booster in boosters:
        assert isinstance(booster, xgboost.Booster)
        trees, wanted = booster.trees_to_dataframe(), alone.trees_to_dataframe()
        for column in ("Tree", "Node", "Feature", "Split", "Yes", "No"):
            assert trees[column].equals(wanted[column])
        np.testing.assert_allclose(trees["Gain"], wanted["Gain"], rtol=1e-5)


def test_members_agree_gather_and_are_told() -> None:
    with Rendezvous(3, HOST) as meeting:
        door = RingDoor(meeting.address)

        def talk() -> object:
            said = ring.rank() == 1
            return ring.agree(said), ring.agree(False), ring.tell_all(f"from {ring.rank()}".encode()), ring.rank()

        members = [Member(door, number, talk) for number in (10, 2, 7)]
        assert [member.end() for member in members] == [(True, False, b"from 0", place) for place in (2, 0, 1)]


def test_alone_there_is_nobody_to_ask_and_nothing_to_free() -> None:
    door = RingDoor(None)
    with door.join(0):
        assert ring.agree(True)
        assert not ring.agree(False)
        door.free()
        assert ring.rank() == 0


def listening() -> set[tuple[str, int]]:
    connections = psutil.Process().net_connections("tcp")
    return {(seen.laddr.ip, seen.laddr.port) for seen in connections if seen.status == psutil.CONN_LISTEN}


def test_in_a_ring_nothing_listens_to_other_hosts_and_nobody_can_end_a_member() -> None:
    """By itself XGBoost listens at all addresses, and exits when told to at its error port."""
    before = listening()
    with Rendezvous(2, HOST) as meeting:
        door = RingDoor(meeting.address)
        formed = threading.Barrier(3)
        members = [
            Member(door, number, lambda: (formed.wait(10), formed.wait(10), ring.agree(True))) for number in (0, 1)
        ]
        formed.wait(10)
        opened = listening() - before
        assert {host for host, _ in opened} == {HOST}
        for address in opened:
            with suppress(OSError), socket.create_connection(address, timeout=5) as stranger:
                stranger.sendall(b"\xff\xff\xff\xff" * 64)
        formed.wait(10)
        for member in members:
            member.end()


def test_a_silent_caller_from_the_same_machine_does_not_hold_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[int] = []

    class Observed(Bootstrap):
        def __init__(self, mesh: Mesh) -> None:
            super().__init__(mesh)
            servers.append(int(self.address["dmlc_tracker_port"]))
            strangers.enter_context(socket.create_connection((HOST, servers[-1])))  # before XGBoost's own call

    monkeypatch.setattr(ring, "Bootstrap", Observed)
    leave = threading.Event()
    with ExitStack() as strangers, Rendezvous(2, HOST) as meeting:
        members = [Member(RingDoor(meeting.address), number, lambda: leave.wait(SOON_S)) for number in range(2)]
        for member in members:
            assert member.joined.wait(SOON_S)
        for port in servers:  # where the member will say goodbye
            strangers.enter_context(socket.create_connection((HOST, port)))
        leave.set()
        assert [member.end() for member in members] == [True, True]


def test_a_caller_from_the_same_machine_gets_no_seat_at_the_listener_of_xgboost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It calls before all others, from two addresses."""
    refused = []

    def call_and_put(own: int, number: int) -> int:
        with socket.socket(fileno=os.dup(own)) as listener:
            if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                for address in (HOST, "127.0.0.2"):
                    stranger = strangers.enter_context(socket.socket())
                    stranger.bind((address, 0))
                    stranger.settimeout(0.2)
                    with pytest.raises(TimeoutError):
                        stranger.connect(listener.getsockname())
                    refused.append(address)
        return os.dup2(own, number)

    monkeypatch.setattr(xgboost_bootstrap, "os", SimpleNamespace(dup2=call_and_put))
    begun_at = time.monotonic()
    with ExitStack() as strangers, Rendezvous(3, HOST) as meeting:
        members = [Member(RingDoor(meeting.address), number, lambda: ring.tell_all(b"x")) for number in range(3)]
        assert [member.end() for member in members] == [b"x"] * 3
    assert len(refused) == 6
    assert time.monotonic() - begun_at < SOON_S


STRANGER = """
import socket, sys, time
def listeners():
    rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[1].startswith("0100007F")]
known, held = set(listeners()), {}
print("ready", flush=True)
while True:
    for port in listeners():
        if port not in known and len(held.setdefault(port, [])) < 4:
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
            held[port].append(caller)
            print(port, flush=True)
"""


def test_a_process_that_holds_every_port_of_the_machine_delays_no_ring() -> None:
    with subprocess.Popen([sys.executable, "-c", STRANGER], stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "ready\n"
            for _ in range(10):
                begun_at = time.monotonic()
                with Rendezvous(3, HOST) as meeting:
                    door = RingDoor(meeting.address)
                    members = [Member(door, number, lambda: ring.tell_all(b"x")) for number in range(3)]
                    assert [member.end() for member in members] == [b"x"] * 3
                assert time.monotonic() - begun_at < SOON_S
        finally:
            stranger.kill()
        assert stranger.stdout.readline(), "it has called"


def test_all_tries_of_forming_a_ring_take_less_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here XGBoost waits for a call that never comes, for which it has no deadline itself."""
    assert ring.TRIES * xgboost_bootstrap.LOCAL_S < 60
    before = natives()
    monkeypatch.setattr(xgboost_bootstrap, "LOCAL_S", 0.4)
    monkeypatch.setattr(Bootstrap, "_call", lambda *_: None)
    with Rendezvous(2, HOST) as meeting:
        begun_at = time.monotonic()
        members = [Member(RingDoor(meeting.address), number, agree_for_ever) for number in range(2)]
        for member in members:
            member.fails(since=begun_at)
            assert member.ended_at - begun_at < 2 * ring.TRIES * xgboost_bootstrap.LOCAL_S
    wait_for(lambda: natives() <= before)


def test_a_call_to_the_error_port_before_it_is_closed_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its caller could end the process at any time later."""
    callers: list[socket.socket] = []
    close = xgboost_bootstrap.end_port

    def call_and_close(port: int) -> None:
        callers.append(socket.create_connection((HOST, port), timeout=SOON_S))
        wait_for(lambda: any(one.local[1] == port and one.remote for one in native_sockets()))  # it was taken
        close(port)

    monkeypatch.setattr(xgboost_bootstrap, "end_port", call_and_close)
    with Rendezvous(2, HOST) as meeting:
        members = [Member(RingDoor(meeting.address), number, lambda: ring.agree(True)) for number in range(2)]
        assert [member.end() for member in members] == [True, True]
    assert len(callers) == 2
    for caller in callers:
        with caller:
            assert caller.recv(1) == b""


def test_the_first_member_does_not_get_pickles_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle, "loads", refuse)
    with Rendezvous(2, HOST) as meeting:
        door = RingDoor(meeting.address)
        members = [Member(door, number, lambda: ring.tell_all(b"\x80 any bytes\0")) for number in range(2)]
        assert [member.end() for member in members] == [b"\x80 any bytes\0"] * 2


@pytest.mark.parametrize("failures", [1, 4, 1_000])
def test_xgboost_is_started_again_when_it_does_not_get_its_connections(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    found, left = xgboost_bootstrap.numbers_of, iter(range(failures))

    def find(ends: Any) -> Any:
        if next(left, None) is not None:
            raise ConnectionError("0 sockets of XGBoost")
        return found(ends)

    before = natives()
    monkeypatch.setattr(xgboost_bootstrap, "numbers_of", find)
    with Rendezvous(2, HOST) as meeting:
        begun_at = time.monotonic()
        members = [Member(RingDoor(meeting.address), number, lambda: ring.agree(True)) for number in range(2)]
        if failures < 1_000:
            assert all(member.end() for member in members)
        else:
            for member in members:
                member.fails(since=begun_at)
    wait_for(lambda: natives() <= before)


def refuse(*_: object) -> None:
    raise AssertionError("unpickled")


@pytest.mark.parametrize("text", [b"", b"1", b"abcd", bytes(100_001)])
def test_all_members_hear_every_byte(text: bytes) -> None:
    with Rendezvous(3, HOST) as meeting:
        door = RingDoor(meeting.address)

        def hear() -> bytes:
            return ring.tell_all(text if ring.rank() == 0 else b"something else")

        assert [member.end() for member in [Member(door, number, hear) for number in range(3)]] == [text] * 3


def test_survivor_of_a_killed_peer_fails_soon() -> None:
    with Rendezvous(2, HOST) as meeting, peer(meeting, 1, "agree") as process:
        survivor = Member(RingDoor(meeting.address), 0, agree_for_ever)
        assert survivor.joined.wait(20)
        killed_at = time.monotonic()
        process.kill()
        text = survivor.fails(since=killed_at)
    assert "Poll error" in text  # not an end of file, which sometimes makes XGBoost wait for ever


def test_freed_from_a_frozen_peer_a_survivor_trains_on_in_a_new_ring_with_its_matrix() -> None:
    data = matrix(0)
    start = train(data).save_raw()
    before = natives()
    with Rendezvous(2, HOST) as meeting, peer(meeting, 1, "agree") as process:
        door = RingDoor(meeting.address)
        with connection() as works, connection(inheritable=True) as older_works:
            survivor = Member(door, 0, agree_for_ever)
            assert survivor.joined.wait(20)
            with connection(inheritable=True) as younger_works:
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.1)
                freed_at = time.monotonic()
                door.free()
                assert "Poll error" in survivor.fails(since=freed_at)
                assert works()
                assert older_works()
                assert younger_works()
    with pytest.raises(RingBrokenError), door.join(0):
        pass
    with Rendezvous(2, HOST) as meeting, peer(meeting, 1, "train"):
        booster = Member(RingDoor(meeting.address), 0, lambda: train(data, start)).end()
    wait_for(lambda: natives() <= before)
    assert isinstance(booster, xgboost.Booster)
    assert booster.num_boosted_rounds() == 6


def test_frozen_in_the_middle_of_a_training_the_survivor_is_freed() -> None:
    """Both train in rounds without end; the peer is frozen somewhere inside one."""
    data = matrix(0)
    with Rendezvous(2, HOST) as meeting, peer(meeting, 1, "train for ever") as process:
        door = RingDoor(meeting.address)
        survivor = Member(door, 0, lambda: xgboost.train(PARAMS, data, 1_000_000))
        assert survivor.joined.wait(20)
        time.sleep(0.3)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        freed_at = time.monotonic()
        door.free()
        survivor.fails(since=freed_at)
    assert train(data).num_boosted_rounds() == 3


@pytest.mark.parametrize("how", ["free", "abandon"])
def test_waiting_for_a_member_that_never_comes_ends(how: str) -> None:
    before = natives()
    meeting = Rendezvous(2, HOST)
    with closing_rendezvous(meeting):
        door = RingDoor(meeting.address)
        with connection() as works:
            member = wait_at_the_meeting(door, 0)
            with connection() as younger_works:
                freed_at = time.monotonic()
                door.free() if how == "free" else meeting.abandon()
                member.fails(since=freed_at)
                assert works()
                assert younger_works()
    wait_for(lambda: natives() <= before)


@contextmanager
def closing_rendezvous(meeting: Rendezvous) -> Iterator[None]:
    try:
        yield
    finally:
        meeting.abandon()


class FakePeer:
    """Meets the others as a member does, and then does what the test wants."""

    def __init__(self, meeting: Rendezvous, number: int) -> None:
        self.secret = meeting.address.secret
        self.server = socket.create_server((HOST, 0))
        self.meeting = socket.create_connection((HOST, meeting.address.port), timeout=10)
        prove(self.meeting, self.secret, Hello(Purpose.MEET, number, self.server.getsockname()[1]))

    def seats(self) -> tuple[MemberAddress, ...]:
        """Where all members listen; told when all have come."""
        return receive_members(self.meeting)

    def close(self) -> None:
        self.meeting.close()
        self.server.close()


def test_waiting_for_a_peer_that_met_the_tracker_and_never_calls_ends() -> None:
    before = natives()
    with Rendezvous(2, HOST) as meeting, closing(FakePeer(meeting, 1)) as fake:
        door = RingDoor(meeting.address)
        member = Member(door, 0, agree_for_ever)
        fake.seats()
        called, _ = fake.server.accept()
        with called:
            time.sleep(0.1)
            assert member.is_alive()
            freed_at = time.monotonic()
            door.free()
            member.fails(since=freed_at)
    wait_for(lambda: natives() <= before)


def test_waiting_for_a_peer_that_calls_and_says_nothing_ends() -> None:
    before = natives()
    with Rendezvous(2, HOST) as meeting, closing(FakePeer(meeting, 0)) as fake:
        door = RingDoor(meeting.address)
        member = Member(door, 1, agree_for_ever)
        seat = fake.seats()[1]
        with socket.create_connection((seat.host, seat.port)), connection() as works:
            time.sleep(0.1)
            assert member.is_alive()
            freed_at = time.monotonic()
            door.free()
            member.fails(since=freed_at)
            assert works()
    wait_for(lambda: natives() <= before)


def test_peer_that_died_after_it_met_the_tracker_fails_the_ring_soon() -> None:
    with Rendezvous(2, HOST) as meeting, closing(FakePeer(meeting, 1)) as fake:
        fake.server.close()
        joined_at = time.monotonic()
        member = Member(RingDoor(meeting.address), 0, agree_for_ever)
        member.fails(since=joined_at)


def test_member_that_died_while_it_waited_for_the_last_one_does_not_end_the_driver() -> None:
    """XGBoost's own tracker aborts its process here."""
    with Rendezvous(3, HOST) as meeting:
        FakePeer(meeting, 1).close()
        joined_at = time.monotonic()
        door = RingDoor(meeting.address)
        members = [Member(door, number, agree_for_ever) for number in (0, 2)]
        for member in members:
            member.fails(since=joined_at)


def test_connecting_to_a_host_that_does_not_answer_ends() -> None:
    """A full backlog drops the call, as a host that is cut off does."""
    with socket.create_server((HOST, 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        door = RingDoor(RingAddress(HOST, server.getsockname()[1], b"secret"))
        member = Member(door, 0, agree_for_ever)
        time.sleep(0.2)
        assert member.is_alive()
        freed_at = time.monotonic()
        door.free()
        member.fails(since=freed_at)


def test_freeing_an_ended_ring_leaves_the_next_one_alone() -> None:
    doors = []
    for _ in range(2):
        with Rendezvous(2, HOST) as meeting:
            door = RingDoor(meeting.address)
            doors.append(door)

            def talk() -> bool:
                doors[0].free() if len(doors) == 2 else None
                time.sleep(0.2)
                return ring.agree(True)

            assert all(member.end() for member in [Member(door, number, talk) for number in range(2)])


def test_freeing_a_ring_that_never_formed_leaves_the_next_one_alone() -> None:
    with Rendezvous(2, HOST) as stuck, Rendezvous(2, HOST) as meeting:
        old, new = RingDoor(stuck.address), RingDoor(meeting.address)
        waiting = wait_at_the_meeting(old, 0)
        start = threading.Barrier(2)

        def talk() -> bool:
            if start.wait(10) == 0:
                old.free()
            time.sleep(0.3)
            return ring.agree(True)

        members = [Member(new, number, talk) for number in range(2)]
        assert all(member.end() for member in members)
        waiting.join(5)
        assert waiting.error is not None


def test_body_that_raises_ends_the_ring_for_the_other_members() -> None:
    with Rendezvous(2, HOST) as meeting:
        door = RingDoor(meeting.address)

        def fail() -> None:
            raise ValueError("no rows")

        other = Member(door, 0, agree_for_ever)
        failing = Member(door, 1, fail)
        with pytest.raises(ValueError, match="no rows"):
            failing.end()
        other.fails(since=failing.ended_at)


def test_ring_that_did_its_work_ends_well_without_its_tracker() -> None:
    before = natives()
    meeting = Rendezvous(2, HOST)
    with closing_rendezvous(meeting):
        door = RingDoor(meeting.address)

        def work() -> bool:
            meeting.abandon()
            return ring.agree(True)

        assert all(member.end() for member in [Member(door, number, work) for number in range(2)])
    wait_for(lambda: natives() <= before)


def test_broken_rings_leave_nothing_behind() -> None:
    def break_one(*, formed: bool) -> None:
        with Rendezvous(2, HOST) as meeting:
            door = RingDoor(meeting.address)
            members = [Member(door, number, agree_for_ever) for number in range(2)] if formed else []
            if formed:
                assert members[0].joined.wait(10)
            else:
                members.append(wait_at_the_meeting(door, 0))
            meeting.abandon() if not formed else door.free()
            for member in members:
                member.join(10)
                assert member.error is not None

    before = natives()
    for _ in range(10):
        break_one(formed=True)
        break_one(formed=False)
    wait_for(lambda: natives() <= before)


def test_abandoned_with_a_frozen_member_the_tracker_ends() -> None:
    """The tracker reads from a member that connected and says nothing; its own way to free it would wait."""
    before = natives()
    meeting = Rendezvous(2, HOST)
    with socket.create_connection((HOST, meeting.address.port)):
        time.sleep(0.1)
        begun_at = time.monotonic()
        meeting.abandon()
        meeting.abandon()
        assert time.monotonic() - begun_at < SOON_S
    wait_for(lambda: natives() <= before)


def test_faults_of_parameters_and_data_are_no_ring_failures() -> None:
    features, labels = rows(0)
    faults: list[Callable[[], object]] = [
        lambda: xgboost.train({"max_depth": -3}, matrix(0), 1),
        lambda: xgboost.train({"objective": "nonsense"}, matrix(0), 1),
        lambda: xgboost.train({"objective": "binary:logistic"}, matrix(0), 1),
        lambda: xgboost.DMatrix(features, labels[:-1]),
        lambda: xgboost.train({}, xgboost.DMatrix(features), 1),
    ]
    for fault in faults:
        with pytest.raises(XGBoostError) as raised:
            fault()
        assert not is_ring_failure(raised.value)
    assert not is_ring_failure(ValueError("] /src/collective/result.cc:83:"))
