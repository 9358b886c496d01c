"""`dray predict` as a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from dray.clusters.resolve import Attached, Here
from dray.events.telemetry import Sink
from dray.ingesting.cache import Reading, used_cluster
from dray.jobs.command import shared_paths
from dray.jobs.shared import Head
from dray.learners.predictor import PredictionType
from dray.learners.registry import available
from dray.predicting import PredictResult, predict
from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Predict:
    """Predictions for data, written to files."""

    model: str
    data: Any
    """Locations; in this process also a table, or a function that connects to a database."""
    out: str
    keep: Sequence[str] = ()
    output: PredictionType | None = None
    contributions: bool = False
    workers: int | Literal["auto"] = "auto"
    threads: int | None = None
    cluster: str = "local"
    format: str | None = None
    read: Mapping[str, Any] | None = None
    cache: str | None = None
    storage: StorageOptions = field(default_factory=StorageOptions)
    code: ClassVar[None] = None
    name: ClassVar[str] = "predict"
    source: ClassVar[str] = "The command"

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(learner.library for learner in available())

    def settled(self, head: Head) -> Self:
        paths = shared_paths(head, model=self.model, data=self.data, out=self.out, cache=self.cache)
        [model], [out] = paths["model"], paths["out"]
        return replace(self, model=model, data=paths["data"], out=out, cache=next(iter(paths["cache"]), None))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(**{**values, "storage": StorageOptions(**values["storage"])})

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> PredictResult:  # noqa: ARG002
        return predict(
            self.model,
            self.data,
            self.out,
            keep=self.keep,
            output=self.output,
            contributions=self.contributions,
            workers=self.workers,
            threads=self.threads,
            cluster=where.word,
            storage=self.storage,
            reading=Reading(self.format, self.read, self.cache, cluster=used_cluster(self.workers, where.word)),
            sinks=sinks,
        )

    def result_of(self, told: Mapping[str, Any]) -> PredictResult:
        return PredictResult(**told)
