"""One pass over the data on the workers: what it comes to, for either way to train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dray.learners.attempt import Attempt
from dray.learners.factorization.blocks import Blocks
from dray.learners.factorization.calls import CallPlace, TurnReport
from dray.learners.factorization.routes import Units


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a worker was."""

    rows: int
    seconds: float
    """Of its own work, without waiting for others."""


@dataclass(frozen=True, slots=True)
class Passed:
    """An epoch."""

    blocks: Blocks
    metrics: dict[str, float]
    paces: Mapping[int, Pace]
    seconds: float
    """Without what an attempt took that was given up."""
    finite: bool
    """Whether all numbers are numbers."""


class Method(Protocol):
    """A way to train. What it does belongs to one attempt, and is done again in another if a worker is lost."""

    halvings: int
    """How often the steps were made smaller."""

    @property
    def rate(self) -> float | None:
        """The learning rate; None where there is none."""
        ...

    def epoch(self, number: int, blocks: Blocks, turns: Turns) -> Passed:
        """Train one epoch from `blocks` on."""
        ...

    def meet(self, turns: Turns) -> None:
        """Tell workers what they need to know to evaluate: some may have come after the last epoch."""
        ...

    def errors(self, blocks: Blocks, turns: Turns) -> dict[str, float]:
        """Return the metrics of the test pairs that are quick to get."""
        ...

    def halve(self) -> float | None:
        """Make the steps smaller after an epoch that diverged; return the new rate, None where there is none."""
        ...


class Turns:
    """Calls of one attempt that build on each other: if one fails on a worker, those that follow there are void."""

    def __init__(self, attempt: Attempt, series: int) -> None:
        self.attempt = attempt
        self._series = series
        self.holdings: dict[int, Units] = {
            worker: tuple(sorted(unit for shard in shards for unit in shard.units))
            for worker, shards in sorted(attempt.holdings.items())
        }
        """The units of each worker."""
        self._numbers: dict[int, int] = {}

    def place(self, worker: int) -> CallPlace:
        """Return the place of a worker's next call."""
        number = self._numbers.get(worker, 0)
        self._numbers[worker] = number + 1
        return CallPlace(self.attempt.number, self._series, number)


class Restored:
    """Units that need not be restored: the last epoch left them where the training goes on."""

    def __init__(self) -> None:
        self._units: dict[int, set[int]] = {}
        self._of: tuple[Blocks | None, int] = (None, 0)

    def taken(self, blocks: Blocks, attempt: int) -> dict[int, set[int]]:
        """Return them by worker, once: none if the training went back, or in another attempt."""
        units, self._units = self._units, {}
        return units if self._of[0] is blocks and self._of[1] == attempt else {}

    def leave(self, blocks: Blocks, turns: Turns) -> None:
        self._units = {worker: set(units) for worker, units in turns.holdings.items()}
        self._of = blocks, turns.attempt.number


def pace(reports: Iterable[TurnReport]) -> Pace:
    listed = list(reports)
    return Pace(sum(report.rows for report in listed), sum(report.seconds for report in listed))


def by_unit(results: Iterable[Mapping[int, Any]]) -> dict[int, Any]:
    """Return what several workers told of their units, in the order of the units."""
    joined = {unit: value for result in results for unit, value in result.items()}
    return dict(sorted(joined.items()))
