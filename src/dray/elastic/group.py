"""Workers that are started, called and watched, in one process or on a cluster: the contract.

A group acts and reports; what to do about a lost worker is decided elsewhere (`policy.py`). Everything that
comes back is a `GroupEvent`, so that one thread can follow many workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

from dray.errors import WorkerError
from dray.learners.attempt import Call, Returned
from dray.learners.learner import Op

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["Call", "Group", "GroupEvent", "Kept", "Lost", "Member", "NodeGone", "Raised", "Ready", "Returned"]


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


GroupEvent = Ready | Returned | Raised | Lost


class NodeGone(WorkerError):  # noqa: N818  (as `InputGone`)
    """The worker's own node does not answer it any more: the worker ends, and what it made is gone."""


class Kept(Protocol):
    """A result that stays where it was made until it is the input of another call, or `fetch` gets it."""


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

    def call(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> Call:
        """Have a worker do something in its lane main or beside; `Returned`, `Raised` or `Lost` will tell.

        Inputs are given by position; `named` is there for the type checker alone.

        What is kept may be passed on at once, before it has been made, as an input of its own: the worker that gets it
        waits for it. If it never comes, or is lost, that call raises `InputGone`, at once where that is known.
        """
        ...

    def post(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> list[Any]:
        """As `call`, for an op of the main lane whose value is nothing; returns what stays there. Nothing will tell.

        For many calls that follow each other: a later one tells what became of those before it.
        """
        ...

    def fetch(self, kept: Sequence[Kept]) -> list[Any]:
        """Return what was kept, or shared, or raise `InputGone`. Any thread may call it."""
        ...

    def tell(self, worker: int, op: Op[P, R], *inputs: P.args, **named: P.kwargs) -> None:
        """Have a worker do something at once, whatever it is at (the lane control), and do not wait for it."""
        ...

    def share(self, value: Any) -> Any:
        """Return what to pass to several workers instead of a large value."""
        ...

    def poll(self, timeout_s: float) -> list[GroupEvent]:
        """Return what has happened, at once if anything has, else after `timeout_s` at most."""
        ...

    def end(self, worker: int) -> None:
        """End a worker at once; nothing is heard of it any more."""
        ...

    def close(self) -> None:
        """End all workers; nothing of them is left."""
        ...
