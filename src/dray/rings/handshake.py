"""How the two ends of a connection prove to each other that they know the ring's secret.

    server -> client    32 random bytes
    client -> server    32 random bytes, a hello of 7 bytes, HMAC-SHA256 over all of it
    server -> client    HMAC-SHA256 over the same

Before its proof, a client gets 32 random bytes and may send at most 71: none of them is parsed. The driver sends the
secret through Ray, one for each ring. Later bytes are neither encrypted nor signed: this does not stop an attacker that
can change packets between two hosts (docs/security.md).
"""

from __future__ import annotations

import errno
import hmac
import secrets
import selectors
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

SECRET_BYTES = 32
ANSWER_S = 10.0
"""How long the other end may take to answer, such as to prove itself."""
MOST_UNPROVEN = 128
"""Connections that may wait for proof at a time: beyond that, the oldest is dropped."""

_FULL_S = 0.05
_CALLS_A_TURN = 32
"""Far fewer than may wait for proof: a caller has several turns to answer before newer ones take its place."""
_NONCE = 32
_PROOF = 32
_HELLO = struct.Struct("!BIH")
_ANSWER = _NONCE + _HELLO.size + _PROOF


class Purpose(IntEnum):
    MEET = 0
    """A member tells the driver where it listens."""
    DATA = 1
    """Carries the data between two members."""
    PULSE = 2
    """Carries nothing: the kernel reports when the other host no longer answers."""


@dataclass(frozen=True, slots=True)
class Hello:
    purpose: Purpose
    member: int
    port: int = 0
    """Where the member listens for its peers; for MEET."""

    def pack(self) -> bytes:
        return _HELLO.pack(self.purpose, self.member, self.port)

    @staticmethod
    def unpack(packed: bytes) -> Hello:
        purpose, member, port = _HELLO.unpack(packed)
        return Hello(Purpose(purpose), member, port)


class NotProvenError(ConnectionError):
    """The other end does not know the ring's secret."""


def prove(connection: socket.socket, secret: bytes, hello: Hello) -> None:
    """Prove to a server that this end knows the secret, and that the server does, before `ANSWER_S` have passed."""
    deadline = time.monotonic() + ANSWER_S
    challenge = take(connection, _NONCE, deadline)
    own = secrets.token_bytes(_NONCE)
    connection.sendall(own + hello.pack() + _sign(secret, b"client", challenge, own, hello.pack()))
    answer = take(connection, _PROOF, deadline)
    if not hmac.compare_digest(answer, _sign(secret, b"server", challenge, own, hello.pack())):
        raise NotProvenError("the other end does not know the ring's secret")


def take(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Return so many bytes; raise when they have not come by the deadline."""
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("the other end has closed")
        data += piece
    return bytes(data)


def _sign(secret: bytes, side: bytes, challenge: bytes, own: bytes, hello: bytes) -> bytes:
    return hmac.digest(secret, b"dray ring 1 " + side + challenge + own + hello, "sha256")


@dataclass(slots=True)
class _Unproven:
    challenge: bytes
    deadline: float
    heard: bytearray


class GuardedListener:
    """Accepts only connections whose other end knows the secret. `accept` from one thread, `end` from any."""

    def __init__(self, server: socket.socket, secret: bytes) -> None:
        self._server = server
        self._secret = secret
        self._unproven: dict[socket.socket, _Unproven] = {}
        self._selector = selectors.DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """After the last `accept`; idempotent."""
        for connection in list(self._unproven):
            self._drop(connection)
        self._selector.close()
        self._server.close()

    def end(self) -> None:
        """Make `accept` raise, now or when it is called next."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)

    def accept(self, deadline: float) -> tuple[socket.socket, Hello]:
        """Return the next connection that has proved itself; TimeoutError at the deadline, OSError when ended."""
        while True:
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError("no further member has come")
            for late in [one for one, state in self._unproven.items() if state.deadline <= now]:
                self._drop(late)
            ends = [deadline, *(state.deadline for state in self._unproven.values())]
            ready = [key.fileobj for key, _ in self._selector.select(max(0.0, min(ends) - now))]
            # Answers first: a new caller may take the place of one that has just answered.
            for connection in ready:
                if isinstance(connection, socket.socket) and (hello := self._hear(connection)) is not None:
                    return connection, hello
            if self._server in ready:
                # Not one a turn: the queue of the kernel would be full, and a member's call be dropped.
                for _ in range(_CALLS_A_TURN):
                    if not self._challenge():
                        break

    def _challenge(self) -> bool:
        """Take the next call; return whether there may be more."""
        try:
            connection, _ = self._server.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False  # closed again
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            time.sleep(_FULL_S)  # the connection waits until the process has a free file descriptor
            return False
        challenge = secrets.token_bytes(_NONCE)
        connection.setblocking(False)
        try:
            connection.sendall(challenge)
        except OSError:
            connection.close()
            return True
        if len(self._unproven) >= MOST_UNPROVEN:
            self._drop(next(iter(self._unproven)))
        self._unproven[connection] = _Unproven(challenge, time.monotonic() + ANSWER_S, bytearray())
        self._selector.register(connection, selectors.EVENT_READ)
        return True

    def _hear(self, connection: socket.socket) -> Hello | None:
        state = self._unproven.get(connection)
        if state is None:  # the server
            return None
        try:
            piece = connection.recv(_ANSWER - len(state.heard))
        except BlockingIOError:
            return None
        except OSError:
            piece = b""
        state.heard += piece
        if piece and len(state.heard) < _ANSWER:
            return None
        hello = self._verify(connection, state) if piece else None
        if hello is None:
            self._drop(connection)
            return None
        self._forget(connection)
        connection.setblocking(True)
        return hello

    def _verify(self, connection: socket.socket, state: _Unproven) -> Hello | None:
        heard = bytes(state.heard)
        own, hello, proof = heard[:_NONCE], heard[_NONCE:-_PROOF], heard[-_PROOF:]
        if not hmac.compare_digest(proof, _sign(self._secret, b"client", state.challenge, own, hello)):
            return None
        try:
            connection.sendall(_sign(self._secret, b"server", state.challenge, own, hello))
            return Hello.unpack(hello)
        except (OSError, ValueError):
            return None

    def _forget(self, connection: socket.socket) -> None:
        del self._unproven[connection]
        self._selector.unregister(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()
