"""What learners of tables with a label share in the driver: roles of columns, categories, ranking groups, units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from dray.config.run_file import WorkerRange
from dray.data.features import Column, choose_features, column_of, kind_of, require_column
from dray.data.parquet import Dataset
from dray.data.prepare import Preparation
from dray.data.scan import Found, merge_categories, require_groups_together, scan
from dray.data.shards import Slice, Unit, assign, keep_groups_whole
from dray.data.split import Split
from dray.errors import DataError
from dray.events.kinds import Event
from dray.learners.attempt import Surveyors
from dray.learners.checkpoint import Checkpoint
from dray.learners.layouts import RowSharding
from dray.learners.learner import Op, Opened
from dray.learners.table_config import TableConfig
from dray.runs.trained_on import TrainedOn
from dray.storage import StorageOptions

LABELS_SEEN = 1_000_000
LABELS_SEED = 0x6C6162656C73


@dataclass(frozen=True)
class Roles:
    """Which column is what, as far as the footers tell: categories are still empty."""

    features: tuple[Column, ...]
    label: Column
    weight: str | None
    group: str | None

    @property
    def categories(self) -> list[str]:
        return [column.name for column in (*self.features, self.label) if column.kind == "category"]

    @property
    def needs_scan(self) -> bool:
        return bool(self.categories) or self.group is not None


class Scanning(Protocol):
    """A worker that can look through rows."""

    def on_wait(self, error: Any, wait_s: float) -> None:
        """A store does not answer; it is asked again."""


@dataclass(frozen=True)
class Scan(Op[..., Found]):
    """Look through columns for categories and ranking groups."""

    def __call__(self, side: Scanning, *inputs: Any, **_: Any) -> Found:
        slices, categories, group, storage = inputs
        return scan(slices, categories, group, storage, side.on_wait)


class TableDriver:
    """Implements what learners of tables share of `DriverSide`; `begin_fit` and `conclude` are the learner's own."""

    earlier: Sequence[TrainedOn] = ()
    rows_must_be_new = True

    def __init__(self, config: TableConfig, storage: StorageOptions, emit: Callable[[Event], object]) -> None:
        self.config = config
        self.storage = storage
        self.emit = emit
        self.roles: Roles
        self.train: Dataset
        self.evaluation: Dataset | None = None

    def check_schema(self, schema: pa.Schema, *, evaluation: bool) -> None:
        if evaluation:
            check_eval_schema(self.roles, schema)
        else:
            self.roles = self.assign_roles(schema)

    def assign_roles(self, schema: pa.Schema) -> Roles:
        """Give every column its role, or refuse the data. A learner that cannot use all columns overrides it."""
        return assign_roles(self.config, schema)

    def open(self, train: Dataset, evaluation: Dataset | None) -> Opened:
        """Take in the footers; refuse data that cannot be divided among the workers asked for."""
        self.train, self.evaluation = train, evaluation
        workers = self.config.workers
        least = workers.min if isinstance(workers, WorkerRange) else workers
        if isinstance(least, int) and self.roles.group is None:
            assign(units_of(train, self.roles, []), max(1, least))  # too few row groups: refused now
        return Opened(cells=train.rows * len(self.roles.features), features=len(self.roles.features))

    def begin(self) -> None:
        """Nothing is read while the workers start, unless a learner does."""

    def survey(self, workers: Surveyors, latest: Checkpoint) -> RowSharding:  # noqa: ARG002
        units, evaluation = self.units(workers)
        return RowSharding(self.preparation(), units, evaluation)

    def close(self) -> None:
        """Nothing goes on beside, unless a learner began it."""

    def units(self, workers: Surveyors) -> tuple[list[Unit], list[Unit]]:
        """Find the categories and the ranking groups; return the units of both data sets."""
        found = self._scan(workers, self.train, self.roles.categories) if self.roles.needs_scan else []
        units = units_of(self.train, self.roles, found)
        evaluation: list[Unit] = []
        if self.evaluation is not None:
            groups = self._scan(workers, self.evaluation, []) if self.roles.group else []
            evaluation = units_of(self.evaluation, self.roles, groups)
        if self.roles.categories:
            self.roles = with_categories(self.roles, found)
        return units, evaluation

    def preparation(self) -> Preparation:
        """Return what all workers agree on, after `survey`."""
        fraction = self.config.eval_fraction
        return Preparation(
            features=self.roles.features,
            label=self.roles.label,
            weight=self.roles.weight,
            group=self.roles.group,
            split=None if fraction is None else Split(fraction, self.config.split_seed),
            label_sample=Split(min(1.0, LABELS_SEEN / self.train.rows), LABELS_SEED),
            storage=self.storage,
        )

    def _scan(self, workers: Surveyors, data: Dataset, categories: list[str]) -> list[Found]:
        shares = scan_shares(data, max(1, workers.count))
        return workers.run(Scan(), [(share, categories, self.roles.group, self.storage) for share in shares])


def assign_roles(config: TableConfig, schema: pa.Schema) -> Roles:
    """Give every column its role, or say which is missing."""
    label = column_of(config.label, require_column(schema, config.label, role="--label"))
    for name, role in ((config.weight, "--weight"), (config.group, "--group")):
        if name is not None:
            kind_of(name, require_column(schema, name, role=role))
    if config.weight is not None and kind_of(config.weight, schema.field(config.weight).type) == "category":
        raise DataError(f'The weight column "{config.weight}" is text.', fix="Weights are numbers.")
    taken = [name for name in (config.label, config.weight, config.group) if name is not None]
    features = choose_features(schema, taken=taken, ignore=config.ignore)
    return Roles(tuple(features), label, config.weight, config.group)


def check_eval_schema(roles: Roles, schema: pa.Schema) -> None:
    """The evaluation set needs every column that is used, with the same meaning."""
    for column in (*roles.features, roles.label):
        found = require_column(schema, column.name, role="needed for evaluation")
        if not column.takes(found):
            raise DataError(
                f'Column "{column.name}" is a {column.kind} in the training data but a '
                f"{kind_of(column.name, found)} in the evaluation data.",
                fix="Write it with one type in both.",
            )
    for name in (roles.weight, roles.group):
        if name is not None:
            require_column(schema, name, role="needed for evaluation")


def with_categories(roles: Roles, found: Sequence[Found]) -> Roles:
    """Give every category column the one dictionary of all the data; an earlier run's comes first, unchanged."""

    def complete(column: Column) -> Column:
        return column.with_more(merge_categories(found, column.name)) if column.kind == "category" else column

    label = complete(roles.label)
    if roles.label.categories and label != roles.label:
        raise DataError(
            f'The label "{label.name}" has a class that the earlier run did not know: {label.categories[-1]!r}.',
            fix="Train a new model instead of continuing.",
        )
    return replace(roles, features=tuple(map(complete, roles.features)), label=label)


def units_of(dataset: Dataset, roles: Roles, found: Sequence[Found]) -> list[Unit]:
    """What can be assigned: row groups, or whole ranking groups."""
    if roles.group is None:
        return [(piece,) for piece in dataset.row_groups]
    return keep_groups_whole(dataset.row_groups, require_groups_together(dataset.row_groups, found, roles.group))


def scan_shares(dataset: Dataset, workers: int) -> list[list[Slice]]:
    """Which worker looks through which row groups."""
    shards = assign([(piece,) for piece in dataset.row_groups], workers, may_be_empty=True)
    return [[piece for unit in shard for piece in unit] for shard in shards]
