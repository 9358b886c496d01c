"""Which ports the members of a ring listen on: one range for all hosts, so that a firewall can be configured."""

from __future__ import annotations

import errno
import random
import re
import socket
from collections.abc import Mapping

from dray.errors import ClusterError, ConfigError

VARIABLE = "DRAY_RING_PORTS"
DEFAULT = "20000-20099"
"""Above the ports of Ray's workers (10002-19999), below the ephemeral ports of systems (from 32768)."""

_BACKLOG = 1024
"""Every other member connects twice, all at the same time."""

PortRange = tuple[int, int]
"""First and last, both included."""


def parse_ports(text: str) -> PortRange:
    """Return the range that a text such as 20000-20099 names."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1024 <= first < last <= 65535:
        raise ConfigError(
            f"{VARIABLE}={text!r} is not a range of ports.",
            fix=f"Write the first and the last port, between 1024 and 65535, as in {VARIABLE}={DEFAULT}.",
        )
    return first, last


def ports_for(host: str, environment: Mapping[str, str]) -> PortRange | None:
    """Return the range for rings whose members meet at `host`; None for any port (no firewall)."""
    if host.startswith("127.") or host == "::1":
        return None
    return parse_ports(environment.get(VARIABLE) or DEFAULT)


def listen(host: str, ports: PortRange | None) -> socket.socket:
    """Return a socket that listens on a free port of the range, at this address only."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if ports is None:
        return socket.create_server((host, 0), family=family, backlog=_BACKLOG)
    first, last = ports
    count = last - first + 1
    start = random.randrange(count)
    for offset in range(count):
        try:
            return socket.create_server((host, first + (start + offset) % count), family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise ClusterError(
        f"None of the ports {first}-{last} is free on {host}: every worker needs one for its ring.",
        fix=f"Set {VARIABLE} for the driver (in a fleet file: ports.ring) to a larger range, and open it in firewalls.",
    )
