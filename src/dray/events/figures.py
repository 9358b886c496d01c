"""What a view of a run shows beside the numbers that events bring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Failures:
    """What the loss of workers has cost so far."""

    lost: int = 0
    seconds: float = 0.0
    """Of recoveries that are over."""
    rows: int = 0
    """Loaded anew."""


@dataclass(slots=True)
class Best:
    """The best value of a metric so far and the round that had it."""

    value: float
    round: int


@dataclass(slots=True)
class Bar:
    """How far the current work has come."""

    done: float
    total: float | None
    """None when the total is not known."""
    unit: str
    eta_s: float | None
    rate: float | None = None
    """Units a second."""

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0
