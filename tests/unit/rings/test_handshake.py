"""Who gets in: real sockets on loopback."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest

from dray.rings import handshake
from dray.rings.handshake import GuardedListener, Hello, NotProvenError, Purpose, prove

SECRET = b"s" * 32
HELLO = Hello(Purpose.DATA, 7, 4711)


@pytest.fixture
def listener() -> Iterator[GuardedListener]:
    with GuardedListener(socket.create_server(("127.0.0.1", 0)), SECRET) as made:
        yield made


def address(listener: GuardedListener) -> tuple[str, int]:
    return listener._server.getsockname()


class Caller(threading.Thread):
    """Proves itself in a thread of its own."""

    def __init__(self, to: tuple[str, int], secret: bytes = SECRET, hello: Hello = HELLO) -> None:
        super().__init__(daemon=True)
        self.connection = socket.create_connection(to, timeout=10)
        self.secret, self.hello = secret, hello
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            prove(self.connection, self.secret, self.hello)
        except Exception as error:
            self.error = error


def accept(listener: GuardedListener, within_s: float = 5.0) -> tuple[socket.socket, Hello]:
    return listener.accept(time.monotonic() + within_s)


def test_both_ends_that_know_the_secret_are_connected_and_the_hello_arrives(listener: GuardedListener) -> None:
    caller = Caller(address(listener))
    connection, hello = accept(listener)
    caller.join(5)
    with connection, caller.connection:
        assert caller.error is None
        assert hello == HELLO
        connection.sendall(b"over")
        assert caller.connection.recv(4) == b"over"


def test_a_caller_with_another_secret_is_refused_and_the_next_one_gets_in(listener: GuardedListener) -> None:
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(accept, listener)
        stranger = Caller(address(listener), b"t" * 32)
        stranger.join(5)
        member = Caller(address(listener), hello=Hello(Purpose.PULSE, 1))
        connection, hello = accepted.result(5)
        member.join(5)
    with connection, stranger.connection, member.connection:
        assert hello.member == 1
        assert isinstance(stranger.error, OSError)


def test_a_server_without_the_secret_learns_nothing_and_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = Caller(server.getsockname())
        connection, _ = server.accept()
        with connection, caller.connection:
            connection.sendall(bytes(32))
            assert len(handshake.take(connection, 71, time.monotonic() + 5)) == 71
            connection.sendall(bytes(32))
            caller.join(5)
            assert isinstance(caller.error, NotProvenError)


def test_the_proof_of_another_connection_is_worth_nothing(listener: GuardedListener) -> None:
    """A stranger that saw a member's words cannot say them again: the challenge is another."""
    with socket.create_server(("127.0.0.1", 0)) as tap:
        member = Caller(tap.getsockname())
        seen, _ = tap.accept()
        with seen, member.connection, socket.create_connection(address(listener), timeout=5) as stranger:
            seen.sendall(bytes(32))
            words = handshake.take(seen, 71, time.monotonic() + 5)
            stranger.sendall(words)
            with pytest.raises(TimeoutError):
                accept(listener, within_s=0.5)
            assert len(handshake.take(stranger, 32, time.monotonic() + 5)) == 32  # the challenge, and no more
            assert not ended(stranger)


def ended(connection: socket.socket) -> bytes:
    """Return what is still said before the end."""
    try:
        return connection.recv(100)
    except ConnectionError:
        return b""


def test_the_own_proof_cannot_be_sent_back(listener: GuardedListener) -> None:
    """Client and server sign different words."""
    secret, challenge, own = SECRET, bytes(32), bytes(32)
    assert handshake._sign(secret, b"client", challenge, own, b"") != handshake._sign(
        secret, b"server", challenge, own, b""
    )


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(71), b"\xff" * 4096])
def test_words_of_a_stranger_get_nothing_but_a_challenge(listener: GuardedListener, words: bytes) -> None:
    with socket.create_connection(address(listener), timeout=5) as stranger:
        stranger.sendall(words)
        with pytest.raises(TimeoutError):
            accept(listener, within_s=0.3)
        member = Caller(address(listener))
        connection, _ = accept(listener)
        with connection, member.connection:
            assert len(handshake.take(stranger, 32, time.monotonic() + 5)) == 32


def test_strangers_that_say_nothing_do_not_keep_members_out(
    listener: GuardedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "MOST_UNPROVEN", 8)
    with ExitStack() as strangers:
        for _ in range(50):
            strangers.enter_context(socket.create_connection(address(listener), timeout=5))
        member = Caller(address(listener))
        connection, hello = accept(listener)
        with connection, member.connection:
            assert hello == HELLO
            assert len(listener._unproven) <= 8


def test_callers_are_taken_faster_than_one_a_turn(listener: GuardedListener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a process that connects again and again fills the queue before the member's call."""
    turns, select = [], listener._selector.select
    monkeypatch.setattr(listener._selector, "select", lambda timeout: turns.append(timeout) or select(timeout))
    with ExitStack() as strangers:
        for _ in range(100):
            strangers.enter_context(socket.create_connection(address(listener), timeout=5))
        member = Caller(address(listener))
        connection, hello = accept(listener)
        with connection, member.connection:
            assert hello == HELLO
    assert len(turns) < 20


def test_a_caller_that_does_not_prove_itself_in_time_is_dropped(
    listener: GuardedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "ANSWER_S", 0.2)
    with socket.create_connection(address(listener), timeout=5) as slow:
        slow.sendall(b"x")
        with pytest.raises(TimeoutError):
            accept(listener, within_s=0.5)
        assert not listener._unproven
        assert len(handshake.take(slow, 32, time.monotonic() + 5)) == 32
        assert not ended(slow)


def test_a_process_without_a_free_file_goes_on_when_it_has_one(
    listener: GuardedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, tries = listener._server, iter(range(3))

    class Full:
        """Has no file for the first calls."""

        def accept(self) -> object:
            if next(tries, None) is not None:
                raise OSError(errno.EMFILE, "Too many open files")
            return server.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(server, name)

    caller = Caller(address(listener))
    monkeypatch.setattr(listener, "_challenge", partial(GuardedListener._challenge, Wrapped(listener, Full())))
    connection, _ = accept(listener)
    caller.join(5)
    with connection, caller.connection:
        assert caller.error is None


class Wrapped:
    """A listener with another server."""

    def __init__(self, listener: GuardedListener, server: object) -> None:
        self._listener, self._server = listener, server

    def __getattr__(self, name: str) -> object:
        return getattr(self._listener, name)


def test_an_ended_listener_lets_go_of_who_accepts(listener: GuardedListener) -> None:
    threading.Timer(0.1, listener.end).start()
    with pytest.raises(OSError) as raised:
        accept(listener, within_s=20)
    assert not isinstance(raised.value, TimeoutError)


def test_the_secret_is_not_shown() -> None:
    from dray.rings.rendezvous import RingAddress

    assert "sss" not in repr(RingAddress("host", 1, SECRET))
