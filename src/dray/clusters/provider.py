"""The contract of a kind of clusters, and the status of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from dray.clusters.known import Known
from dray.errors import ClusterError

State = Literal["waiting", "working", "done", "failed"]
Tell = Callable[[str, State, str], None]
"""Receives progress: which host or pod, its state, and a text for the user."""


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


class Provider(ABC):
    """What clusters of one kind can do. Holds nothing; every method may be called from any thread.

    A kind implements what it has. What it has not is an error that says how such a cluster is changed instead.
    """

    kind: ClassVar[str]
    changes: ClassVar[str]
    """How a cluster of this kind is changed, as a sentence for the user."""

    @abstractmethod
    def up(self, file: str | None, tell: Tell, *, wait_s: float | None = None) -> Status:
        """Start the cluster that the file describes, or repair what is missing of it, and remember it (`known`).

        Nothing is started before all checks have passed, and a new cluster that does not come up is removed.
        """

    @abstractmethod
    def status(self, known: Known) -> Status: ...

    @abstractmethod
    def logs(self, known: Known, node: str | None, *, errors: bool, lines: int) -> Iterator[str]:
        """Yield the last lines of the logs of one node or of all, each behind the node's name."""

    @abstractmethod
    def endpoint(self, known: Known) -> AbstractContextManager[str]:
        """Give the address of the job server, as this machine reaches it while the context is open."""

    @abstractmethod
    def down(self, known: Known, tell: Tell) -> None:
        """End the cluster and forget it; nothing of it is left."""

    def render(self, file: str | None) -> str:  # noqa: ARG002  (of kinds that have manifests)
        """Return the manifests that `up` would apply, as YAML."""
        raise self._cannot("has no manifests to render")

    def add(self, known: Known, host: Mapping[str, Any], tell: Tell) -> Status:  # noqa: ARG002
        """Add a host to the cluster, or repair it: nothing else changes."""
        raise self._cannot("cannot add a host")

    def remove(self, known: Known, host: str, tell: Tell) -> None:  # noqa: ARG002
        """Take a host out of the cluster; the last one ends it."""
        raise self._cannot("cannot remove a host")

    def scale(self, known: Known, workers: int, tell: Tell) -> Status:  # noqa: ARG002
        """Change the number of workers."""
        raise self._cannot("cannot change the number of its workers")

    def cleanup(self, known: Known, limit_bytes: int, tell: Tell) -> dict[str, dict[str, int]]:  # noqa: ARG002
        """Remove old session directories down to a limit. Returns by host: removed, freed_bytes, kept_bytes."""
        raise self._cannot("has no old sessions to remove")

    def _cannot(self, what: str) -> ClusterError:
        return ClusterError(f"A cluster of the kind {self.kind} {what}.", fix=self.changes)
