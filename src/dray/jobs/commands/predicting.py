"""`dray predict` as a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dray.clusters.resolve import Attached, Here
from dray.events.telemetry import Sink
from dray.jobs.command import shared_paths
from dray.jobs.commands.asked import AskedOfModel
from dray.jobs.shared import Head
from dray.learners.predictor import PredictionType
from dray.learners.registry import available
from dray.predicting.predict import PredictResult, predict
from dray.runs.naming import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Predict(AskedOfModel):
    """Predictions for data, written to files."""

    model: str
    data: Any
    """Locations; in this process also a table, or a function that connects to a database."""
    out: str
    keep: Sequence[str] = ()
    key: Sequence[str] = ()
    row_number: bool = False
    file_column: bool = False
    output: PredictionType | None = None
    contributions: bool = False
    overwrite: bool = False
    name: ClassVar[str] = "predict"

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(learner.library for learner in available())

    def named(self, names: Names) -> Self:
        return replace(self, model=names.finished(self.model), out=names.output(self.out))

    def settled(self, head: Head) -> Self:
        paths = shared_paths(head, model=self.model, data=self.data, out=self.out, cache=self.cache)
        [model], [out] = paths["model"], paths["out"]
        return replace(self, model=model, data=paths["data"], out=out, cache=next(iter(paths["cache"]), None))

    def execute(self, where: Here | Attached, sinks: Sequence[Sink], job: str | None = None) -> PredictResult:  # noqa: ARG002
        return predict(
            self.model,
            self.data,
            self.out,
            keep=self.keep,
            key=self.key,
            row_number=self.row_number,
            file_column=self.file_column,
            output=self.output,
            contributions=self.contributions,
            overwrite=self.overwrite,
            workers=self.workers,
            threads=self.threads,
            cluster=where.word,
            storage=self.storage,
            reading=self.reading(where),
            sinks=sinks,
        )

    def result_of(self, told: Mapping[str, Any]) -> PredictResult:
        return PredictResult(**told)
