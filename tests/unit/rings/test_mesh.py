"""Members that meet: threads and real sockets on loopback. What a cut network does is in tests/hosts."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest

from dray.learners.xgboost.callers import admit_only
from dray.rings import mesh as meshes
from dray.rings import rendezvous
from dray.rings.handshake import Hello, Purpose, prove
from dray.rings.mesh import DRIVER, Mesh, RingBrokenError
from dray.rings.rendezvous import Rendezvous
from dray.rings.unanswered import acknowledgements

HOST = "127.0.0.1"


def joined(pool: ThreadPoolExecutor, members: list[Mesh]) -> list[Future[None]]:
    return [pool.submit(member.join) for member in members]


def test_every_member_has_a_connection_to_every_other() -> None:
    with Rendezvous(4, HOST) as meeting, ThreadPoolExecutor(4) as pool:
        members = [Mesh(meeting.address, number) for number in (30, 4, 11, 2)]
        for done in joined(pool, members):
            done.result(10)
        members.sort(key=lambda member: member.member)
        assert [member.rank for member in members] == [0, 1, 2, 3]
        for one in members:
            assert sorted(one.connections) == [rank for rank in range(4) if rank != one.rank]
            for rank, connection in one.connections.items():
                connection.sendall(b"%d%d" % (one.rank, rank))
        for one in members:
            assert all(c.recv(2) == b"%d%d" % (rank, one.rank) for rank, c in one.connections.items())
        for member in members:
            member.leave()
            assert not member.unreachable


def listening() -> set[str]:
    """The addresses that this process listens at."""
    connections = psutil.Process().net_connections("tcp")
    return {seen.laddr.ip for seen in connections if seen.status == psutil.CONN_LISTEN}


def test_driver_and_members_listen_at_the_address_of_the_ring_only() -> None:
    before = listening()
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(1) as pool:
        member = Mesh(meeting.address, 0)
        (done,) = joined(pool, [member])
        while member._listener is None:
            time.sleep(0.01)
        assert listening() - before <= {HOST}
        member.cut()
        with pytest.raises(RingBrokenError):
            done.result(5)


def test_cut_resets_the_connections_of_both_ends() -> None:
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(2) as pool:
        one, other = members = [Mesh(meeting.address, number) for number in range(2)]
        for done in joined(pool, members):
            done.result(10)
        one.cut()
        for member in members:
            with pytest.raises(OSError) as raised:
                next(iter(member.connections.values())).sendall(b"x" * 10_000_000)
            assert raised.value.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
        for member in members:
            member.leave()
        assert not one.unreachable
        assert not other.unreachable


def test_a_member_that_waits_for_others_is_cut_loose() -> None:
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(1) as pool:
        member = Mesh(meeting.address, 0)
        (done,) = joined(pool, [member])
        time.sleep(0.1)
        member.cut()
        with pytest.raises(RingBrokenError):
            done.result(5)
        assert not member.unreachable


def test_a_member_that_was_cut_before_it_joined_does_not_join() -> None:
    with Rendezvous(1, HOST) as meeting:
        member = Mesh(meeting.address, 0)
        member.cut()
        with pytest.raises(RingBrokenError):
            member.join()


def test_members_that_do_not_come_end_the_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "MEET_S", 0.3)
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(1) as pool:
        (done,) = joined(pool, [Mesh(meeting.address, 0)])
        with pytest.raises(RingBrokenError):
            done.result(5)


def test_a_driver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog drops the call, as a firewall does."""
    monkeypatch.setattr(meshes, "CONNECT_S", 0.3)
    with socket.create_server((HOST, 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        port = server.getsockname()[1]
        member = Mesh(rendezvous.RingAddress(HOST, port, b"secret"), 0)
        with pytest.raises(RingBrokenError, match=f"the driver at {HOST}:{port}"):
            member.join()
        assert member.unreachable == {DRIVER}


def test_a_member_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshes, "CONNECT_S", 0.3)
    with (
        Rendezvous(2, HOST) as meeting,
        ThreadPoolExecutor(1) as pool,
        socket.create_server((HOST, 0), backlog=0) as deaf,
        socket.create_connection(deaf.getsockname()),
        socket.create_connection((HOST, meeting.address.port), timeout=5) as fake,
    ):
        prove(fake, meeting.address.secret, Hello(Purpose.MEET, 5, deaf.getsockname()[1]))
        member = Mesh(meeting.address, 3)
        (done,) = joined(pool, [member])
        with pytest.raises(RingBrokenError, match="member 5 at 127"):
            done.result(5)
        assert member.unreachable == {5}


def test_a_member_that_never_calls_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshes, "CONNECT_S", 0.2)
    monkeypatch.setattr(meshes, "ANSWER_S", 0.2)
    with (
        Rendezvous(2, HOST) as meeting,
        ThreadPoolExecutor(1) as pool,
        socket.create_connection((HOST, meeting.address.port), timeout=5) as fake,
    ):
        prove(fake, meeting.address.secret, Hello(Purpose.MEET, 0, 1))
        member = Mesh(meeting.address, 1)
        (done,) = joined(pool, [member])
        with pytest.raises(RingBrokenError, match="member 0"):
            done.result(5)
        assert member.unreachable == {0}


