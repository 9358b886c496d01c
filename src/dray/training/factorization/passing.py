"""One pass over the data on the workers: what it comes to, for either way to train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dray.learners.factorization.calls import TurnReport
from dray.training.factorization.copies import Copy
from dray.training.factorization.routes import Units


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a worker was."""

    rows: int
    seconds: float
    """Of its own work, without waiting for others."""


@dataclass(frozen=True, slots=True)
class Passed:
    """An epoch."""

    copy: Copy
    metrics: dict[str, float]
    paces: Mapping[int, Pace]
    seconds: float
    """Without what an attempt took that was given up."""
    finite: bool
    """Whether all numbers are numbers."""


class Method(Protocol):
    """A way to train. What it does is asked for by a `Foreman`, and begun again if a worker is lost on the way."""

    def epoch(self, number: int, copy: Copy, holdings: Mapping[int, Units]) -> Passed:
        """Train one epoch from `copy` on."""
        ...

    def meet(self, holdings: Mapping[int, Units]) -> None:
        """Tell workers what they need to know to evaluate: some may have come after the last epoch."""
        ...

    def errors(self, copy: Copy, holdings: Mapping[int, Units]) -> dict[str, float]:
        """Return the metrics of the test part that are quick to get."""
        ...

    def halve(self) -> float | None:
        """Make the steps smaller after an epoch that diverged; return the new rate, None where there is none."""
        ...


class Stands:
    """Units that need not be brought to where the training stands: the last epoch left them there."""

    def __init__(self) -> None:
        self._units: dict[int, set[int]] = {}
        self._of: tuple[Copy | None, int] = (None, 0)

    def taken(self, copy: Copy, losses: int) -> dict[int, set[int]]:
        """Return them by worker, once: none if the training went back, or some worker is another one since."""
        units, self._units = self._units, {}
        return units if self._of[0] is copy and self._of[1] == losses else {}

    def leave(self, copy: Copy, losses: int, holdings: Mapping[int, Units]) -> None:
        self._units = {worker: set(units) for worker, units in holdings.items()}
        self._of = copy, losses


def pace(reports: Iterable[TurnReport]) -> Pace:
    listed = list(reports)
    return Pace(sum(report.rows for report in listed), sum(report.seconds for report in listed))


def by_unit(results: Iterable[Mapping[int, Any]]) -> dict[int, Any]:
    """Return what several workers told of their units, in the order of the units."""
    joined = {unit: value for result in results for unit, value in result.items()}
    return dict(sorted(joined.items()))
