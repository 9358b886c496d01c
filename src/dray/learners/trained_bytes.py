"""A trained model that is one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dray.learners.baseline import NO_BASELINE, Baseline
from dray.learners.result import Identity, RunResult
from dray.runs.directory import RunDirectory, open_run
from dray.storage import StorageOptions, write_atomically


@dataclass(frozen=True, kw_only=True)
class TrainedBytes:
    """Implements `TrainedModel`."""

    file: str
    """Its name in a run directory."""
    content: bytes = field(repr=False)
    parse: Callable[[bytes], Any]
    """Makes the learner's own object of the content."""
    digest: str
    objective: str
    rows: int
    eval_rows: int
    rounds: int
    best_round: int
    metrics: dict[str, float]
    identity: Identity
    rows_dropped: int = 0
    eval_rows_dropped: int = 0
    baseline: Baseline = NO_BASELINE

    @property
    def model(self) -> Any:
        return self.parse(self.content)

    def write(self, location: str, storage: StorageOptions) -> None:
        write_atomically(location, storage, lambda file: file.write(self.content))

    def save(self, directory: RunDirectory) -> None:
        directory.write_result(self.file, self.content)

    def result(self, directory: RunDirectory, common: Mapping[str, Any]) -> RunResult:
        return RunResult(**common, **self.fields(directory))

    def fields(self, directory: RunDirectory) -> dict[str, Any]:
        """Return the fields of a result that the model knows."""
        return {
            "model": directory.path(self.file),
            "model_digest": self.digest,
            "objective": self.objective,
            "rows": self.rows,
            "eval_rows": self.eval_rows,
            "rounds": self.rounds,
            "best_round": self.best_round,
            "metrics": self.metrics,
            "identity": self.identity,
            "rows_dropped": self.rows_dropped,
            "eval_rows_dropped": self.eval_rows_dropped,
        }


def read_trained(location: str, file: str, storage: StorageOptions) -> bytes:
    """Return the model file of a finished run, which must be the one that the run wrote."""
    directory = open_run(location, storage)
    directory.require_finished()
    return directory.read_result(file)[0]
