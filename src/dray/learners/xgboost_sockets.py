"""Find and reset the TCP sockets that XGBoost opened in this process.

XGBoost gives no handle to its sockets and no way to interrupt a member that waits on one. Resetting a socket from a
side thread does: the waiting call returns with an error. It is never closed here: the number stays XGBoost's.

Why reset and not just end a connection: when XGBoost 3.2 reads the end of a connection it marks the read as done before
it notes the error. A member's thread that is faster goes on with rubbish, and its next allreduce waits for ever for
a thread that has stopped (about once in 200 times). An error that `poll` reports, as a reset is, does not go that way.

Sockets of Python and gRPC (Ray) close on exec, XGBoost's do not: the others are not even looked at.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Address = tuple[str, int]

_SOCKET = re.compile(r"socket:\[(\d+)\]")
_FILES = Path("/proc/self/fd")
_TABLES = Path("/proc/self/net")
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class NativeSocket:
    """A TCP socket opened by native code."""

    inode: int
    """Names the socket as long as it lives; a file number may be another socket's a moment later."""
    listening: bool
    local: Address
    remote: Address | None
    """None when it listens or is not connected; known while it is connecting."""


def native_sockets() -> list[NativeSocket]:
    """Return this process's native TCP sockets."""
    found = []
    _visit(lambda seen, _: found.append(seen))
    return found


def reset(pick: Callable[[NativeSocket], bool]) -> None:
    """Reset connections, so that both ends see an error; end listening and connecting."""

    def act(seen: NativeSocket, tcp: socket.socket) -> None:
        if not pick(seen):
            return
        if seen.remote is not None:
            nowhere = struct.pack("H14x", socket.AF_UNSPEC)
            _LIBC.connect(tcp.fileno(), nowhere, len(nowhere))
        with suppress(OSError):  # not connected any more
            tcp.shutdown(socket.SHUT_RDWR)

    _visit(act)


def set_reset_on_close(pick: Callable[[NativeSocket], bool], *, on: bool) -> None:
    """Have connections reset when they are closed or their process is killed, in place of a proper end."""

    def act(seen: NativeSocket, tcp: socket.socket) -> None:
        if pick(seen):
            with suppress(OSError):
                tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))

    _visit(act)


def _visit(act: Callable[[NativeSocket, socket.socket], None]) -> None:
    for file in list(_FILES.iterdir()):
        held = _hold(int(file.name))
        if held is None:
            continue
        inode, tcp = held
        with tcp:
            seen = _describe(inode, tcp)
            if seen is not None:
                act(seen, tcp)


def _inode(number: int) -> int | None:
    try:
        match = _SOCKET.fullmatch(str((_FILES / str(number)).readlink()))
    except OSError:
        return None
    return int(match[1]) if match else None


def _hold(number: int) -> tuple[int, socket.socket] | None:
    """Return the native TCP socket with this file number under a number of our own, so that it cannot change."""
    inode = _inode(number)
    try:
        if inode is None or fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
            return None
        own = os.dup(number)
    except OSError:
        return None
    if _inode(own) != inode:  # closed and used again in between
        os.close(own)
        return None
    blocking = os.get_blocking(own)
    try:
        held = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return None
    if os.get_blocking(own) != blocking:  # Python applies socket.setdefaulttimeout() to the socket itself
        os.set_blocking(own, blocking)
    if held.type == socket.SOCK_STREAM and held.family in (socket.AF_INET, socket.AF_INET6):
        return inode, held
    held.close()
    return None


def _describe(inode: int, tcp: socket.socket) -> NativeSocket | None:
    try:
        listening = bool(tcp.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        local: Address = tcp.getsockname()[:2]
    except OSError:
        return None
    try:
        remote: Address | None = tcp.getpeername()[:2]
    except OSError:
        remote = None if listening else _connecting_to(inode)
    return NativeSocket(inode, listening, local, remote)


def _connecting_to(inode: int) -> Address | None:
    """Return where a socket is connecting to; the kernel tells that only in its table."""
    for table in (_TABLES / "tcp", _TABLES / "tcp6"):
        if not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] == str(inode):
                host, port = fields[2].split(":")
                packed = b"".join(struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8))
                family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
                return (socket.inet_ntop(family, packed), int(port, 16)) if int(port, 16) else None
    return None
