"""What a training came to: a run, or one fit of a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray.learners.learner import TrainedModel
    from dray.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall time by phase."""

    start: float
    """Footers, sample, cluster, workers."""
    load: float
    train: float
    recovery: float
    """Lost to workers that were lost: from noticing it till training went on; a part of the others."""
    total: float
    copy: float = 0.0
    """Till data that is not Parquet was there as Parquet; not counted as start."""


@dataclass(frozen=True, slots=True)
class ThreadProof:
    """Threads of one worker: decided against measured."""

    worker: int
    host: str
    decided: int
    used: float
    """CPU seconds by wall seconds over the first rounds."""
    ok: bool
    """At least 60 % of what was decided, or less than a second of work to tell it by."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whether the model is the same for any number of workers."""

    holds: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What every finished run has, whatever its model."""

    run: str
    directory: str
    model: str
    """Location of the model."""
    model_digest: str
    learner: str
    objective: str
    rows: int
    eval_rows: int
    workers: int
    rounds: int
    best_round: int
    seconds: Seconds
    metrics: dict[str, float]
    baseline: dict[str, float] = field(default_factory=dict)
    """The metrics of an answer without a model: always the mean, always what is popular. Empty without an
    evaluation."""
    verdict: str = ""
    """The model compared with it, in words."""
    threads: tuple[ThreadProof, ...]
    peak_memory_bytes: int
    """Largest sum over the driver and the workers at one moment."""
    failures: int
    """Workers that were lost on the way."""
    rows_reloaded: int
    """Rows that had to be loaded again, or were handed over, after all had been loaded once."""
    identity: Identity
    warnings: tuple[str, ...]
    rows_dropped: int = 0
    """Rows of the training data that were left out: they have no label, or no user or item."""
    eval_rows_dropped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return all but what only this process has: those fields have `repr=False`."""
        document = {item.name: getattr(self, item.name) for item in fields(self) if item.repr}
        return document | {
            "seconds": {name: round(value, 3) for name, value in asdict(self.seconds).items()},
            "threads": [asdict(proof) for proof in self.threads],
            "identity": asdict(self.identity),
            "warnings": list(self.warnings),
        }


def typed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result from what `to_json` made of it."""
    return dict(document) | {
        "seconds": Seconds(**document["seconds"]),
        "threads": tuple(ThreadProof(**proof) for proof in document["threads"]),
        "identity": Identity(**document["identity"]),
        "warnings": tuple(document["warnings"]),
    }


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What one fit of a session came to."""

    learner: str
    objective: str
    rounds: int
    best_round: int
    metrics: dict[str, float]
    baseline: dict[str, float]
    """Of an answer without a model, as `RunResult` has it."""
    verdict: str
    model_digest: str
    seconds: float
    trained: TrainedModel = field(repr=False)
    storage: StorageOptions = field(repr=False)

    @property
    def model(self) -> Any:
        """The learner's own object, as `dray.load` returns it."""
        return self.trained.model

    def save(self, location: str) -> None:
        """Write the model, for `dray.load` and `dray predict`: trees to a file that ends in .ubj, a recommender to a
        directory."""
        self.trained.write(location, self.storage)
