"""Find the TCP sockets that XGBoost opened in this process: it gives no handle to them.

Sockets of Python and gRPC (Ray) close on exec, XGBoost's do not: the others are not even looked at.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

Address = tuple[str, int]

_SOCKET = re.compile(r"socket:\[(\d+)\]")
_FILES = "/proc/self/fd"


@dataclass(frozen=True, slots=True)
class NativeSocket:
    """A TCP socket opened by native code."""

    number: int
    """The file number. XGBoost's as long as the member that it belongs to does nothing."""
    local: Address
    remote: Address | None
    """None when it listens or is not connected."""
    blocking: bool


def native_sockets() -> list[NativeSocket]:
    """Return this process's native TCP sockets."""
    return list(_visit(_numbers()))


def numbers_of(ends: Collection[tuple[Address, Address | None]]) -> list[tuple[int, bool]]:
    """Return the file number of the native socket with each of these ends, local and remote, and whether it blocks."""
    found: dict[tuple[Address, Address | None], list[NativeSocket]] = {}
    for seen in _visit(_numbers()):
        found.setdefault((seen.local, seen.remote), []).append(seen)
    for pair in ends:
        if len(found.get(pair, ())) != 1:
            raise ConnectionError(f"{len(found.get(pair, ()))} sockets of XGBoost from {pair[0]} to {pair[1]}")
    return [(found[pair][0].number, found[pair][0].blocking) for pair in ends]


def is_called_from_here(connection: socket.socket) -> bool:
    """Whether the other end of a connection is a native socket of this process: any user of a machine can call it."""
    try:
        ends = connection.getpeername(), connection.getsockname()
    except OSError:  # gone again
        return False
    # The newest file is most often the one with the highest number: a large ring has many.
    return any((seen.local, seen.remote) == ends for seen in _visit(sorted(_numbers(), reverse=True)))


def end_port(port: int) -> None:
    """Have the native socket that listens at this port take no more calls, and end the calls that it has taken.

    What waits for either gets an error.
    """
    for listens in (True, False):  # in this order: no call is taken between the two
        for number in _numbers():
            with _held(number) as tcp, suppress(OSError):
                if tcp is None or tcp.getsockname()[1] != port:
                    continue
                if bool(tcp.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) == listens:
                    tcp.shutdown(socket.SHUT_RDWR)


def _visit(numbers: Iterable[int]) -> Iterator[NativeSocket]:
    for number in numbers:
        with _held(number) as tcp:
            if tcp is None:
                continue
            with suppress(OSError):
                local: Address = tcp.getsockname()[:2]
                remote: Address | None = None
                with suppress(OSError):
                    remote = tcp.getpeername()[:2]
                yield NativeSocket(number, local, remote, os.get_blocking(tcp.fileno()))


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir(_FILES)]  # noqa: PTH208  (for each call to a member, of each file)


def _inode(number: int) -> int | None:
    try:
        match = _SOCKET.fullmatch(os.readlink(f"{_FILES}/{number}"))  # noqa: PTH115
    except OSError:
        return None
    return int(match[1]) if match else None


@contextmanager
def _held(number: int) -> Iterator[socket.socket | None]:
    """Yield the native TCP socket with this file number under a number of our own, so that it cannot change."""
    held = _hold(number)
    try:
        yield held
    finally:
        if held is not None:
            held.close()


def _hold(number: int) -> socket.socket | None:
    try:
        if fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC or (inode := _inode(number)) is None:
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
    # Python applies socket.setdefaulttimeout() to the socket itself. Without one nothing is set back: XGBoost may have
    # changed it meanwhile.
    if socket.getdefaulttimeout() is not None and os.get_blocking(own) != blocking:
        os.set_blocking(own, blocking)
    if held.type == socket.SOCK_STREAM and held.family in (socket.AF_INET, socket.AF_INET6):
        return held
    held.close()
    return None
