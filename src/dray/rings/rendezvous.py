"""Where the members of a ring find each other: a listener in the driver sends each member the addresses of all."""

from __future__ import annotations

import json
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from dray.errors import DAMAGE
from dray.rings.handshake import ANSWER_S, SECRET_BYTES, GuardedListener, Purpose, take
from dray.rings.ports import PortRange, listen

MEET_S = 60.0
"""How long the driver waits for all members before it gives the ring up."""

_SIZE = struct.Struct("!I")
_LARGEST_LIST = 1 << 24


@dataclass(frozen=True, slots=True)
class RingAddress:
    """What a member needs to know to join a ring."""

    host: str
    port: int
    secret: bytes = field(repr=False)
    ports: PortRange | None = None
    """Where members may listen; None for any port."""


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """Where a member listens for its peers."""

    member: int
    host: str
    port: int


class Rendezvous:
    """Connects `members` members once. One for each ring, never reused."""

    def __init__(self, members: int, host: str, ports: PortRange | None = None) -> None:
        self._members = members
        secret = secrets.token_bytes(SECRET_BYTES)
        server = listen(host, ports)
        self.address = RingAddress(host, server.getsockname()[1], secret, ports)
        self._listener = GuardedListener(server, secret)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[MemberAddress, socket.socket]] = {}
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="dray-rendezvous", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Give the ring up: members that wait get an error. From any thread, idempotent."""
        with self._lock:
            self._abandoned = True
            for _, connection in self._waiting.values():
                with suppress(OSError):  # not connected any more
                    connection.shutdown(socket.SHUT_RDWR)
        self._listener.end()
        if threading.current_thread() is not self._thread:
            self._thread.join(ANSWER_S)

    def _run(self) -> None:
        deadline = time.monotonic() + MEET_S
        try:
            with self._listener, suppress(OSError):  # abandoned, or a member did not come
                while len(self._waiting) < self._members:
                    self._admit(deadline)
                self._send_addresses()
        finally:
            for _, connection in self._waiting.values():
                connection.close()

    def _admit(self, deadline: float) -> None:
        connection, hello = self._listener.accept(deadline)
        with self._lock:
            if self._abandoned:
                connection.close()
                raise ConnectionAbortedError
            if hello.purpose != Purpose.MEET or hello.member in self._waiting:
                connection.close()
                return
            host = connection.getpeername()[0]
            self._waiting[hello.member] = MemberAddress(hello.member, host, hello.port), connection

    def _send_addresses(self) -> None:
        members = [member for _, (member, _) in sorted(self._waiting.items())]
        text = json.dumps([[member.member, member.host, member.port] for member in members]).encode()
        for _, connection in self._waiting.values():
            with suppress(OSError):  # it ended while it waited: the other members will notice
                connection.settimeout(ANSWER_S)
                connection.sendall(_SIZE.pack(len(text)) + text)


def receive_members(connection: socket.socket) -> tuple[MemberAddress, ...]:
    """Return the addresses of all members by rank; wait until all have come."""
    (size,) = _SIZE.unpack(take(connection, _SIZE.size, time.monotonic() + MEET_S + ANSWER_S))
    if size > _LARGEST_LIST:
        raise ConnectionError(f"a list of members of {size} bytes")
    text = take(connection, size, time.monotonic() + ANSWER_S)
    try:
        return tuple(MemberAddress(int(member), str(host), int(port)) for member, host, port in json.loads(text))
    except DAMAGE as error:
        raise ConnectionError(f"a list of members that cannot be read: {error}") from error
