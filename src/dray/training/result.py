"""What a training run came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.learners.xgboost_model import Model

if TYPE_CHECKING:
    import xgboost


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


@dataclass(frozen=True, slots=True)
class ThreadProof:
    """Threads of one worker: decided against measured."""

    worker: int
    host: str
    decided: int
    used: float
    """CPU seconds by wall seconds over the first rounds."""
    ok: bool
    """At least 60 % of what was decided."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whether the model is the same for any number of workers."""

    holds: bool
    why: str


@dataclass(frozen=True)
class TrainResult:
    """A finished run; `booster` is the native model."""

    run: str
    directory: str
    model: str
    """Location of model.ubj."""
    model_digest: str
    learner: str
    objective: str
    rows: int
    eval_rows: int
    features: int
    workers: int
    rounds: int
    best_round: int
    seconds: Seconds
    metrics: dict[str, float]
    threads: tuple[ThreadProof, ...]
    peak_memory_bytes: int
    """Largest sum over the driver and the workers at one moment."""
    failures: int
    """Workers that were lost on the way."""
    rows_reloaded: int
    """Rows that had to be loaded again, or were handed over, after all had been loaded once."""
    identity: Identity
    warnings: tuple[str, ...]
    content: bytes = field(repr=False)

    @cached_property
    def loaded(self) -> Model:
        return Model.from_bytes(self.content, self.model)

    @property
    def booster(self) -> xgboost.Booster:
        return self.loaded.booster

    def to_json(self) -> dict[str, Any]:
        document = {name: value for name, value in self.__dict__.items() if name not in ("content", "loaded")}
        return document | {
            "seconds": {name: round(value, 3) for name, value in asdict(self.seconds).items()},
            "threads": [asdict(proof) for proof in self.threads],
            "identity": asdict(self.identity),
            "warnings": list(self.warnings),
        }
