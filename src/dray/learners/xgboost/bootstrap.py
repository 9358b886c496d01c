"""Give XGBoost its connections: those that dray has made and that both ends have proved themselves on.

XGBoost 3.2 connects its members by itself. It listens on all addresses of the host, at ports of its own choice, takes
any caller for a member, waits for callers without a deadline, and has a second port at which any caller can have the
process exit. None of it can be set. So dray plays, within the process, both the tracker and all peers: XGBoost's
sockets are connected to this module and nothing else, and its listener is replaced by one that the kernel keeps all
other callers away from (`callers.py`). When XGBoost has all connections, and before it has said anything, those of a
`Mesh` are put in their places (`dup2`). XGBoost then talks to its peers directly, at full speed.

The protocol is XGBoost's (2.1 to 3.2, src/collective/comm.cc and protocol.h):
- member to tracker: both send a number; the member sends its name, then where it listens. A text follows its length;
- tracker to member: how many members there are, then the rank and address of the next one in the ring;
- the member connects to the next, accepts the previous, and passes on the addresses that it gets: 64 bytes a host, then
  4 bytes a port, one for each member, the own one included;
- it connects to every member of higher rank and tells its own rank; it accepts those of lower rank, which send theirs;
- at its end it takes leave of the tracker. If that fails, a destructor tries again, and aborts the process when that
  fails too: here it cannot fail, because it does not leave the process.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import Any

from dray.learners.xgboost.callers import LOOPBACK, admit_only, bound_callers
from dray.learners.xgboost.sockets import end_port, is_called_from_here, numbers_of
from dray.rings.handshake import take
from dray.rings.mesh import Mesh

LOCAL_S = 10.0
"""How long XGBoost's start may take, and its end: nothing of it leaves the process. All tries take less than 60 s."""

_MAGIC = 0xFF99
_INT = struct.Struct("=i")
_HOST_BYTES = 64
"""HOST_NAME_MAX of Linux."""
_LONGEST_TEXT = 1 << 16


