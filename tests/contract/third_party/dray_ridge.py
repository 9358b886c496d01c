"""Ridge regression as another package would add it to dray: summed normal equations, one step."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from dray.data.features import Column
from dray.data.shards import rows_of
from dray.data.stream import Stream
from dray.errors import ConfigError
from dray.learners.attempt import Attempt, Finished
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.layouts import ShardReport
from dray.learners.learner import Do, Fit, FitPlan
from dray.learners.reporting_worker import ReportingWorker
from dray.learners.result import Identity
from dray.learners.table import TableDriver
from dray.learners.table_learner import TableLearner
from dray.learners.table_predictor import TablePredictor
from dray.learners.trained_bytes import TrainedBytes, read_trained


class RidgeWorker(ReportingWorker):
    def __init__(self, number: int, threads: int) -> None:
        super().__init__(number, threads)
        self._shards: dict[Any, Any] = {}

    def load(self, preparation: Any, shard: Any, train: Any, evaluation: Any) -> ShardReport:
        began, split, columns = time.perf_counter(), preparation.split is not None, len(preparation.features)
        self.rows += rows_of(train)
        self.to_read += rows_of(train) * (1 + split) + rows_of(evaluation)

        def read(unit: Any, subset: Any) -> tuple[Any, Any]:
            batches = [*Stream((unit,), preparation, subset, self.on_rows, self.on_wait).batches()]
            x = design(np.concatenate([np.empty((0, columns)), *(batch.features for batch in batches)]))
            y = np.concatenate([np.empty(0), *(batch.label for batch in batches)])
            return np.round(x * 1024) / 1024, np.round(y * 1024) / 1024  # their sums are exact, in any order

        own = {unit[0].position: read(unit, "train" if split else "all") for unit in train}
        sums = {key: (x.T @ x, x.T @ y, len(y)) for key, (x, y) in own.items()}
        held_out = {u[0].position: read(u, "eval" if split else "all") for u in (train if split else evaluation)}
        self._shards[shard], rows = (sums, held_out), sum(count for *_, count in sums.values())
        return ShardReport(rows, sum(len(y) for _, y in held_out.values()), time.perf_counter() - began)

    def drop(self, shards: Any) -> None:
        self._shards = {shard: held for shard, held in self._shards.items() if shard not in shards}

    def sums(self, shards: Any) -> Any:
        return {unit: found for shard in shards for unit, found in self._shards[shard][0].items()}, self.prove()

    def errors(self, shards: Any, weights: Any) -> Any:
        rows = {unit: found for shard in shards for unit, found in self._shards[shard][1].items()}
        return {u: (np.round((x @ weights - y) ** 2 * 1e6).sum(), len(y)) for u, (x, y) in rows.items()}, self.prove()


def design(features: Any) -> Any:
    return np.hstack([np.nan_to_num(features), np.ones((len(features), 1))])


class OneStep:
    def __init__(self, penalty: float, fit: int) -> None:
        self._penalty, self._fit = penalty, fit

    def run(self, attempt: Attempt) -> Finished[Checkpoint]:
        attempt.started()
        if attempt.latest.model is None:
            began, (a, b, _) = time.perf_counter(), self._added(attempt, Do(RidgeWorker.sums))
            weights = np.linalg.solve(a + self._penalty * np.eye(len(a)), b)
            squares, rows = self._added(attempt, Do(RidgeWorker.errors), weights) or (0.0, 0)
            metrics = {"eval-rmse": float(np.sqrt(squares / 1e6 / rows))} if rows else {}
            content, step = json.dumps(weights.tolist()).encode(), Step(1, time.perf_counter() - began, metrics)
            attempt.offer(Checkpoint(1, content, (step,), fit=self._fit))
        attempt.report(attempt.latest.rounds)
        return Finished(attempt.latest)

    def rescue(self, attempt: Attempt, error: BaseException) -> None:
        """There is nothing between the beginning and the end."""

    def _added(self, attempt: Attempt, op: Any, *inputs: Any) -> list[Any]:
        calls = {attempt.call(w, op, shards, *inputs).number: w for w, shards in attempt.holdings.items()}
        units: dict[int, Any] = {}
        for call, (found, proof) in attempt.wait(calls).items():
            attempt.prove(calls[call], proof)
            units |= found
        return [sum(column) for column in zip(*(units[unit] for unit in sorted(units)), strict=True)]


class RidgeDriver(TableDriver):
    def assign_roles(self, schema: Any) -> Any:
        roles = super().assign_roles(schema)
        for column in [column for column in (*roles.features, roles.label) if column.kind == "category"]:
            raise ConfigError(f"Ridge cannot use {column.name!r}: it holds text.", fix=f"--ignore {column.name}")
        return roles

    def begin_fit(self, fit: Fit, loads: Any, runner: Any) -> FitPlan[Checkpoint]:
        if fit.rows is not None:
            raise ConfigError("Ridge trains on all rows.", fix="Leave rows= out.")
        self._rows = {name: sum(getattr(load, name) for load in loads.reports) for name in ("rows", "eval_rows")}
        return FitPlan(OneStep(RIDGE.check(fit.config), fit.number), "squared error", (), 1)

    def conclude(self, end: Checkpoint, runner: Any) -> TrainedBytes:
        names = [column.name for column in self.roles.features]
        content = json.dumps({"features": names, "weights": json.loads(end.model or b"")}).encode()
        own: dict[str, Any] = {"file": "ridge.json", "content": content, "parse": Ridge.parse, **self._rows}
        own |= {"digest": sha256(content).hexdigest(), "objective": "squared error", "metrics": end.rounds[0].metrics}
        return TrainedBytes(**own, rounds=1, best_round=1, identity=Identity(True, "sums are exact"))


@dataclass(frozen=True)
class Ridge:
    features: tuple[Column, ...]
    weights: Any

    @staticmethod
    def parse(content: bytes) -> Ridge:
        document = json.loads(content)
        return Ridge(tuple(Column(name, "number") for name in document["features"]), np.array(document["weights"]))

    def predict(self, matrix: Any) -> Any:
        return design(matrix) @ self.weights


class RidgeLearner(TableLearner):
    name, summary, library, default_rounds = "ridge", "linear regression with a penalty", "numpy", "1"
    fit_fields = frozenset({"params"})

    def check(self, config: Any) -> float:
        penalty, others = config.params.get("penalty", 1.0), config.params.keys() - {"penalty"}
        if others or not isinstance(penalty, int | float) or penalty < 0 or config.early_stop:
            raise ConfigError(f"Ridge takes a penalty from 0 on, no early_stop, no {others}.", fix="--param penalty=1")
        return float(penalty)

    def worker_side(self, number: int, threads: int) -> RidgeWorker:
        return RidgeWorker(number, threads)

    def driver_side(self, config: Any, storage: Any, emit: Any) -> RidgeDriver:
        return RidgeDriver(config, storage, emit)

    def open(self, location: str, storage: Any) -> TablePredictor[Ridge]:
        return TablePredictor(self.name, read_trained(location, "ridge.json", storage), Ridge.parse)


RIDGE = RidgeLearner()
