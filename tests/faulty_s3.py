"""A proxy before a real S3 endpoint that fails on demand, the way stores and networks do.

with serve_faulty(server) as faulty:
    ...                                       # reach the store at faulty.endpoint
    faulty.fail("slow_down", seconds=5)       # from now on
    faulty.fail("reset", requests=3, after=2) # two requests pass, three are reset
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

from s3_server import S3Server

Fault = Literal["slow_down", "internal", "denied", "missing", "reset", "cut", "silent", "refuse"]
"""Answers 503, 500, 403 or 404; resets the connection before an answer or in the middle of one (cut); never answers
(silent); closes the port (refuse)."""

ANSWERS = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "internal": (500, "InternalError", "We encountered an internal error. Please try again."),
    "denied": (403, "AccessDenied", "Access Denied"),
    "missing": (404, "NoSuchKey", "The specified key does not exist."),
}
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect"}
LONG_S = 600.0


@dataclass(frozen=True)
class Request:
    """What the proxy has seen."""

    method: str
    path: str
    fault: Fault | None
    """What happened to it; None: it was answered by the store."""


@dataclass
class _Plan:
    fault: Fault
    matching: str
    after: int
    requests: int | None
    seconds: float | None
    ends: float | None = None


class FaultyS3:
    """The endpoint, the requests it has seen, and the order to fail. Any thread may call."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self._upstream = urlsplit(server.endpoint).netloc
        self._lock = threading.Lock()
        self._plan: _Plan | None = None
        self._seen: list[Request] = []
        self._listener: _Listener | None = None
        self._closed = threading.Event()
        self._listen(0)
        assert self._listener is not None
        self._port = int(self._listener.server_address[1])
        self.endpoint = f"http://127.0.0.1:{self._port}"

    @property
    def reached(self) -> S3Server:
        """The same bucket, reached through the proxy: its `environment` is what another process needs."""
        return replace(self.server, endpoint=self.endpoint)

    @property
    def seen(self) -> list[Request]:
        with self._lock:
            return list(self._seen)

    @property
    def failed(self) -> int:
        """How many requests met a fault. While the port is closed nothing is seen that could be counted."""
        return sum(request.fault is not None for request in self.seen)

    def forget(self) -> None:
        with self._lock:
            self._seen.clear()

    def fail(
        self,
        fault: Fault,
        *,
        seconds: float | None = None,
        requests: int | None = None,
        after: int = 0,
        matching: str = "",
    ) -> None:
        """Fail for some seconds, counted from the first request that fails, or for so many requests; else for ever.

        Requests whose path does not hold `matching` pass, and so do the first `after` of those that do. A closed
        port hears no path: `refuse` closes it at the first such request and opens it after `seconds`.
        """
        with self._lock:
            self._plan = _Plan(fault, matching, after, requests, seconds)

    def heal(self) -> None:
        """Answer again, from now on."""
        with self._lock:
            self._plan = None
        self._listen(self._port)

    def close(self) -> None:
        """Stop, and let go of those who were left waiting."""
        self._closed.set()
        self._stop_listening()

    def meet(self, method: str, path: str) -> Fault | None:
        """Note a request and return what shall happen to it."""
        with self._lock:
            fault = self._fault_for(path)
            self._seen.append(Request(method, path, fault))
        if fault == "refuse":
            self._stop_listening()
        return fault

    def wait_silently(self, seconds: float = LONG_S) -> None:
        self._closed.wait(seconds)

    def _fault_for(self, path: str) -> Fault | None:
        plan = self._plan
        if plan is None or plan.matching not in path:
            return None
        if plan.after:
            plan.after -= 1
            return None
        if plan.ends is None:
            plan.ends = time.monotonic() + (plan.seconds if plan.seconds is not None else LONG_S)
            if plan.fault == "refuse" and plan.seconds is not None:
                timer = threading.Timer(plan.seconds, self._open_again)
                timer.daemon = True
                timer.start()
        if time.monotonic() >= plan.ends or plan.requests == 0:
            self._plan = None
            return None
        if plan.requests is not None:
            plan.requests -= 1
        return plan.fault

    def _open_again(self) -> None:
        if not self._closed.is_set():
            self.heal()

    def _listen(self, port: int) -> None:
        with self._lock:
            if self._listener is None:
                self._listener = _Listener(port, self, self._upstream)
                threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()

    def _stop_listening(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown()
            listener.server_close()
            listener.reset_connections()


@contextmanager
def serve_faulty(server: S3Server) -> Iterator[FaultyS3]:
    """Put a proxy before `server`; it passes everything until told to fail."""
    faulty = FaultyS3(server)
    try:
        yield faulty
    finally:
        faulty.close()


class _Listener(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, faulty: FaultyS3, upstream: str) -> None:
        self.faulty, self.upstream = faulty, upstream
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        self._open.add(request)
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self._open.discard(request)
        super().shutdown_request(request)

    def reset_connections(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is gone is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle_expect_100(self) -> bool:
        return True  # the answer follows; clients send the body after a moment

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.faulty.meet(self.command, self.path)
        if fault in ANSWERS:
            self._refuse(*ANSWERS[fault])
        elif fault in ("reset", "refuse"):
            self._reset()
        elif fault == "silent":
            self.server.faulty.wait_silently()
            self._reset()
        else:
            self._forward(body, cut=fault == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815  (http.server's names)

    def _forward(self, body: bytes, *, cut: bool) -> None:
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in {*HOP_BY_HOP, "content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.wfile.flush()
            self._reset()

    def _refuse(self, status: int, code: str, message: str) -> None:
        content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response_only(status, code)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _reset(self) -> None:
        self.close_connection = True
        with suppress(OSError):  # closing at once, with nothing lingering, sends a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
