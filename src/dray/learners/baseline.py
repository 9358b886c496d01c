"""What is had without a model: the line that every metric is read against. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dray.events.format import metric
from dray.events.metrics import higher_is_better

NO_BETTER = 0.005
"""A smaller difference is none."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The metrics of an answer that needs no model, on the rows that the model was evaluated on."""

    what: str = ""
    """The answer: "always the mean"."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """By the names that the model's own have; empty without an evaluation."""
    by: str = ""
    """The metric that decides which of the two is better; by default the last that both have."""

    def deciding(self, metrics: Mapping[str, float]) -> str | None:
        if self.by in metrics and self.by in self.metrics:
            return self.by
        return next((name for name in reversed(list(metrics)) if name in self.metrics), None)

    def gain(self, metrics: Mapping[str, float]) -> float | None:
        """Return by how much the model is better, as a share of the baseline's metric; negative where it is worse."""
        name = self.deciding(metrics)
        if name is None:
            return None
        ours, theirs = metrics[name], self.metrics[name]
        better = ours - theirs if higher_is_better(name) else theirs - ours
        return better / max(abs(theirs), 1e-12)

    def verdict(self, metrics: Mapping[str, float]) -> str:
        """Return "eval-rmse 0.62000 (always the mean: 0.88000): 30 % better"; nothing where nothing can be compared."""
        name, gain = self.deciding(metrics), self.gain(metrics)
        if name is None or gain is None:
            return ""
        return (
            f"{name} {metric(metrics[name])} ({self.what}: {metric(self.metrics[name])}): {_judged(name, gain, self)}"
        )


NO_BASELINE = Baseline()


def _judged(name: str, gain: float, baseline: Baseline) -> str:
    if abs(gain) < NO_BETTER:
        return "no better"
    word = "better" if gain > 0 else "worse"
    # A share says something of errors, which end at 0.
    is_error = not higher_is_better(name) and baseline.metrics[name] > 0
    return f"{abs(gain):.0%} {word}".replace("%", " %") if is_error else word
