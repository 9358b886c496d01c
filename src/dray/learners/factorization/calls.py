"""What a recommender's worker is told, and what it answers: all that the driver needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.implicit_share import ImplicitPlan
from dray.learners.factorization.unit_pairs import Ageing, SplitRule


@dataclass(frozen=True)
class FactorPlan:
    """What all workers know of a training."""

    plan: ExplicitPlan | ImplicitPlan
    split: SplitRule
    ageing: Ageing | None

    @property
    def kind(self) -> Literal["explicit", "implicit"]:
        return "explicit" if isinstance(self.plan, ExplicitPlan) else "implicit"


@dataclass(frozen=True, slots=True)
class TurnReport:
    """What a stretch of training came to on this worker."""

    squares: tuple[float, ...]
    """Squared errors by unit; none for implicit feedback."""
    finite: bool
    rows: int
    seconds: float


class CallPlace(NamedTuple):
    """The place of a call among those of an attempt on one worker: one that fails voids all that follow."""

    attempt: int
    series: int
    """Calls that build on each other have the same one."""
    number: int
    """In its series, from 0."""
