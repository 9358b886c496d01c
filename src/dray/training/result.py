"""What a training run came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dray.learners.xgboost.model import Model

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
    """At least 60 % of what was decided."""


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
    threads: tuple[ThreadProof, ...]
    peak_memory_bytes: int
    """Largest sum over the driver and the workers at one moment."""
    failures: int
    """Workers that were lost on the way."""
    rows_reloaded: int
    """Rows that had to be loaded again, or were handed over, after all had been loaded once."""
    identity: Identity
    warnings: tuple[str, ...]

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
class TrainResult(RunResult):
    """A finished run of trees; `booster` is the native model, `model` the location of model.ubj."""

    features: int
    content: bytes = field(repr=False)

    @cached_property
    def loaded(self) -> Model:
        return Model.from_bytes(self.content, self.model)

    @property
    def booster(self) -> xgboost.Booster:
        return self.loaded.booster
