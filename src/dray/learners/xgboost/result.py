"""What a run of trees came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dray.learners.result import RunResult
from dray.learners.xgboost.model import Model

if TYPE_CHECKING:
    import xgboost


@dataclass(frozen=True, kw_only=True)
class TrainResult(RunResult):
    """A finished run of trees; `booster` is the native model, `model` the location of model.ubj."""

    features: int
    positive_class: str | int | float | bool | None = None
    """Of two classes, the one whose probability is predicted, as the label's own value; None for other models."""
    content: bytes = field(repr=False)

    @cached_property
    def loaded(self) -> Model:
        return Model.from_bytes(self.content, self.model)

    @property
    def booster(self) -> xgboost.Booster:
        return self.loaded.booster
