"""What commands are asked in common: how they reach storage, how they read data, where batches run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Self

from dray.batch.options import Where
from dray.batch.processes import Printed
from dray.clusters.resolve import Attached, Here
from dray.ingesting.cache import Reading, used_cluster
from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command whose fields are plain values but for `storage`: as JSON, and back."""

    storage: StorageOptions = field(default_factory=StorageOptions)
    source: ClassVar[str] = "The command"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "storage": StorageOptions(**values["storage"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOfModel(Asked):
    """A command that gives data to a model: on workers, with a copy of what is not Parquet."""

    workers: int | Literal["auto"] = "auto"
    threads: int | None = None
    cluster: str = "local"
    format: str | None = None
    read: Mapping[str, Any] | None = None
    cache: str | None = None
    code: ClassVar[None] = None

    def reading(self, where: Here | Attached) -> Reading:
        return Reading(self.format, self.read, self.cache, cluster=used_cluster(self.workers, where.word))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOfFunction(Asked):
    """A command that gives data to a function of the user's."""

    where: Where = "auto"
    workers: int | Literal["auto"] = "auto"
    word: str | None = None
    """The cluster; None: this machine, or the Ray that this process has joined."""
    excludes: Sequence[str] = ()
    """Files of the function's directory that are not sent with a job."""
    read: Mapping[str, Any] = field(default_factory=dict)
    """How rows are read: the format, and options of it."""
    output: Printed | None = None
    """Gets what the function prints, in this process; a job prints it into its log."""
    libraries: ClassVar[tuple[str, ...]] = ()

    @property
    def cluster(self) -> str:
        return self.word or "local"
