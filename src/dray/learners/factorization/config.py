"""The keys of a run file that recommenders have of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dray.config.run_file import Column, RunConfig, as_list
from dray.learners.table_config import TimeForms

EVENT_WEIGHTS: Mapping[str, float] = {"view": 1.0, "add_to_cart": 3.0, "purchase": 5.0, "payment_failed": -2.0}
_EPOCHS_OF_RATINGS, _EPOCHS_OF_EVENTS = 20, 15


def _as_weights(value: Any) -> Any:
    """Return weights by the event types' names: YAML has numbers for some of them."""
    if not isinstance(value, Mapping):
        raise ValueError("must be names with numbers, such as {view: 1, purchase: 5}")
    for name, weight in value.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight):
            raise ValueError(f'the weight of "{name}" must be a finite number, not {weight!r}')
    return {str(name): float(weight) for name, weight in value.items()}


Weights = Annotated[dict[str, float], BeforeValidator(_as_weights)]
Cutoffs = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), BeforeValidator(as_list)]


class FactorizationConfig(RunConfig):
    """A training run of a recommender."""

    FLAGS: ClassVar[Mapping[str, str]] = {**RunConfig.FLAGS, "event_weights": "--event-weight"}
    HOLDS_OUT: ClassVar[tuple[str, ...]] = (*RunConfig.HOLDS_OUT, "eval_last")

    model: Literal["factorization"] = "factorization"
    """A recommender, from the items that users had."""

    rounds: int = Field(default=_EPOCHS_OF_EVENTS, ge=1)
    """Epochs. Default: 20 with ratings, 15 with events."""

    user: Column
    """Column with the id of the user: text or whole numbers."""

    item: Column
    """Column with the id of the item."""

    missing_id: Literal["drop", "error"] = "drop"
    """What becomes of rows without a user or an item: they are left out and counted, or refused. Events of weight 0 are
    left out anyway."""

    rating: str | None = None
    """Column with ratings: explicit feedback. The last rating of a user and item counts."""

    event: str | None = None
    """Column with the type of an event: implicit feedback. Without it and rating, each row weighs 1."""

    event_weights: Weights = Field(default_factory=lambda: dict(EVENT_WEIGHTS))
    """Weight of each type of event; the weights of a user and item are summed up. What is given replaces the default:
    {view: 1, add_to_cart: 3, purchase: 5, payment_failed: -2}."""

    time: str | None = None
    """Column with the time of an event or rating: a timestamp, a date, text, or a number since 1970."""

    time_form: TimeForms = Field(default_factory=dict)
    """How the text of the time is written, where its values do not tell: {when: "%d/%m/%Y"}. Of numbers: seconds,
    milliseconds, microseconds or nanoseconds, where their size does not tell."""

    half_life_days: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """An event that is so much older than the newest one weighs half. Default: age does not matter."""

    eval_by: Literal["random", "time"] = "random"
    """Which share of the events eval_fraction sets aside: drawn by split_seed, or the last by time."""

    eval_last: int | None = Field(default=None, ge=1)
    """Set aside the last so many events of each user, by time."""

    eval_at: Cutoffs = (10,)
    """Lengths of the lists that recall, NDCG and MAP are taken of, the first for early stopping."""

    @property
    def kind(self) -> Literal["explicit", "implicit"]:
        """What the recommender learns from: ratings or events."""
        return "implicit" if self.rating is None else "explicit"

    @model_validator(mode="before")
    @classmethod
    def _with_rounds(cls, values: Any) -> Any:
        # Not a default of the field: it comes before rating, and defaults see what comes before them.
        if isinstance(values, dict) and "rounds" not in values and values.get("rating") is not None:
            return {**values, "rounds": _EPOCHS_OF_RATINGS}
        return values

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        given = (self.user, self.item, self.rating, self.event, self.time)
        columns = [name for name in given if name is not None]
        if len(set(columns)) < len(columns):
            raise ValueError("user, item, rating, event and time must be different columns: name another")
        self._check_feedback()
        self._check_time()
        return self

    def _check_feedback(self) -> None:
        if self.rating is not None and self.event is not None:
            raise ValueError(
                f"{self.named('rating')} and {self.named('event')} exclude each other: give one, rating for explicit "
                "ratings, event for events"
            )
        if self.event is None and self.event_weights != EVENT_WEIGHTS:
            raise ValueError(
                f"{self.named('event_weights')} needs {self.named('event')}: "
                "name the column with the types of events, --event COLUMN, or leave the weights out"
            )
        if self.event is not None and not any(weight > 0 for weight in self.event_weights.values()):
            raise ValueError(
                "no type of event has a weight above 0: give one of event_weights (--event-weight), such as view=1"
            )
        if self.half_life_days is not None and self.rating is not None:
            raise ValueError(
                f"{self.named('half_life_days')} is for events, not for ratings: leave half_life_days or rating out"
            )

    def _check_time(self) -> None:
        if self.eval_by == "time" and self.eval_fraction is None:
            raise ValueError(
                f"eval_by time (--eval-by time) needs {self.named('eval_fraction')}: "
                "add the share of the events to set aside, --eval-fraction 0.2 say"
            )
        needs = [self.named(key) for key in ("half_life_days", "eval_last") if getattr(self, key) is not None]
        needs += ["eval_by time (--eval-by time)"] if self.eval_by == "time" else []
        other = next((name for name in self.time_form if name != self.time), None)
        if other is not None:
            raise ValueError(f'time_form (--time-form) has "{other}", which is not the time column: name that one')
        if self.time is None and needs:
            raise ValueError(
                f"{needs[0]} needs {self.named('time')}: name the column with the time of an event, --time COLUMN"
            )
