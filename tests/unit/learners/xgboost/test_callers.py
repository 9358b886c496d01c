"""Which calls a listener hears: real sockets on loopback."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from dray.learners.xgboost.callers import admit_only, bound_callers

HOST = "127.0.0.1"


@pytest.mark.parametrize("count", [1, 3, 600])
def test_known_callers_are_heard_and_others_are_not(count: int) -> None:
    with ExitStack() as opened:
        callers = [opened.enter_context(caller) for caller in bound_callers(count)]
        server = opened.enter_context(socket.socket())
        server.bind((HOST, 0))
        admit_only(server, callers)
        server.listen(count)
        server.settimeout(5)
        # The second has the port of a caller, at another address.
        for address in ((HOST, 0), ("127.0.0.2", callers[-1].getsockname()[1])):
            with socket.socket() as stranger:
                stranger.bind(address)
                stranger.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    stranger.connect(server.getsockname())
        for caller in callers:
            caller.connect(server.getsockname())
            accepted, heard_from = server.accept()
            with accepted:
                assert heard_from == caller.getsockname()
                caller.sendall(b"x")
                accepted.sendall(accepted.recv(1))
                assert caller.recv(1) == b"x"


def test_no_other_process_can_take_the_port_of_a_caller() -> None:
    (caller,) = bound_callers(1)
    with caller, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(caller.getsockname())
