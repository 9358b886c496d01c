"""Where a training is after a complete step, whatever is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dray.events.metrics import is_better


@dataclass(frozen=True, slots=True)
class Step:
    """One finished round or epoch."""

    round: int
    """From 1."""
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after a complete step: enough to go on from, anywhere."""

    round: int
    """Steps that `model` has taken in this training."""
    model: bytes | None
    """In the learner's own form; None before the first step of a new model."""
    rounds: tuple[Step, ...]
    """What is known of those steps. The last may be missing: a ring can break between a tree and its metrics."""
    start: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the model that this training started from."""
    baseline: Mapping[str, float] = field(default_factory=dict)
    """The metrics of an answer without a model, where they are taken as those of the steps are."""
    fit: int = field(default=1, compare=False)
    """Which fit of the session it belongs to."""

    @property
    def best(self) -> Best:
        return Best.of(self.rounds, self.start)

    @property
    def is_complete(self) -> bool:
        """The metrics of the last step are known too."""
        return len(self.rounds) == self.round

    def is_newer(self, other: Checkpoint) -> bool:
        return (self.round, len(self.rounds)) > (other.round, len(other.rounds))


START = Checkpoint(0, None, ())


@dataclass
class Best:
    """The best step so far, by the last metric."""

    round: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(rounds: Iterable[Step], start: Mapping[str, float]) -> Best:
        """`start` are the metrics of step 0, the model that the training started from, if there is one."""
        best = Best(0, dict(start))
        for done in rounds:
            best.see(done)
        return best

    def see(self, done: Step) -> None:
        if not done.metrics:
            return
        name = list(done.metrics)[-1]
        before = self.metrics.get(name)
        if before is None or math.isnan(before) or is_better(name, done.metrics[name], before):
            self.round, self.metrics = done.round, done.metrics
