"""Whether machines reach each other: each opens a few ports for a moment, and all others connect."""

from __future__ import annotations

import errno
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dray.clusters.fleet.host.place import Request, TroubleError


def ssh_address() -> str:
    """Return this machine's address in the connection through which the agent came."""
    parts = os.environ.get("SSH_CONNECTION", "").split()
    return parts[2] if len(parts) == 4 else ""


def reach(request: Request) -> dict[str, str]:
    """Return what of a list of addresses cannot be reached from here, and why."""

    def connect(target: list[Any]) -> tuple[str, str]:
        host, port = str(target[0]), int(target[1])
        try:
            socket.create_connection((host, port), timeout=request["limit_s"]).close()
        except OSError as error:
            return f"{host}:{port}", error.strerror or str(error)
        return f"{host}:{port}", ""

    targets = request["targets"]
    with ThreadPoolExecutor(min(64, len(targets) or 1)) as pool:
        return {address: error for address, error in pool.map(connect, targets) if error}


class Listeners:
    """Ports that are open on this machine till others are asked for. Nothing is read from a connection."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    def listen(self, request: Request) -> dict[str, Any]:
        """Open the first, the middle and the last port of each range, or the next free one; close those of before."""
        self.close()
        address = request["address"] or ssh_address()
        try:
            ports = {key: self._of_range(address, first, last) for key, (first, last) in request["ranges"].items()}
        except OSError as error:
            self.close()
            raise TroubleError(f"it cannot listen at its address {address}: {error.strerror or error}") from error
        return {"address": address, "ports": ports}

    def close(self) -> None:
        for one in self._open:
            one.close()
        self._open = []

    def _of_range(self, address: str, first: int, last: int) -> list[int]:
        found: list[int] = []
        middle = (first + last) // 2
        for candidates in (range(first, middle), range(middle, last), range(last, middle, -1)):
            for port in candidates:
                if port not in found and self._listens(address, port):
                    found.append(port)
                    break
        return found

    def _listens(self, address: str, port: int) -> bool:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._open.append(socket.create_server((address, port), family=family))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return True
