"""Run a function over the items of a batch, in whatever process this is.

An item that raises, takes too long or whose result cannot be sent is told of; the others go on. Loaded by every process
that runs items, so it imports next to nothing.
"""

from __future__ import annotations

import _pickle as pickle
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dray.batch.executor import Kind

    RawTrouble = tuple[int, Kind, str, str, str, bytes | None]
    """The fields of `executor.Trouble`."""

TEXT = 200
TRACEBACK = 20_000
GRACE_S = 1.0
"""What an item gets on top of its limit to be interrupted, before its process is ended."""


_forks: list[None] = []
"""One more in every generation of forked children; asking for the pid would cost more for each item."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forks.append(None))


class TimeUp(BaseException):
    """The item's time is over. No `Exception`, so that an `except Exception` of the function's lets it pass."""


def text_of(item: Any) -> str:
    """Return an item as text of at most 200 characters; never raises, and never makes a long text first."""
    import reprlib

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = TEXT
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = 6
    try:
        if isinstance(item, str | bytes | bytearray):
            item = item[:TEXT]
        return " ".join(short.repr(item).split())[:TEXT]
    except Exception:
        return f"<{type(item).__name__}>"


def run(
    function: Callable[[Any], Any],
    items: Sequence[Any],
    limit_s: float | None = None,
    marks: Any = None,
    catch: Any = BaseException,
    hard: bool = False,
) -> tuple[list[Any], list[RawTrouble], float]:
    """Return the values (None where there is trouble), the troubles, and the seconds inside the function.

    `marks` hears which item runs, for the driver to read when this process dies. `hard`: end this process
    when an item cannot be interrupted; no other process watches it.
    """
    call = function if limit_s is None else _limited(function, limit_s, hard, marks)
    values: list[Any] = []
    troubles: list[RawTrouble] = []
    keep, forks, before = values.append, _forks, len(_forks)
    begun = time.perf_counter()
    for offset, item in enumerate(items):
        if marks is not None:
            marks[0] = offset
        try:
            keep(call(item))
        except TimeUp:
            keep(None)
            troubles.append((offset, "time", f"It took longer than {limit_s:g} s.", text_of(item), "", None))
        except catch as error:
            keep(None)
            troubles.append(_trouble(offset, item, error))
        if len(forks) != before:  # the function forked, and this is the child, which has no business here
            os._exit(0)
    return values, troubles, time.perf_counter() - begun


def _trouble(offset: int, item: Any, error: BaseException) -> RawTrouble:
    import traceback

    inner = error.__traceback__.tb_next if error.__traceback__ else None
    lines = "".join(traceback.format_exception(type(error), error, inner))[-TRACEBACK:]
    reason = f"{type(error).__name__}: {error}".strip()
    if isinstance(error, SystemExit):
        reason = f"It called sys.exit({'' if error.code is None else repr(error.code)})."
    try:
        pickled = pickle.dumps(error)
    except Exception:
        pickled = None
    kind: Kind = "memory" if isinstance(error, MemoryError) else "raised"
    return offset, kind, (reason.splitlines() or [reason])[0][:500], text_of(item), lines, pickled


def _limited(function: Callable[[Any], Any], limit_s: float, hard: bool, marks: Any) -> Callable[[Any], Any]:
    """Return the function with a limit: it is interrupted; what does not heed that is ended with its process."""
    import faulthandler
    import signal

    armed = False

    def ring(_number: int, _frame: Any) -> None:
        if armed:
            raise TimeUp

    def call(item: Any) -> Any:
        nonlocal armed
        try:
            armed = True
            if marks is not None:
                marks[1] = time.monotonic_ns()
            if hard:
                faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=2)
            signal.setitimer(signal.ITIMER_REAL, limit_s)
            return function(item)
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            if hard:
                faulthandler.cancel_dump_traceback_later()
            if marks is not None:
                marks[1] = 0

    signal.signal(signal.SIGALRM, ring)
    return call


def pack_results(values: list[Any], troubles: list[RawTrouble], items: Sequence[Any]) -> bytes:
    """Return the values pickled; one that cannot be is trouble, and None in its place."""
    try:
        return pickle.dumps(values, 5)
    except Exception:
        return _pack_anything(values, troubles, items)


def _pack_anything(values: list[Any], troubles: list[RawTrouble], items: Sequence[Any]) -> bytes:
    """As above, with what is defined in the main program or in the function."""
    import cloudpickle

    for offset, value in enumerate(values):
        try:
            cloudpickle.dumps(value, 5)
        except Exception as error:
            values[offset] = None
            first_line = (str(error).splitlines() or [""])[0]
            reason = f"Its result, a {type(value).__name__}, cannot be pickled: {first_line}"[:500]
            troubles.append((offset, "pickle", reason, text_of(items[offset]), "", None))
    return bytes(cloudpickle.dumps(values, 5))
