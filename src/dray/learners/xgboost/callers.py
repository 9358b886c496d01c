"""Have a listener answer known callers only: the kernel drops all other packets, as if it did not listen.

A listener on 127.0.0.1 is open to every user of the machine, and its port can be read in /proc/net/tcp. A classic BPF
filter (SO_ATTACH_FILTER, no privileges needed) is set before it listens, so that at no time another call is queued.
Accepted connections inherit it.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Sequence

LOOPBACK = "127.0.0.1"

_SO_ATTACH_FILTER = 26
"""Python does not name it. The same on all of Linux's platforms that XGBoost is built for."""
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_FROM_ADDRESS = 0xFFF00000 + 12
"""Of the IP header; other offsets count from the TCP header, which begins with the caller's port."""
_DROP, _PASS = 0, 0xFFFFFFFF


def bound_callers(count: int) -> list[socket.socket]:
    """Return sockets on 127.0.0.1 that have their ports already. No other process can get one of these ports there."""
    callers = []
    try:
        for _ in range(count):
            callers.append(socket.socket())
            callers[-1].bind((LOOPBACK, 0))
    except OSError:
        for caller in callers:
            caller.close()
        raise
    return callers


def admit_only(server: socket.socket, callers: Sequence[socket.socket]) -> None:
    """Have a TCP socket receive packets of these callers only, for good. Before it listens."""
    program = [
        (_LOAD_WORD, 0, 0, _FROM_ADDRESS),
        (_JUMP_IF_EQUAL, 1, 0, int.from_bytes(socket.inet_aton(LOOPBACK))),
        (_RETURN, 0, 0, _DROP),
        (_LOAD_HALF, 0, 0, 0),
    ]
    for caller in callers:
        program += [(_JUMP_IF_EQUAL, 0, 1, caller.getsockname()[1]), (_RETURN, 0, 0, _PASS)]
    program.append((_RETURN, 0, 0, _DROP))
    packed = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    server.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(packed)))
