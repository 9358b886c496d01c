"""Connections that wait for an acknowledgement: the decision alone, and what the kernel says of real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from dray.learners.xgboost.callers import admit_only
from dray.rings.unanswered import Acknowledgements, acknowledgements, waiting_since

Pair = tuple[socket.socket, socket.socket]


def seen(*, unacknowledged: int = 0, probes: int = 0, last_ack_s: float = 0.0) -> Acknowledgements:
    return Acknowledgements(True, unacknowledged, probes, last_ack_s)


def test_an_idle_connection_waits_for_nothing() -> None:
    assert waiting_since(seen(last_ack_s=3600), None, now=5000) is None


@pytest.mark.parametrize("waiting", [seen(unacknowledged=1, last_ack_s=40), seen(probes=1, last_ack_s=40)])
def test_a_connection_waits_from_when_it_was_first_seen_so(waiting: Acknowledgements) -> None:
    """Not from its last acknowledgement: it may have been idle since."""
    assert waiting_since(waiting, None, now=100) == 100
    assert waiting_since(waiting, 80, now=100) == 80


def test_an_acknowledgement_begins_the_wait_anew() -> None:
    """A transfer that goes on has something unacknowledged at all times."""
    assert waiting_since(seen(unacknowledged=9, last_ack_s=0.1), 80, now=100) == 100


def test_a_probe_that_was_answered_ends_the_wait() -> None:
    assert waiting_since(seen(probes=0, last_ack_s=1), 80, now=100) is None


def test_a_connection_that_has_ended_is_not_judged() -> None:
    assert waiting_since(Acknowledgements(False, 3, 3, 60), 10, now=100) is None


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            yield one, other


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cut(*ends: socket.socket) -> None:
    """Neither end receives anything any more."""
    for end in ends:
        admit_only(end, [])


def fill(connection: socket.socket) -> None:
    """Write until there is no room left in either buffer."""
    connection.setblocking(False)
    for _ in range(3):
        with suppress(BlockingIOError):
            while True:
                connection.send(bytes(1 << 16))
        time.sleep(0.1)


def test_what_was_sent_into_a_cut_connection_stays_unacknowledged(pair: Pair) -> None:
    one, other = pair
    one.sendall(b"x")
    wait_until(lambda: not acknowledgements(one).unacknowledged)
    cut(one, other)
    one.sendall(b"y")
    wait_until(lambda: acknowledgements(one).last_ack_s > 0.5)
    assert acknowledgements(one).unacknowledged


def test_a_peer_that_does_not_read_answers_every_probe(pair: Pair) -> None:
    one, other = pair
    fill(one)
    probed = 0
    ends_at = time.monotonic() + 2
    while time.monotonic() < ends_at:
        now = acknowledgements(one)
        assert not now.unacknowledged
        assert now.last_ack_s < 2
        probed += now.last_ack_s < 0.1
        time.sleep(0.01)
    assert probed, "the kernel has asked and was answered"
    cut(one, other)
    wait_until(lambda: acknowledgements(one).probes > 0)


def test_an_idle_connection_that_is_cut_has_unanswered_probes(pair: Pair) -> None:
    one, other = pair
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    cut(one, other)
    wait_until(lambda: acknowledgements(one).probes > 0)
