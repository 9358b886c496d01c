"""A port of this machine, on 127.0.0.1 alone, that ends at a port of a pod."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from dray.errors import ClusterError

Open = Callable[[], Any]
"""Return a new connection to the other end: something with recv, sendall, shutdown and close."""

_PIECE = 1 << 16


@contextmanager
def forward(open_end: Open) -> Iterator[int]:
    """Give the port, for as long as the context is open; each connection to it gets one of its own at the other end."""
    relay = _Relay(open_end)
    try:
        yield relay.port
    finally:
        relay.close()


class _Relay:
    def __init__(self, open_end: Open) -> None:
        self._open_end = open_end
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._ends: set[Any] = set()
        self._closed = False
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="port-forward", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ends = list(self._ends)
        _end(self._listener)
        for end in ends:
            _end(end)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(near,), name="port-forward", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with closing(near):
            try:
                far = self._open_end()
            except ClusterError:
                return  # the client sees its connection end, and asks the cluster for its status
            with self._lock:
                if self._closed:
                    _end(far)
                    return
                self._ends |= {near, far}
            back = threading.Thread(target=_copy, args=(far, near), name="port-forward", daemon=True)
            back.start()
            _copy(near, far)
            back.join()
            with self._lock:
                self._ends -= {near, far}
            _end(far)


def _copy(source: Any, target: Any) -> None:
    """Copy until one side ends, then end both: HTTP, which this is for, has nothing to say after that."""
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    _shut(target)
    _shut(source)


def _shut(end: Any) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it, which close alone would not


def _end(end: Any) -> None:
    _shut(end)
    with suppress(OSError):
        end.close()