def test_a_process_that_has_ended_is_not_called_unreachable() -> None:
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(1) as pool:
        with socket.create_server((HOST, 0)) as gone:
            port = gone.getsockname()[1]
        with socket.create_connection((HOST, meeting.address.port), timeout=5) as fake:
            prove(fake, meeting.address.secret, Hello(Purpose.MEET, 1, port))
            member = Mesh(meeting.address, 0)
            (done,) = joined(pool, [member])
            with pytest.raises(RingBrokenError):
                done.result(5)
        assert not member.unreachable


def test_a_stranger_joins_no_ring() -> None:
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(2) as pool:
        with socket.create_connection((HOST, meeting.address.port), timeout=5) as stranger:
            stranger.sendall(b"\x99\xff\0\0" + bytes(67))
            members = [Mesh(meeting.address, number) for number in range(2)]
            for done in joined(pool, members):
                done.result(10)
        assert [peer.member for peer in members[0].members] == [0, 1]
        for member in members:
            member.leave()


def test_a_host_that_falls_silent_breaks_the_ring_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel would say after the last unanswered probe."""
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(2) as pool:
        one, other = members = [Mesh(meeting.address, number) for number in range(2)]
        monkeypatch.setattr(meshes, "_how_it_ended", lambda connection: errno.ETIMEDOUT)
        for done in joined(pool, members):
            done.result(10)
        other._pulses[0].shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + 10
        while not one.unreachable:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(OSError):
            one.connections[1].sendall(b"x" * 10_000_000)
        for member in members:
            member.leave()
        assert one.unreachable == {1}


@contextmanager
def ring_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Mesh]]:
    """A ring that gives up after 2 s of silence on a data connection."""
    monkeypatch.setattr(meshes, "SILENT_S", 2.0)
    monkeypatch.setattr(meshes, "_LOOK_S", 0.2)
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(2) as pool:
        members = [Mesh(meeting.address, number) for number in range(2)]
        for done in joined(pool, members):
            done.result(10)
        yield members
        for member in members:
            member.leave()


def test_a_data_connection_that_is_cut_alone_breaks_the_ring_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with ring_of_two(monkeypatch) as members:
        one, _ = ends = [member.connections[1 - member.rank] for member in members]
        # What was said before is acknowledged: else either end may be the first to miss an answer.
        wait_for(lambda: not any(acknowledgements(end).unacknowledged for end in ends))
        for end in ends:
            admit_only(end, [])  # receives nothing any more
        one.sendall(b"x")
        one.settimeout(10)
        with pytest.raises(OSError) as raised:
            one.recv(1)
        assert not isinstance(raised.value, TimeoutError)
        assert members[0].unreachable == {1}


def test_an_idle_data_connection_that_is_cut_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshes, "_PROBE_S", 1)
    with ring_of_two(monkeypatch) as members:
        for member in members:
            admit_only(member.connections[1 - member.rank], [])
        wait_for(lambda: any(member.is_cut and member.unreachable for member in members))


def test_a_member_that_does_not_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meshes, "_PROBE_S", 1)
    with ring_of_two(monkeypatch) as members:
        one, other = (member.connections[1 - member.rank] for member in members)
        sent = 0
        one.settimeout(6)
        with pytest.raises(TimeoutError):
            while True:
                sent += one.send(bytes(1 << 16))
        assert not any(member.is_cut or member.unreachable for member in members)
        while sent:
            sent -= len(other.recv(1 << 20))
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_probes_are_as_quick_as_promised() -> None:
    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(2) as pool:
        members = [Mesh(meeting.address, number) for number in range(2)]
        for done in joined(pool, members):
            done.result(10)
        for member in members:
            (pulse,) = member._pulses.values()
            asked = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
            idle, interval, probes = (pulse.getsockopt(socket.IPPROTO_TCP, option) for option in asked)
            assert pulse.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert idle + interval * probes <= meshes.SILENT_S
            member.leave()


def test_nothing_is_left_of_a_ring() -> None:
    def threads() -> int:
        return sum("dray-ring" in thread.name for thread in threading.enumerate())

    with Rendezvous(2, HOST) as meeting, ThreadPoolExecutor(2) as pool:
        members = [Mesh(meeting.address, number) for number in range(2)]
        for done in joined(pool, members):
            done.result(10)
        opened = [socket for member in members for socket in member._open]
        assert len(opened) == 4
        for member in members:
            member.leave()
    assert all(connection.fileno() == -1 for connection in opened)
    assert not threads()
