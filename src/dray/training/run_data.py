"""The data of a session or a run: opened, converted where needed, noted down for a resumed run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from dray.config.run_file import RunConfig
from dray.data.conflicts import keep_conflicts
from dray.data.features import plain_field
from dray.data.parquet import Dataset, open_dataset
from dray.data.whole_numbers import is_wide
from dray.elastic.starting import Terms
from dray.errors import StorageError
from dray.events.kinds import Event, Warned
from dray.events.telemetry import Sample, Sink, Telemetry
from dray.ingesting.cache import Check, Reading, as_parquet, copy_key, is_query, used_cluster
from dray.ingesting.copy_files import keep_for
from dray.ingesting.new_data import same_format, with_types
from dray.ingesting.noticed import tell
from dray.learners.table_config import TableConfig
from dray.runs.directory import RunDirectory
from dray.runs.trained_on import DATA, UNKNOWN, HeldOut, TrainedOn, read_data, require_held_out
from dray.storage import StorageOptions, is_s3
from dray.training.same_data import ContentDigests, marks_of


class RunData:
    """The data of a session: opened, converted where needed, and noted down if the session is a run."""

    def __init__(
        self, config: RunConfig, storage: StorageOptions, telemetry: Telemetry, directory: RunDirectory | None = None
    ) -> None:
        self._config = config
        self._storage = storage
        self._telemetry = telemetry
        self._directory = directory
        self.began = time.perf_counter()
        """When the session began that it belongs to."""
        self.copy_s = 0.0
        """Seconds until data that is not Parquet was there as Parquet."""
        self._before = read_data(directory) if directory is not None and directory.exists(DATA) else {}
        """What a run that is resumed has noted down of its data."""
        self._copies: dict[str, str] = {}
        """Copies of rows that cannot be copied again as they were."""
        self._opened: dict[tuple[tuple[str, ...], bool], tuple[Dataset, str | None]] = {}
        """What was opened without a run, with its copy: by location, and whether to evaluate on it."""
        self._digests: ContentDigests | None = None

    def go_on(self, telemetry: Telemetry, directory: RunDirectory) -> None:
        """Serve the run that now begins: what is open is not opened again, and its copies are kept for the run."""
        self._telemetry, self._directory = telemetry, directory

    def open(self, locations: Sequence[str], check: Check, like: Dataset | None = None) -> Dataset:
        """Open data of any format; what is wrong with its columns is told before it is copied.

        `like`: the training data, whose types evaluation data in text files is read with.
        """
        which = (tuple(locations), like is not None)
        found = self._opened.pop(which, None)
        dataset, copy = self._open(locations, check, like) if found is None else found
        if copy is not None:
            self._keep(copy, must=is_query(locations, reading(self._config)))
        check(dataset.schema)
        if self._directory is None:
            self._opened[which] = dataset, copy
        return dataset

    def _open(self, locations: Sequence[str], check: Check, like: Dataset | None) -> tuple[Dataset, str | None]:
        """Return the data, and its Parquet copy if it needs one."""
        began = time.perf_counter()
        how = reading(self._config, self._before.get("copies"))
        if like is not None:
            how = reading_of_eval(self._config, like, how, self._storage)
        copied = pa.schema([])

        def check_source(schema: pa.Schema) -> None:
            nonlocal copied
            copied = schema
            check(schema)

        parquet = as_parquet(locations, self._storage, how, self._telemetry.emit, check_source)
        copy = None if parquet == tuple(locations) else parquet[0]
        if copy is not None:
            self.copy_s += time.perf_counter() - began
            if is_query(locations, how):
                self._copies[copy_key(locations)] = copy
        dataset = open_dataset(parquet, self._storage, statistics=self._is_asked_of_footers)
        tell(dataset.notes, self._telemetry.emit)
        return replace(dataset, schema=keep_conflicts(dataset.schema, copied)), copy

    def _is_asked_of_footers(self, field: pa.Field) -> bool:
        """Whether a driver wants to know the nulls or the range of a column before it is read."""
        label = self._config.label if isinstance(self._config, TableConfig) else None
        return field.name == label or is_wide(field.type)

    def _keep(self, copy: str, *, must: bool) -> None:
        """Keep a copy until the run is finished: workers that are replaced read it again."""
        if self._directory is None or (is_s3(copy) and not must):
            return
        with suppress(*() if must else (StorageError,)):
            keep_for(copy, self._directory.location, self._storage)

    def close(self) -> None:
        """End what goes on beside."""
        if self._digests is not None:
            self._digests.close()

    def check_held_out(
        self, train_data: Dataset, eval_data: Dataset | None, how: HeldOut | None, earlier: Sequence[TrainedOn]
    ) -> None:
        """Refuse to evaluate on rows that the model was trained on before; say so where that cannot be known."""
        evaluation = () if eval_data is None else eval_data.contents
        if how is None and not evaluation:
            return
        if not require_held_out(earlier, train_data.contents, how, evaluation):
            self._telemetry.emit(Warned(UNKNOWN, "The metrics are honest only if they do not."))

    def note(self, train_data: Dataset, eval_data: Dataset | None, earlier: Sequence[TrainedOn] = ()) -> None:
        """Note down what the data is, for `dray resume` to compare, and what the model was trained on before."""
        directory, document = self._directory, self._before
        if directory is None:
            return
        if not document:
            document = describe_data(train_data, eval_data, copies=self._copies)
            if earlier:
                document["earlier"] = [run.to_json() for run in earlier]
            directory.write_exactly(DATA, document)
        self._digests = ContentDigests(document.get("files", {}), partial(_note_digests, directory, document))


class Opened:
    """Data that is opened before its run begins. A sink: what is told meanwhile belongs to the records of the run."""

    def __init__(self, config: RunConfig, storage: StorageOptions, sinks: Sequence[Sink]) -> None:
        self.told: list[Event] = []
        self.telemetry = Telemetry([self, *sinks])
        self.data = RunData(config, storage, self.telemetry)

    def event(self, event: Event) -> None:
        self.told.append(event)

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def _note_digests(directory: RunDirectory, document: dict[str, Any], found: Mapping[str, str]) -> None:
    files = {name: mark | {"content": found.get(name, mark["content"])} for name, mark in document["files"].items()}
    directory.write_exactly(DATA, document | {"files": files})


def reading(config: RunConfig, copies: Mapping[str, str] | None = None) -> Reading:
    """Return how the data of a run is read, and the copies that a resumed run goes on with."""
    cluster = used_cluster(config.workers, config.cluster)
    return Reading(config.format, config.read, config.cache, copies or {}, cluster)


def reading_of_eval(config: RunConfig, like: Dataset, how: Reading, storage: StorageOptions) -> Reading:
    """Return how evaluation data is read: as new data is for a prediction, text with the types of the training data.

    The features of trees are read as they are written: what cannot be read is missing then, and costs no row.
    """
    types = {field.name: plain_field(field).type for field in like.schema}
    features: set[str] = set()
    if isinstance(config, TableConfig):
        features = types.keys() - {config.label, config.weight, config.group}
    options: dict[str, Any] = {}
    if config.format is not None or same_format(config.data, config.eval, storage):
        options = dict(config.read)
    told = options.pop("types", None) or {}
    return with_types(config.eval, types, told, replace(how, options=options), storage, as_written=features)


def terms_of(config: RunConfig) -> Terms:
    """Return what holds when a worker is lost."""
    return Terms(
        level=config.on_failure,
        failures=config.max_failures,
        failures_in_round=config.max_failures_in_round,
        heartbeat_s=config.heartbeat_s,
        wait_s=config.wait_s,
    )


def describe_data(
    train_data: Dataset, eval_data: Dataset | None, *, copies: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what tells a run's data from any other."""
    both = [train_data] if eval_data is None else [train_data, eval_data]
    return {
        "train": train_data.contents,
        "eval": () if eval_data is None else eval_data.contents,
        "files": {name: mark for dataset in both for name, mark in marks_of(dataset).items()},
        "copies": dict(copies or {}),
    }
