"""A member's connections to all other members of its ring: each end has proved that it knows the ring's secret.

For every pair of members there are two connections. One carries data. The other carries nothing and is kept alive by
the kernel: it breaks when the other host has been silent for `SILENT_S`, independent of the data connection. The data
connection may be cut alone: the ring is also given up when the kernel has waited for an acknowledgement on it for
`SILENT_S` (`unanswered.py`). A peer that takes minutes to read breaks neither, nor does a frozen process: its kernel
answers.

Every wait here has a deadline, and `cut` ends every wait at once.
"""

from __future__ import annotations

import ctypes
import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from dray.rings.handshake import ANSWER_S, GuardedListener, Hello, Purpose, prove
from dray.rings.ports import listen
from dray.rings.rendezvous import MEET_S, MemberAddress, RingAddress, receive_members
from dray.rings.unanswered import acknowledgements, waiting_since

CONNECT_S = 10.0
"""How long a host may take to answer a call."""
SILENT_S = 25.0
"""How long a host may be silent, while the ring exists, before it counts as unreachable."""

_LOOK_S = 2.0
"""How often the acknowledgements of the data connections are looked at."""
_PROBES = 4
_PROBE_S = int(SILENT_S / (_PROBES + 1))
_LIBC = ctypes.CDLL(None, use_errno=True)
_LEFT = frozenset({0, errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN})
"""How a connection ends when the peer has left or its process has ended."""

DRIVER = -1
"""Means the driver where members are numbered."""


class RingBrokenError(ConnectionError):
    """The ring was given up, or this member could not join it."""


