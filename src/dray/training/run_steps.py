"""What the steps of a run share, whatever is trained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dray.config.run_file import RunConfig
from dray.data.parquet import Dataset, open_dataset
from dray.ingesting.cache import Check, Reading, as_parquet
from dray.storage import StorageOptions
from dray.telemetry.events import Telemetry
from dray.telemetry.run_directory import RunDirectory
from dray.training.keeper import Keeper
from dray.training.result import Seconds
from dray.training.trained_on import DATA, UNKNOWN, TrainedOn, held_out, require_held_out
from dray.workers.crew import Crew, Terms


class RunSteps:
    """One run. Made for one call of `run`, which its kinds have."""

    def __init__(
        self,
        config: RunConfig,
        storage: StorageOptions,
        directory: RunDirectory,
        telemetry: Telemetry,
        keeper: Keeper,
        warnings: list[str],
    ) -> None:
        self.config = config
        self.storage = storage
        self.directory = directory
        self.telemetry = telemetry
        self.keeper = keeper
        self.warnings = warnings
        self.times = [time.perf_counter()]
        self.copy_s = 0.0
        self.begun = False
        """Rounds are being trained: what comes of them is worth keeping."""

    def open_data(self, locations: Sequence[str], check: Check) -> Dataset:
        """Open data of any format; what is wrong with its columns is told before it is copied."""
        began = time.perf_counter()
        parquet = as_parquet(locations, self.storage, reading(self.config), self.telemetry.emit, check)
        if parquet != tuple(locations):
            self.copy_s += time.perf_counter() - began
        dataset = open_dataset(parquet, self.storage)
        check(dataset.schema)
        return dataset

    def check_held_out(self, train_data: Dataset, eval_data: Dataset | None, earlier: Sequence[TrainedOn]) -> None:
        """Refuse to evaluate on rows that the model was trained on before; say so where that cannot be known."""
        evaluation, how = () if eval_data is None else eval_data.contents, held_out(self.config.model_dump())
        if how is None and not evaluation:
            return
        if not require_held_out(earlier, train_data.contents, how, evaluation):
            self.telemetry.emit("warning", message=UNKNOWN, fix="The metrics are honest only if they do not.")

    def note_data(self, train_data: Dataset, eval_data: Dataset | None, earlier: Sequence[TrainedOn] = ()) -> None:
        """Note down what the data is, for `dray resume` to compare, and what the model was trained on before."""
        if not self.directory.exists(DATA):
            seen = {"earlier": [run.to_json() for run in earlier]} if earlier else {}
            self.directory.write_json(DATA, describe_data(train_data, eval_data) | seen)

    def seconds(self, recovery_s: float) -> Seconds:
        """Return the time by phase, at the end."""
        begin, started, loaded, trained = self.times
        total = time.perf_counter() - begin
        return Seconds(
            started - begin - self.copy_s, loaded - started, trained - loaded, recovery_s, total, self.copy_s
        )

    def note_workers(self, crew: Crew) -> None:
        self.directory.describe(
            cluster={"name": crew.cluster, "workers": [asdict(member) for member in crew.ready.values()]}
        )


def reading(config: RunConfig) -> Reading:
    """Return how the data of a run is read."""
    return Reading(config.format, config.read, config.cache)


def terms_of(config: RunConfig) -> Terms:
    """Return what holds when a worker is lost."""
    return Terms(
        level=config.on_failure,
        failures=config.max_failures,
        failures_in_round=config.max_failures_in_round,
        heartbeat_s=config.heartbeat_s,
        wait_s=config.wait_s,
    )


def describe_data(train_data: Dataset, eval_data: Dataset | None) -> dict[str, Any]:
    """Return what tells a run's data from any other."""
    return {"train": train_data.contents, "eval": () if eval_data is None else eval_data.contents}
