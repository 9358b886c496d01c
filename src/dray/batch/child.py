"""One process that runs batches, seen from the driver: its socket, its output, its end."""

from __future__ import annotations

import codecs
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress

from dray.batch import wire
from dray.batch.executor import Kind

_CHUNK = 1 << 20
_WORDS = 2000


class Child:
    """A started process. The driver's thread uses it; `kill`, `reap` and `close`, in that order, end it."""

    def __init__(self, environment: Mapping[str, str], directory: str | None) -> None:
        self.ready = False
        """Whether it has loaded the function."""
        self.batches: deque[int] = deque()
        """What it was given, the first running."""
        self.since = time.perf_counter()
        """When it was given something after nothing, or told of a result."""
        self.known: set[Hashable] = set()
        self.to_forget: list[Hashable] = []
        self.verdict: tuple[Kind, str] | None = None
        """Why the driver ended it, if it did."""
        self.channel, theirs = socket.socketpair()
        self.channel.setblocking(False)
        memory = _anonymous_memory()
        lifeline, self._lifeline = os.pipe()
        self._stdout, stdout = os.pipe()
        self._stderr, stderr = os.pipe()
        for descriptor in (self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        numbers = (theirs.fileno(), memory, lifeline)
        try:
            self._marks = mmap.mmap(memory, mmap.PAGESIZE)
            self._view = memoryview(self._marks).cast("q")
            self._view[0] = wire.READING
            self._process = subprocess.Popen(  # noqa: S603  (our own program)
                [sys.executable, "-S", "-c", _program(numbers)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=numbers,
                env={**os.environ, **environment},
                cwd=directory,
                start_new_session=True,  # a Ctrl-C in the terminal is for the driver, and a group can be ended as one
            )
        finally:
            theirs.close()
            for descriptor in (memory, lifeline, stdout, stderr):
                os.close(descriptor)
        self.pid = self._process.pid
        self._exit = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        self._incoming = bytearray()
        self._outgoing: deque[memoryview] = deque()
        self._words = ""
        self._decoders = {what: codecs.getincrementaldecoder("utf-8")("replace") for what in ("stdout", "stderr")}

    def descriptors(self) -> Iterator[tuple[int, str]]:
        """Yield what to listen to, each with its name."""
        yield self.channel.fileno(), "channel"
        yield self._stdout, "stdout"
        yield self._stderr, "stderr"
        if self._exit is not None:  # children of its own may hold the socket open after its end
            yield self._exit, "exit"

    def descriptor(self, what: str) -> int:
        return self._stdout if what == "stdout" else self._stderr

    def send(self, *parts: bytes) -> None:
        self._outgoing.extend(memoryview(part) for part in parts if part)

    def push(self) -> bool:
        """Write what the socket takes; return whether there is more."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                written = self.channel.send(self._outgoing[0])
                if written == len(self._outgoing[0]):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = self._outgoing[0][written:]
        return bool(self._outgoing)

    def pull(self) -> bool:
        """Read what there is; return whether more may come."""
        try:
            while data := self.channel.recv(_CHUNK):
                self._incoming += data
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def messages(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        """Yield the messages that are complete."""
        size = wire.HEADER.size
        while len(self._incoming) >= size:
            kind, number, head, body = wire.HEADER.unpack_from(self._incoming)
            end = size + head + body
            if len(self._incoming) < end:
                return
            with memoryview(self._incoming) as view:
                message = kind, number, bytes(view[size : size + head]), bytes(view[size + head : end])
            del self._incoming[:end]
            yield message

    def printed(self, what: str) -> str:
        """Return what it has printed since the last call."""
        parts = []
        with suppress(BlockingIOError, OSError):
            while data := os.read(self.descriptor(what), _CHUNK):
                parts.append(data)
                if len(parts) >= 16:  # the others want to be heard as well
                    break
        text = self._decoders[what].decode(b"".join(parts))
        if what == "stderr":
            self._words = (self._words + text)[-_WORDS:]
        return text

    def last_words(self) -> str:
        """Return the last line that it wrote to stderr."""
        lines = [line.strip() for line in self._words.splitlines() if line.strip()]
        return lines[-1][-300:] if lines else ""

    def offset(self) -> int:
        """Return the item of its batch that it is at, or one of the negative marks of `wire`."""
        return int(self._view[0])

    def running_s(self) -> float:
        """Return how long it has been at its item; 0 when items have no limit, or it is at none."""
        begun = int(self._view[1])
        return (time.monotonic_ns() - begun) / 1e9 if begun else 0.0

    def alive(self) -> bool:
        """Whether it runs; asked without reaping it, so that its group keeps its number."""
        if self._exit is not None:
            return not select.select([self._exit], [], [], 0)[0]
        return self._process.poll() is None

    def hang_up(self) -> None:
        """Let it end by itself when it has done what it was given."""
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it and all that it has started."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        return self._process.wait()

    def close(self) -> None:
        self.channel.close()
        self._view.release()
        self._marks.close()
        for descriptor in (self._lifeline, self._stdout, self._stderr, self._exit):
            if descriptor is not None:
                os.close(descriptor)
        self._exit = None


def _program(numbers: tuple[int, int, int]) -> str:
    """Return what the process runs: with our path and nothing else of the user's main program."""
    return (
        f"import sys; sys.path[:] = {sys.path!r}; sys.prefix, sys.exec_prefix = {sys.prefix!r}, {sys.exec_prefix!r}; "
        f"from dray.batch.process import main; main{numbers}"
    )


def _anonymous_memory() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("dray-marks")
    else:
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)  # noqa: PTH108
    os.ftruncate(descriptor, mmap.PAGESIZE)
    return descriptor
