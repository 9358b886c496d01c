"""The contract of an executor, which runs batches of items, and what it reports about them.

The engine hands over batches and hears what became of each: one thread follows many processes. `ThisProcess`,
`Processes` and `RayTasks` implement it, so that a loop, this machine and a cluster behave alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["raised", "time", "died", "memory", "pickle"]
"""Why an item has no result."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One item that has no result, as told by the process that ran it."""

    offset: int
    """In its batch."""
    kind: Kind
    reason: str
    """In one line: "ValueError: negative", or what happened to its process."""
    item: str = ""
    """The item as text; empty when only the driver can tell."""
    traceback: str = ""
    error: bytes | None = None
    """The exception, pickled, if it can be."""


@dataclass(slots=True)
class Batch:
    """Neighbouring items that run in one go. The engine's; an executor reads it."""

    number: int
    first: int
    """Position of its first item."""
    count: int
    payload: Any
    """The items as the executor packed them."""
    bytes: int = 0
    shared: tuple[Hashable, ...] = ()
    """Keys of the large objects among them, kept by the executor's store."""
    deaths: int = 0
    """How often it took its process along when it was a single item."""
    losses: int = 0
    """How often it was lost without being at fault."""
    due: float = 0.0
    """Not to be run before (time.monotonic)."""


@dataclass(slots=True)
class Packed:
    """Items made ready for an executor."""

    payload: Any
    bytes: int = 0
    shared: tuple[Hashable, ...] = ()
    troubles: list[Trouble] = field(default_factory=list)
    """Those that cannot be handed over; then `payload` is of no use, and the others are to be packed without them."""


@dataclass(frozen=True, slots=True)
class Done:
    """A batch has run."""

    batch: int
    results: Any
    """For `Executor.unpack`: a value an item, None for those in trouble."""
    troubles: Sequence[Trouble]
    seconds: float
    """Inside the function, all items."""
    away_s: float = 0.0
    """From handing it over (or the end of the one before it) to its return, less the function."""
    bytes: int = 0
    """Of the results."""


@dataclass(frozen=True, slots=True)
class Died:
    """The process of a batch is gone, and its results with it."""

    batch: int
    reason: str
    kind: Kind = "died"
    suspect: int | None = None
    """Offset of the item that was running, where that is known."""
    outside: bool = True
    """Whether something outside the function may have ended it, so that another try makes sense."""
    blameless: bool = False
    """Whether it was certainly none of the items: a node went, or the batch had not begun."""


BatchEvent = Done | Died


class Executor(Protocol):
    """Runs batches. One thread uses it; its maker closes it, in any case."""

    name: str
    """here, processes or cluster."""
    slots: int
    """Batches that run at the same time; may change when a cluster grows."""
    task_overhead_s: float
    """What a batch costs beside the function and its items' bytes, as far as is known beforehand."""

    freezes: bool
    """Whether `freeze` keeps an item as it is now."""

    def freeze(self, item: Any) -> Any:
        """Return what represents an item that came from an iterator, which may reuse it; a `Trouble` if it cannot."""
        ...

    def pack(self, items: Sequence[Any]) -> Packed:
        """Make items ready, frozen ones and those of a sequence."""
        ...

    def split(self, payload: Any, spans: Sequence[tuple[int, int]]) -> list[Packed]:
        """Return stretches of a packed batch, each packed by itself."""
        ...

    def text(self, payload: Any, offset: int) -> str:
        """Return an item of a packed batch as text."""
        ...

    def unpack(self, results: Any) -> list[Any]:
        """Return the values of a `Done`."""
        ...

    def submit(self, batch: Batch) -> None: ...

    def waiting(self) -> int:
        """Batches that were handed over and not told of since."""
        ...

    def poll(self, timeout_s: float) -> list[BatchEvent]:
        """Return what has happened, after at most so long; at once when there is something."""
        ...

    def release(self, keys: Sequence[Hashable]) -> None:
        """A batch that used these shared objects is over."""
        ...

    def close(self, good: bool) -> None:
        """End every process. After a `good` end they may run their exit handlers; otherwise there is no waiting."""
        ...
