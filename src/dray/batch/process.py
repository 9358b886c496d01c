"""The process that runs batches on this machine: it reads them from a socket and writes results to it.

Started by `processes.py` as a fresh interpreter, without the user's main program: nothing of it runs twice, and no
`if __name__ == "__main__"` is needed. It ends when the socket is closed, and at once when its driver is gone.
"""

from __future__ import annotations

import _pickle as pickle
import _thread
import mmap
import os
import site
import sys

from dray.batch import run_items, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_sending = _thread.allocate_lock()
"""A function tells from any of its threads, one message at a time."""


def main(channel: int, marks: int, lifeline: int) -> None:
    _end_with_driver(lifeline)
    _be_the_first_to_go()
    # Whole lines, also with PYTHONUNBUFFERED: those of two processes must not run together.
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    site.setquit()  # the interpreter was started without it, to save time
    memory = mmap.mmap(marks, mmap.PAGESIZE)
    view = memoryview(memory).cast("q")
    function: Callable[[Any], Any] | None = None
    limit_s: float | None = None
    while (message := _receive(channel)) is not None:
        kind, number, head, body = message
        shared, forgotten, *more = pickle.loads(head)
        for key in forgotten:
            wire.objects.pop(key, None)
        for key, path, inner, spans in shared:
            wire.objects[key] = wire.map_object(path, inner, spans)
        if kind == wire.HELLO:
            limit_s, threads = more
            function = _load(channel, body, threads)
            continue
        assert function is not None
        view[0] = wire.READING
        _run(channel, number, function, body, limit_s, view)
    _exit()


def _load(channel: int, body: bytes, threads: int) -> Callable[[Any], Any]:
    try:
        function: Callable[[Any], Any] = wire.loads(body)
    except BaseException as error:
        import traceback

        reason = (f"{type(error).__name__}: {error}".splitlines() or [""])[0]
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        _send(channel, wire.UNUSABLE, 0, pickle.dumps((reason, missing, traceback.format_exc())), b"")
        _exit()
        raise
    _send(channel, wire.READY, 0, b"", b"")
    if getattr(function, "opens", False) is True:
        from dray.batch.function import Context, opened

        def tell(value: Any) -> None:
            _send(channel, wire.TOLD, 0, pickle.dumps(value), b"")

        return opened(function, Context(threads, own_process=True, tell=tell))
    return function


def _run(
    channel: int, number: int, function: Callable[[Any], Any], body: bytes, limit_s: float | None, view: Any
) -> None:
    try:
        items = wire.loads(body)
    except BaseException as error:
        # One of them cannot be read: the driver does not know which, so it is told as the death of the batch.
        reason = f"It cannot be read in the process: {type(error).__name__}: {error}"[:500]
        _send(channel, wire.DONE, number, pickle.dumps((0.0, None, reason)), b"")
        return
    values, troubles, seconds = run_items.run(function, items, limit_s, view)
    view[0] = wire.PACKING
    results = run_items.pack_results(values, troubles, items)
    view[0] = wire.SENDING
    sys.stdout.flush()
    sys.stderr.flush()
    _send(channel, wire.DONE, number, pickle.dumps((seconds, troubles, "")), results)


def _receive(channel: int) -> tuple[int, int, bytes, bytes] | None:
    header = _exactly(channel, wire.HEADER.size)
    if header is None:
        return None
    kind, number, head, body = wire.HEADER.unpack(header)
    first, second = _exactly(channel, head), _exactly(channel, body)
    return None if first is None or second is None else (kind, number, first, second)


def _exactly(channel: int, count: int) -> bytes | None:
    if count == 0:
        return b""
    data = os.read(channel, count)
    if len(data) == count:
        return data
    parts = [data]
    missing = count - len(data)
    while missing and data:
        data = os.read(channel, missing)
        parts.append(data)
        missing -= len(data)
    return None if missing else b"".join(parts)


def _send(channel: int, kind: int, number: int, head: bytes, body: bytes) -> None:
    start = wire.HEADER.pack(kind, number, len(head), len(body)) + head
    with _sending:
        for part in (start + body,) if len(body) < 65536 else (start, body):
            view = memoryview(part)
            while view:
                view = view[os.write(channel, view) :]


def _end_with_driver(lifeline: int) -> None:
    """Have the kernel kill this process when the driver's end of the pipe closes, whatever it is doing then."""
    import fcntl
    from _signal import SIGKILL  # type: ignore[import-not-found]

    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
        if os.get_blocking(lifeline):
            os.set_blocking(lifeline, False)
        try:
            if os.read(lifeline, 1) == b"":  # it was gone before we listened
                os._exit(1)
        except BlockingIOError:
            return


def _be_the_first_to_go() -> None:
    """When memory runs out, the kernel shall end this process and not the driver."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123  (pathlib takes 10 ms to load)
            file.write("700")
    except OSError:
        return


def _exit() -> None:
    """Leave without tearing the interpreter down, which takes longer than most batches."""
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