class Mesh:
    """The connections of one member of one ring. `join` and `leave` in the member's thread, `cut` from any."""

    def __init__(self, address: RingAddress, member: int) -> None:
        self.member = member
        self.rank = -1
        self.members: tuple[MemberAddress, ...] = ()
        """All members, by rank; known when all have come."""
        self.connections: dict[int, socket.socket] = {}
        """The data connection to each other member, by rank."""
        self.unreachable: frozenset[int] = frozenset()
        """Members that this one can no longer reach; `DRIVER` is the driver."""
        self._address = address
        self._pulses: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = False
        self._listener: GuardedListener | None = None
        self._accepting: threading.Thread | None = None
        self._called = threading.Condition()
        """Guards `connections` and `_pulses` while members call."""
        self._watching: threading.Thread | None = None

    @property
    def is_cut(self) -> bool:
        return self._cut

    def join(self) -> None:
        """Find the other members and connect to each of them; raises RingBrokenError."""
        try:
            self._meet()
            self._connect()
        except (OSError, ValueError) as error:
            self.cut()
            self.leave()
            raise RingBrokenError(self._why(error)) from error
        self._watching = threading.Thread(target=self._watch, name="dray-ring-pulse", daemon=True)
        self._watching.start()

    def cut(self) -> None:
        """Reset all connections: every wait for them, here and at the peers, fails. Returns at once, idempotent."""
        with self._lock:
            self._cut = True
            for connection in self._open:
                _reset(connection)
            if self._listener is not None:
                self._listener.end()
        with self._called:
            self._called.notify_all()

    def set_orderly(self) -> None:
        """Let the connections end without a reset when they are closed: peers may still be reading the last bytes."""
        for connection in self.connections.values():
            with suppress(OSError):
                _set_reset_on_close(connection, on=False)

    def leave(self) -> None:
        """Close everything."""
        with self._lock:
            self._cut = True
            for connection in list(self._pulses.values()):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            if self._listener is not None:
                self._listener.end()
        for thread in (self._accepting, self._watching):
            if thread is not None:
                thread.join(ANSWER_S)
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open.clear()

    # Joining

    def _meet(self) -> None:
        """Send the driver this member's address, and receive the addresses of all."""
        address = self._address
        meeting = self._call(address.host, address.port, DRIVER)
        server = listen(meeting.getsockname()[0], address.ports)
        listener = GuardedListener(server, address.secret)
        with self._lock:
            self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), name="dray-ring-accept", daemon=True)
        self._accepting.start()
        self._prove(meeting, Hello(Purpose.MEET, self.member, server.getsockname()[1]), DRIVER)
        _keep_alive(meeting)
        with self._blaming(DRIVER, (TimeoutError,)):
            self.members = receive_members(meeting)
        self._drop(meeting)
        self.rank = [peer.member for peer in self.members].index(self.member)

    def _connect(self) -> None:
        """Connect to the members of higher rank; those of lower rank connect to this one."""
        for rank in range(self.rank + 1, len(self.members)):
            peer = self.members[rank]
            for purpose, connections in ((Purpose.DATA, self.connections), (Purpose.PULSE, self._pulses)):
                connection = self._call(peer.host, peer.port, peer.member)
                self._prove(connection, Hello(purpose, self.rank), peer.member)
                connections[rank] = _made_ready(connection, purpose)
        callers = range(self.rank)
        with self._called:
            # As long as a peer may take until all its other connections have failed, and a little more.
            self._called.wait_for(lambda: self._cut or not self._missing(callers), CONNECT_S + ANSWER_S)
            if self._cut:
                raise ConnectionAbortedError
            if missing := self._missing(callers):
                self._blame(*(self.members[rank].member for rank in missing))
                raise TimeoutError("no connection")
        assert self._listener is not None
        self._listener.end()

    def _missing(self, callers: Iterable[int]) -> list[int]:
        return [rank for rank in callers if rank not in self.connections or rank not in self._pulses]

    def _accept(self, listener: GuardedListener) -> None:
        """Accept members of lower rank, and refuse connections without proof, until the listener is ended."""
        deadline = time.monotonic() + MEET_S + CONNECT_S + 2 * ANSWER_S
        with listener, suppress(OSError):
            while True:
                connection, hello = listener.accept(deadline)
                connections = self.connections if hello.purpose == Purpose.DATA else self._pulses
                with self._called:
                    if hello.purpose == Purpose.MEET or hello.member in connections:
                        connection.close()
                        continue
                    self._own(connection)
                    connections[hello.member] = _made_ready(connection, hello.purpose)
                    self._called.notify_all()

    def _call(self, host: str, port: int, member: int) -> socket.socket:
        connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._own(connection)
        connection.settimeout(CONNECT_S)
        # Refused: the process has ended. No answer, or no route: the network.
        unreachable = (TimeoutError, PermissionError)
        with self._blaming(member, unreachable):
            connection.connect((host, port))
        return connection

    def _prove(self, connection: socket.socket, hello: Hello, member: int) -> None:
        with self._blaming(member, (TimeoutError,)):
            prove(connection, self._address.secret, hello)

    @contextmanager
    def _blaming(self, member: int, errors: tuple[type[OSError], ...]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            no_way = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
            if (isinstance(error, errors) or no_way) and not self._cut:
                self._blame(member)
            raise

    def _blame(self, *members: int) -> None:
        self.unreachable |= frozenset(members)

    def _own(self, connection: socket.socket) -> None:
        with self._lock:
            if self._cut:
                connection.close()
                raise ConnectionAbortedError
            self._open.add(connection)

    def _drop(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
            connection.close()

    def _why(self, error: Exception) -> str:
        if not self.unreachable:
            return f"The ring was given up before this member joined: {error}".rstrip(": ")
        return f"No answer from {', '.join(self._name(member) for member in sorted(self.unreachable))}."

    def _name(self, member: int) -> str:
        if member == DRIVER:
            return f"the driver at {self._address.host}:{self._address.port}"
        peer = next(peer for peer in self.members if peer.member == member)
        return f"member {member} at {peer.host}:{peer.port}"

    # While the ring exists

    def _watch(self) -> None:
        """Cut the ring when a host no longer answers."""
        poll = select.poll()
        ranks = {}
        for rank, connection in self._pulses.items():
            poll.register(connection, select.POLLIN)
            ranks[connection.fileno()] = rank
        since: dict[int, float | None] = {}
        while ranks:
            for number, _ in poll.poll(_LOOK_S * 1000):
                rank = ranks.pop(number)
                poll.unregister(number)
                if not self._cut and _how_it_ended(self._pulses[rank]) not in _LEFT:
                    self._give_up(rank)
            now = time.monotonic()
            for rank, connection in self.connections.items():
                since[rank] = began = waiting_since(acknowledgements(connection), since.get(rank), now)
                if began is not None and now - began >= SILENT_S and not self._cut:
                    self._give_up(rank)

    def _give_up(self, unreachable: int) -> None:
        self._blame(self.members[unreachable].member)
        self.cut()


def _made_ready(connection: socket.socket, purpose: Purpose) -> socket.socket:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _set_reset_on_close(connection, on=True)
    # An idle data connection is probed so that a firewall does not forget it, and so that `_watch` sees when it is cut:
    # before the kernel ends it, because then it would not be known which peer was unreachable.
    _keep_alive(connection, _PROBES if purpose == Purpose.PULSE else 2 * _PROBES)
    return connection


def _keep_alive(connection: socket.socket, probes: int = _PROBES) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)


def _how_it_ended(connection: socket.socket) -> int:
    """Return the error of a connection that carries no data; 0 when the other end has closed it."""
    try:
        connection.recv(1)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _reset(connection: socket.socket) -> None:
    """Reset a connection, so that both ends see an error and not an orderly end.

    When XGBoost 3.2 reads the end of a connection it marks the read as done before it notes the error. If a
    member's thread is faster, it goes on with garbage, and its next allreduce waits for ever for a thread that has
    stopped (about once in 200 times). An error that `poll` reports, such as a reset, does not cause this. What is left
    is a member that is between its `poll` and its `send` in that very moment, which one that waits for a lost peer is
    not: the driver ends a worker that does not return.
    """
    nowhere = struct.pack("H14x", socket.AF_UNSPEC)
    _LIBC.connect(connection.fileno(), nowhere, len(nowhere))
    with suppress(OSError):  # not connected any more
        connection.shutdown(socket.SHUT_RDWR)


def _set_reset_on_close(connection: socket.socket, *, on: bool) -> None:
    """Reset the connection when it is closed or its process is killed, instead of an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))
