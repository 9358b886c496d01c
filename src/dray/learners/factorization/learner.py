"""Matrix factorization as a learner: recommenders from ratings or events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from dray.learners.learner import Flag, Words
from dray.learners.result import typed
from dray.learners.table_learner import TIME_FORM

if TYPE_CHECKING:
    from dray.events.kinds import Event
    from dray.learners.factorization.config import FactorizationConfig
    from dray.learners.factorization.driver import FactorDriver
    from dray.learners.factorization.recommender import FactorRecommender
    from dray.learners.factorization.result import FactorResult
    from dray.learners.factorization.worker import FactorWorker
    from dray.learners.predictor import Predictor
    from dray.storage import StorageOptions


class Factorization:
    name = "factorization"
    summary = "matrix factorization, for recommendations from ratings or events"
    extra = "recommend"
    library = "numba"
    default_rounds = "20 with ratings, 15 with events"
    words = Words(step="epoch", rows="ratings")
    layout: Literal["rows", "keyed"] = "keyed"
    fit_fields = frozenset({"params", "rounds", "early_stop", "eval_at"})
    flags = (
        Flag("user", "Column with the user's id, text or whole numbers; needed.", "COLUMN"),
        Flag("item", "Column with the item's id; needed.", "COLUMN"),
        Flag(
            "missing_id",
            "Leave out rows without a user or an item, or refuse them. [default: drop]",
            choices=("drop", "error"),
        ),
        Flag("rating", "Column with ratings, to learn from ratings.", "COLUMN"),
        Flag(
            "event",
            "Column with the type of an event, to learn from events. "
            "Without it and --rating each row is one, weight 1.",
            "COLUMN",
        ),
        Flag(
            "event_weights",
            "Weight of a type of event; may be repeated. [default: view=1 add_to_cart=3 purchase=5 payment_failed=-2]",
            "TYPE=WEIGHT",
            pairs=True,
            name="event-weight",
        ),
        Flag("time", "Column with the time: timestamps, dates, text, or numbers since 1970.", "COLUMN"),
        TIME_FORM,
        Flag("half_life_days", "Age at which an event weighs half. [default: age does not matter]", "DAYS", float),
        Flag(
            "eval_by",
            "Which events --eval-fraction sets aside: any, or the last by --time. [default: random]",
            choices=("random", "time"),
        ),
        Flag("eval_last", "Set aside the last N events of each user, by --time.", "N", int),
        Flag(
            "eval_at",
            "Length of the lists that recall, NDCG and MAP are taken of; may be repeated. [default: 10]",
            "K",
            int,
            repeated=True,
        ),
    )

    @property
    def Config(self) -> type[FactorizationConfig]:  # noqa: N802
        from dray.learners.factorization.config import FactorizationConfig

        return FactorizationConfig

    def check(self, config: FactorizationConfig) -> None:
        from dray.learners.factorization.settings import explicit_settings, implicit_settings

        settings = explicit_settings if config.kind == "explicit" else implicit_settings
        settings(config.params, config.rounds, config.seed)

    def worker_side(self, number: int, threads: int) -> FactorWorker:
        from dray.learners.factorization.worker import FactorWorker

        return FactorWorker(number, threads)

    def driver_side(
        self, config: FactorizationConfig, storage: StorageOptions, emit: Callable[[Event], object]
    ) -> FactorDriver:
        from dray.learners.factorization.driver import FactorDriver

        return FactorDriver(config, storage, emit)

    def result(self, document: Mapping[str, Any], storage: StorageOptions) -> FactorResult:
        from dray.learners.factorization.result import FactorResult

        return FactorResult(**typed(document), storage=storage)

    def recognises(self, location: str, storage: StorageOptions) -> bool:
        from dray.learners.factorization.opening import is_model

        return is_model(location, storage)

    def open(self, location: str, storage: StorageOptions) -> Predictor:
        from dray.learners.factorization.predictor import open_pairs

        return open_pairs(location, storage)

    def open_recommender(self, location: str, storage: StorageOptions) -> FactorRecommender:
        from dray.learners.factorization.opening import open_recommender

        return open_recommender(location, storage)


FACTORIZATION = Factorization()
