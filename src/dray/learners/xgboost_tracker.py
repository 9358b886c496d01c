"""What brings the members of an XGBoost ring together: a tracker in the driver, a relay at each member.

XGBoost's own tracker cannot be used where members may die. It aborts its process (the driver) when a member is gone
before the last one has come: it sends to that member from a thread that does not catch. It tells members on other hosts
to exit their process when somebody starts twice or signals an error, and freeing it may wait for members that are gone.

The protocol is XGBoost's (2.1 to 3.2, src/collective/protocol.h): both sides send a number; the member says who it is,
then what it wants. A text is preceded by its length.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

RingAddress = dict[str, str | int]

MEET_TIMEOUT_S = 300
"""How long the tracker waits for the next member before it gives the ring up."""
SPEAK_TIMEOUT_S = 10
"""How long a member that has connected may take to say what it wants."""

CONNECT_TIMEOUT_S = 30
"""How long the tracker's host may take to answer at all."""

_MAGIC = 0xFF99
_START = 1
_INT = struct.Struct("=i")
_LONGEST_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A member that has come and waits to be told who is next to it."""

    task: str
    host: str
    port: int
    connection: socket.socket


class Tracker:
    """Brings `workers` members together once. One for each ring, never reused."""

    def __init__(self, workers: int, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._workers = workers
        self._server = socket.create_server((host, 0), family=family, backlog=max(workers, 16))
        self.address: RingAddress = {"dmlc_tracker_uri": host, "dmlc_tracker_port": self._server.getsockname()[1]}
        self._lock = threading.Lock()
        self._open = {self._server}
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="dray-ring-tracker", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """End the tracker: members that wait for it get an error. From any thread, idempotent."""
        with self._lock:
            self._abandoned = True
            for tcp in self._open:
                with suppress(OSError):  # not connected any more
                    tcp.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join(SPEAK_TIMEOUT_S)

    def _run(self) -> None:
        waiting: list[_Waiting] = []
        try:
            self._server.settimeout(MEET_TIMEOUT_S)
            while len(waiting) < self._workers:
                if (member := self._receive()) is not None:
                    waiting.append(member)
            _introduce(waiting)
        except OSError:
            pass  # abandoned, or nobody came
        finally:
            for tcp in list(self._open):
                self._close(tcp)

    def _receive(self) -> _Waiting | None:
        """Hear one member and leave it waiting for its answer."""
        connection, (host, *_) = self._server.accept()
        with self._lock:
            self._open.add(connection)
            if self._abandoned:
                raise ConnectionAbortedError
        try:
            _greet(connection)
            who, what = _hear(connection), _hear(connection)
            if what["cmd"] == _START:
                _say(connection, {"world_size": self._workers})
                return _Waiting(str(who["task_id"]), host, int(what["port"]), connection)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # a stranger, or a member that died: the others will notice
        self._close(connection)
        return None

    def _close(self, tcp: socket.socket) -> None:
        with self._lock:
            self._open.discard(tcp)
            tcp.close()


class Relay:
    """A member's tracker on its own host: passes on what is said when it comes, and hears its goodbye itself.

    A goodbye that fails makes XGBoost say it again in a destructor, and abort the process when that fails too. So
    nothing outside the process may be able to cut it: neither the driver nor the network. On the way the relay learns
    which sockets are the ring's.
    """

    def __init__(self, address: RingAddress) -> None:
        self._tracker = (str(address["dmlc_tracker_uri"]), int(address["dmlc_tracker_port"]))
        six = ":" in self._tracker[0]
        host, family = ("::1", socket.AF_INET6) if six else ("127.0.0.1", socket.AF_INET)
        self._server = socket.create_server((host, 0), family=family)
        self._upstream = socket.socket(family)
        self.address: RingAddress = {"dmlc_tracker_uri": host, "dmlc_tracker_port": self._server.getsockname()[1]}
        self.port: int | None = None
        """Where the member listens for its peers."""
        self.error_port: int | None = None
        """Where a thread of the member listens for orders to exit, until the goodbye."""
        self.members: frozenset[tuple[str, int]] = frozenset()
        """Where all members listen; known when all have come."""
        self._thread = threading.Thread(target=self._run, name="dray-ring-relay", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Part the member from the tracker: while it waits for it, it gets an error. From any thread, idempotent."""
        with suppress(OSError):  # not connected yet, or not any more
            self._upstream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the relay, after the member has said goodbye."""
        self.cut()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(SPEAK_TIMEOUT_S)

    def _run(self) -> None:
        with self._server, self._upstream, suppress(OSError):
            member, _ = self._server.accept()
            with member, suppress(OSError, ValueError, KeyError):
                self._pass_on(member)
            self._upstream.close()
            while True:
                member, _ = self._server.accept()
                with member, suppress(OSError):
                    _greet(member)
                    while member.recv(4096):
                        pass

    def _pass_on(self, member: socket.socket) -> None:
        _greet(member)
        who, what = _hear(member), _hear(member)
        self.port, self.error_port = int(what["port"]), int(what["error_port"])
        self._upstream.settimeout(CONNECT_TIMEOUT_S)
        self._upstream.connect(self._tracker)
        _greet(self._upstream)
        _say(self._upstream, who)
        _say(self._upstream, what)
        _say(member, _hear(self._upstream))
        self._upstream.settimeout(None)  # the others may take their time
        neighbour = _hear(self._upstream)
        self.members = frozenset((str(host), int(port)) for host, port in neighbour.pop("members"))
        _say(member, neighbour)


def _greet(connection: socket.socket) -> None:
    connection.settimeout(SPEAK_TIMEOUT_S)
    connection.sendall(_INT.pack(_MAGIC))
    if _INT.unpack(_take(connection, _INT.size)) != (_MAGIC,):
        raise ConnectionError("not a member")


def _introduce(waiting: list[_Waiting]) -> None:
    """Tell everyone who is next: ranks follow the task ids."""
    ring = sorted(waiting, key=lambda member: member.task)
    for place, member in enumerate(ring):
        rank = (place + 1) % len(ring)
        with suppress(OSError):  # died while it waited: the others will notice
            neighbour = {"rank": rank, "host": ring[rank].host, "port": ring[rank].port}
            _say(member.connection, neighbour | {"members": [(other.host, other.port) for other in ring]})


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    text = json.dumps(message, separators=(",", ":")).encode()
    connection.sendall(_INT.pack(len(text)) + text)


def _hear(connection: socket.socket) -> dict[str, Any]:
    (size,) = _INT.unpack(_take(connection, _INT.size))
    if not 0 < size <= _LONGEST_TEXT:
        raise ConnectionError(f"a text of {size} bytes")
    message: dict[str, Any] = json.loads(_take(connection, size))
    return message


def _take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other end has closed")
        data += piece
    return data
