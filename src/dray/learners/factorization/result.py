"""What the training of a recommender came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from dray.learners.factorization.model import FactorModel
from dray.learners.result import RunResult
from dray.storage import DEFAULT, StorageOptions


@dataclass(frozen=True, kw_only=True)
class FactorResult(RunResult):
    """A finished run of a recommender; `model` is the location of its directory, `loaded` the model itself.

    `objective` is "explicit" or "implicit", a round is an epoch.
    """

    pairs: int
    """Of a user and an item, that were trained on."""
    users: int
    items: int
    factors: int
    evaluation: dict[str, int] = field(default_factory=dict)
    """What the metrics were taken of, such as users_without_training; empty without an evaluation."""
    storage: StorageOptions = field(default=DEFAULT, repr=False)
    """How to reach the model."""

    @cached_property
    def loaded(self) -> FactorModel:
        return FactorModel.load(self.model, self.storage)
