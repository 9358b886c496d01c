"""Kill one worker of a contender at half of its rounds, from outside, beside the measurement."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.02
VICTIM = 1
"""The second of the two workers in every contender: not the one that writes checkpoints."""

Line = dict[str, Any]
# Finds the process to be killed in what a contender has written so far; None till it is time.
Victim = Callable[[list[Line]], int | None]


@dataclass
class Kill:
    """What came of it."""

    pid: int | None = None
    """None when the training ended before it was time."""


def lines(file: Path) -> list[Line]:
    """Return a file's JSON documents, one a line; the last one may be half written and is left out then."""
    with contextlib.suppress(FileNotFoundError):
        content = file.read_bytes()
        return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    return []


def victim_of_dray(half: int) -> Victim:
    def find(events: list[Line]) -> int | None:
        if not any(event["kind"] == "round" and event["round"] >= half for event in events):
            return None
        return next(e["pid"] for e in events if e["kind"] == "worker_started" and e["worker"] == VICTIM)

    return find


def victim_of_callback(half: int) -> Victim:
    """Of a contender whose workers write what `contenders/progress.py` does."""

    def find(told: list[Line]) -> int | None:
        if not any(line["round"] >= half for line in told):
            return None
        return next((line["pid"] for line in reversed(told) if line["rank"] == VICTIM), None)

    return find


@contextlib.contextmanager
def killing(file: Path, victim: Victim | None):
    """Give a Kill that happens once, when `victim` finds somebody in the file; nobody is killed if it is None."""
    kill, over = Kill(), threading.Event()

    def watch() -> None:
        while victim is not None and not over.wait(LOOK_EVERY_S):
            if (pid := victim(lines(file))) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kill.pid = pid
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield kill
    finally:
        over.set()
        thread.join()
