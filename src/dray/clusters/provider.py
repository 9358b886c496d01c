"""The contract of whatever clusters run on (machines reached by SSH, Kubernetes), and what can be said of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from dray.clusters.known import Known

State = Literal["waiting", "working", "done", "failed"]
Tell = Callable[[str, State, str], None]
"""Hears how it goes: which host or pod, its state, in words."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One Ray node."""

    name: str
    """As the user knows it: host, host/2, a pod."""
    host: str
    alive: bool
    head: bool = False
    cpus: float = 0.0
    memory_bytes: int = 0
    object_store_bytes: int = 0
    ray: str = ""
    python: str = ""
    reason: str = ""
    """Why it is not alive, or what is odd about it."""


@dataclass(frozen=True, slots=True)
class Status:
    """A cluster as it is now."""

    name: str
    kind: str
    address: str
    dashboard: str
    nodes: tuple[NodeStatus, ...]
    running: tuple[str, ...] = ()
    """Jobs that run."""
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Provider(Protocol):
    """What clusters of one kind can do."""

    def status(self, known: Known) -> Status: ...

    def logs(self, known: Known, node: str | None, *, errors: bool, lines: int) -> Iterator[str]:
        """Yield the last lines of the logs of one node or of all, each behind the node's name."""

    def down(self, known: Known, tell: Tell) -> None:
        """End the cluster and forget it; nothing of it is left."""

    def endpoint(self, known: Known) -> AbstractContextManager[str]:
        """Give the address of the job server, as this machine reaches it while the context is open."""
