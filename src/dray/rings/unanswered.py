"""Whether a connection waits in vain for an acknowledgement: what the kernel knows, and what follows from it.

A connection can be cut alone, such as by a firewall that forgets it. What was sent is then repeated without an answer.
A peer that is slow or frozen answers: its kernel acknowledges what it receives, and every question whether there is
room again. `last_ack_s` alone says nothing: with a full window the kernel asks less and less often, down to once in two
minutes.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_ESTABLISHED = 1
_TCP_INFO = struct.Struct("=B2xB20xI28xI")
"""Of Linux's struct tcp_info: tcpi_state, tcpi_probes, tcpi_unacked, tcpi_last_ack_recv (milliseconds)."""


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """What the kernel knows of the acknowledgements of a connection at one time."""

    established: bool
    unacknowledged: int
    """Segments that were sent and not acknowledged."""
    probes: int
    """Questions to a connection that is idle, or whose window is full, that were not answered."""
    last_ack_s: float
    """Seconds since the last acknowledgement, whatever it acknowledged."""


def acknowledgements(connection: socket.socket) -> Acknowledgements:
    """Ask the kernel."""
    packed = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    state, probes, unacknowledged, last_ack_ms = _TCP_INFO.unpack(packed)
    return Acknowledgements(state == _ESTABLISHED, unacknowledged, probes, last_ack_ms / 1000)


def waiting_since(seen: Acknowledgements, since: float | None, now: float) -> float | None:
    """Return since when a connection waits for an acknowledgement that has not come; None if it does not wait.

    `since` is what this returned when the connection was looked at before.
    """
    if not seen.established or not (seen.unacknowledged or seen.probes):
        return None
    if since is None or seen.last_ack_s < now - since:
        return now
    return since