class Bootstrap:
    """XGBoost's tracker and peers for one member, in a thread of its own, until the member has left."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._server = socket.create_server((LOOPBACK, 0))
        self.address: dict[str, str | int] = {
            "dmlc_tracker_uri": LOOPBACK,
            "dmlc_tracker_port": self._server.getsockname()[1],
        }
        self._stack = ExitStack()
        self._peers: dict[int, socket.socket] = {}
        """This module's ends of XGBoost's connections, by rank of the peer that they represent."""
        self._listens_at = 0
        self._failure: Exception | None = None
        self._deadline = time.monotonic() + LOCAL_S
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dray-ring-bootstrap", daemon=True)
        self._thread.start()

    def hand_over(self) -> None:
        """Put the mesh's connections in place of XGBoost's. When it has all of them, before anything is said."""
        if not self._ready.wait(max(0.0, self._deadline - time.monotonic())) or self._failure is not None:
            raise ConnectionError("XGBoost did not get its connections") from self._failure
        # Seen from XGBoost, this module's end is the remote one.
        natives = numbers_of([(end.getpeername(), end.getsockname()) for end in self._peers.values()])
        for rank, (number, blocking) in zip(self._peers, natives, strict=True):
            connection = self._mesh.connections[rank]
            connection.setblocking(blocking)
            os.dup2(connection.fileno(), number)
        self._stack.close()

    def close(self) -> None:
        """Call it after the member has left, or has failed."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(LOCAL_S)

    def _run(self) -> None:
        with closing(self._server), suppress(OSError):
            try:
                with self._stack:
                    self._serve()
                    kept = self._stack.pop_all()
                self._stack = kept
            except Exception as error:
                self._failure = error
                if self._listens_at:
                    end_port(self._listens_at)  # XGBoost waits there without a deadline
            self._ready.set()
            self._hear_the_end()

    def _serve(self) -> None:
        tracker = self._accept()
        _greet(tracker, self._deadline)
        _hear(tracker, self._deadline)
        where = _hear(tracker, self._deadline)
        port = int(where["port"])
        end_port(int(where["error_port"]))
        rank, size = self._mesh.rank, len(self._mesh.members)
        previous, *lower = [self._stack.enter_context(caller) for caller in bound_callers(1 + rank)]
        listener = self._replace_listener(port, [previous, *lower])
        own_port = self._server.getsockname()[1]
        _say(tracker, {"world_size": size})
        _say(tracker, {"rank": (rank + 1) % size, "host": LOOPBACK, "port": own_port})
        following = self._accept()
        self._call(previous, listener, addresses(rank, size, listens_at=port, others_at=own_port))
        take(following, size * (_HOST_BYTES + _INT.size), self._deadline)
        for higher in range(rank + 1, size):
            self._peers[higher] = self._accept()
            take(self._peers[higher], _INT.size, self._deadline)
        for peer, caller in enumerate(lower):
            self._call(caller, listener, _INT.pack(peer))
            self._peers[peer] = caller

    def _replace_listener(self, port: int, callers: list[socket.socket]) -> tuple[str, int]:
        """Have XGBoost listen at an address at which only these callers are heard, from its first call on."""
        with socket.socket() as own:
            own.bind((LOOPBACK, 0))
            admit_only(own, callers)
            own.listen(len(callers))
            ((number, blocking),) = numbers_of([(("0.0.0.0", port), None)])  # noqa: S104
            own.setblocking(blocking)
            os.dup2(own.fileno(), number)
            address: tuple[str, int] = own.getsockname()
            self._listens_at = address[1]
            return address

    def _accept(self) -> socket.socket:
        return self._stack.enter_context(self._next_call(self._deadline))

    def _next_call(self, deadline: float | None) -> socket.socket:
        """Return the next connection from XGBoost in this process; other programs of this machine are turned away."""
        while True:
            self._server.settimeout(None if deadline is None else max(0.001, deadline - time.monotonic()))
            connection, _ = self._server.accept()
            if is_called_from_here(connection):
                connection.settimeout(LOCAL_S)
                return connection
            connection.close()

    def _call(self, caller: socket.socket, address: tuple[str, int], words: bytes) -> None:
        caller.settimeout(max(0.001, self._deadline - time.monotonic()))
        caller.connect(address)
        caller.sendall(words)

    def _hear_the_end(self) -> None:
        while True:
            with self._next_call(None) as member, suppress(OSError):
                _greet(member, time.monotonic() + LOCAL_S)
                while member.recv(4096):
                    pass


def addresses(rank: int, size: int, *, listens_at: int, others_at: int) -> bytes:
    """Return what the previous member passes on to that of `rank`: for each member, by distance, where its next one is.

    XGBoost checks that it is told its own port.
    """
    tellers = [(rank - 1 - step) % size for step in range(size)]
    hosts = LOOPBACK.encode().ljust(_HOST_BYTES, b"\0") * size
    ports = [listens_at if (teller + 1) % size == rank else others_at for teller in tellers]
    return hosts + b"".join(map(_INT.pack, ports))


def _greet(connection: socket.socket, deadline: float) -> None:
    connection.sendall(_INT.pack(_MAGIC))
    if _INT.unpack(take(connection, _INT.size, deadline)) != (_MAGIC,):
        raise ConnectionError("not XGBoost")


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    text = json.dumps(message, separators=(",", ":")).encode()
    connection.sendall(_INT.pack(len(text)) + text)


def _hear(connection: socket.socket, deadline: float) -> dict[str, Any]:
    (size,) = _INT.unpack(take(connection, _INT.size, deadline))
    if not 0 < size <= _LONGEST_TEXT:
        raise ConnectionError(f"a text of {size} bytes")
    message: dict[str, Any] = json.loads(take(connection, size, deadline))
    return message
