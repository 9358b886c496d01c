"""Workers that are started, called and watched, whoever runs them: the contract.

A group acts and reports; what to do about a lost worker is decided elsewhere (`policy.py`). Everything that
comes back is a `Happening`, so that one thread can follow many workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.errors import WorkerError


@dataclass(frozen=True, slots=True)
class Member:
    """Where a worker is."""

    worker: int
    host: str
    pid: int
    threads: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker that was asked for has started."""

    member: Member


@dataclass(frozen=True, slots=True)
class Done:
    """A call has returned."""

    worker: int
    call: int
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A call has raised; the worker lives."""

    worker: int
    call: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone: its process ended, or it has not answered for too long and was ended. Its calls are void."""

    worker: int
    cause: str
    silent_s: float
    """Seconds since it was last heard of."""
    error: Exception | None = None


Happening = Ready | Done | Raised | Lost


class InputGone(WorkerError):  # noqa: N818  (of the input, not of whoever was to get it)
    """What a call was to be given went with whoever had it: the one who was called is not to blame."""


class Kept(Protocol):
    """A result that stays where it was made until somebody is given it as an argument, or `fetch` gets it."""


class Group(Protocol):
    """Workers by number. One thread uses it; the caller owns and closes it."""

    ring_host: str
    """Where the tracker of a ring listens so that every worker reaches it."""

    def start(self, worker: int) -> None:
        """Ask for a worker; `Ready` or `Lost` will tell."""
        ...

    def expected(self) -> frozenset[int]:
        """Return the workers that are starting and for which there is room: soon ready."""
        ...

    def leaving(self) -> dict[int, str]:
        """Return the workers whose place will soon be taken away, and why."""
        ...

    def call(self, worker: int, method: str, *arguments: Any, beside: bool = False) -> int:
        """Call a method of a worker; `Done`, `Raised` or `Lost` will tell.

        Calls of a worker run in order; one that is made `beside` the others runs while they do.
        """
        ...

    def call_keeping(self, worker: int, keeps: int, method: str, *arguments: Any) -> tuple[int, list[Kept]]:
        """Call a method that returns a tuple: a value, which `Done` will bring, and `keeps` more, which stay there.

        What is kept may be passed on at once, before it has been made, as an argument of its own: who gets it waits
        for it. If it never comes, or is lost, that call raises `InputGone`, at once where that is known.
        """
        ...

    def ask_for(self, worker: int, keeps: int, method: str, *arguments: Any) -> list[Kept]:
        """As `call_keeping`, for a method whose value is nothing: nobody waits for it, and nothing will tell.

        For many calls that follow each other: a later one tells what became of those before it.
        """
        ...

    def fetch(self, kept: Sequence[Kept]) -> list[Any]:
        """Return what was kept, or shared, or raise `InputGone`. Any thread may call it."""
        ...

    def tell(self, worker: int, method: str, *arguments: Any) -> None:
        """Call a method that may be called at any time, and do not wait for it."""
        ...

    def share(self, value: Any) -> Any:
        """Return what to pass to several workers instead of a large value."""
        ...

    def happenings(self, timeout_s: float) -> list[Happening]:
        """Return what has happened, at once if anything has, else after `timeout_s` at most."""
        ...

    def end(self, worker: int) -> None:
        """End a worker at once; nothing is heard of it any more."""
        ...

    def close(self) -> None:
        """End all workers; nothing of them is left."""
        ...
