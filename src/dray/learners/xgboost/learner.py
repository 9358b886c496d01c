"""XGBoost as a learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dray.learners.learner import Flag
from dray.learners.result import typed
from dray.learners.table_learner import (
    EVAL_BY,
    EVAL_FROM,
    GROUP,
    IGNORE,
    LABEL,
    MISSING_LABEL,
    SPLIT_BY,
    TIME_FORM,
    TIMES,
    WEIGHT,
    TableLearner,
)

if TYPE_CHECKING:
    from dray.events.kinds import Event
    from dray.learners.predictor import Predictor
    from dray.learners.xgboost.config import XGBoostConfig
    from dray.learners.xgboost.driver import TreeDriver
    from dray.learners.xgboost.result import TrainResult
    from dray.learners.xgboost.worker import Worker
    from dray.storage import StorageOptions


class XGBoost(TableLearner):
    name = "xgboost"
    summary = "gradient boosted trees, for tables with a label"
    library = "xgboost"
    fit_fields = TableLearner.fit_fields | {"objective"}
    flags = (
        LABEL,
        Flag(
            "objective",
            "binary, multiclass, regression, ranking, or any XGBoost objective. [default: by the label]",
        ),
        GROUP,
        WEIGHT,
        IGNORE,
        MISSING_LABEL,
        TIMES,
        TIME_FORM,
        EVAL_BY,
        EVAL_FROM,
        SPLIT_BY,
        Flag(
            "stratify",
            "With --eval-fraction and classes: evaluate on the same share of every class. [default: stratify]",
            switch=True,
        ),
    )

    @property
    def Config(self) -> type[XGBoostConfig]:  # noqa: N802
        from dray.learners.xgboost.config import XGBoostConfig

        return XGBoostConfig

    def check(self, config: XGBoostConfig) -> None:
        from dray.learners.xgboost.params import asked_objective, bins_of, check_objective, check_params

        check_params(config.params)
        objective = asked_objective(config.objective, config.params)
        if objective is not None and config.continue_from is None:  # else the earlier run has the other parameters
            check_objective(config.params, objective)
        bins_of(config.params)

    def worker_side(self, number: int, threads: int) -> Worker:
        self.preload()
        from dray.learners.xgboost.worker import Worker

        return Worker(number, threads)

    def driver_side(
        self, config: XGBoostConfig, storage: StorageOptions, emit: Callable[[Event], object]
    ) -> TreeDriver:
        from dray.learners.xgboost.driver import TreeDriver

        return TreeDriver(config, storage, emit)

    def result(self, document: Mapping[str, Any], storage: StorageOptions) -> TrainResult:
        from dray.learners.xgboost.result import TrainResult
        from dray.learners.xgboost.unknown import read_model
        from dray.runs.directory import open_run

        return TrainResult(**typed(document), content=read_model(open_run(document["directory"], storage)))

    def recognises(self, location: str, storage: StorageOptions) -> bool:  # noqa: ARG002
        return location.endswith(".ubj")

    def open(self, location: str, storage: StorageOptions) -> Predictor:
        from dray.learners.xgboost.predictor import open_trees

        return open_trees(location, storage)

    def preload(self) -> None:
        from dray.learners.lean import load_lean

        load_lean(self.library)


XGBOOST = XGBoost()
