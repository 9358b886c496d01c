"""What learners of tables with a label share in the driver: roles of columns, categories, ranking groups, units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dray.config.run_file import WorkerRange
from dray.data.features import Column, choose_features, column_of, is_text, kind_of, require_column, require_weight
from dray.data.held_out import ByGroup, FromKey, Rule, Search, key_of, not_ordered, require_ordered
from dray.data.parquet import Dataset
from dray.data.prepare import Preparation
from dray.data.scan import Found, merge_categories, require_groups_together, scan
from dray.data.shards import Slice, Unit, assign, divided, keep_groups_whole
from dray.data.split import PickedRows, Split
from dray.data.time_columns import look_at_texts
from dray.data.times import Look
from dray.data.whole_numbers import Wholes
from dray.errors import DataError
from dray.events.kinds import Event, Warned
from dray.learners.attempt import Surveyors
from dray.learners.checkpoint import Checkpoint
from dray.learners.label_scan import LabelValues, ScanLabel
from dray.learners.layouts import RowSharding, ShardReport
from dray.learners.learner import Op, Opened
from dray.learners.split_scan import CountKeys, PickRows, search_of
from dray.learners.stratifying import ClassShares, stratified
from dray.learners.table_checks import TableChecks
from dray.learners.table_config import TableConfig
from dray.learners.table_times import looks_at, with_times
from dray.learners.whole_scan import ScanWholes
from dray.runs.trained_on import HeldOut, TrainedOn, held_out
from dray.storage import StorageOptions

LABELS_SEEN = 1_000_000
LABELS_SEED = 0x6C6162656C73
LEFT_OUT = "They are left out. To have them refused: --missing-label error."


@dataclass(frozen=True)
class Roles:
    """Which column is what, as far as the footers tell: categories are still empty."""

    features: tuple[Column, ...]
    label: Column
    weight: str | None
    group: str | None

    @property
    def others(self) -> list[Column]:
        """The columns besides the features that are read for every row."""
        numbers = [Column(name, "number") for name in dict.fromkeys((self.weight, self.group)) if name is not None]
        return [self.label, *numbers]

    @property
    def categories(self) -> list[str]:
        return [column.name for column in (*self.features, self.label) if column.kind == "category"]


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
        self._split: Split | PickedRows | None = _by_position(config)
        self.settled: frozenset[str] = frozenset()
        """Columns whose categories a learner has found before `units`, in a way of its own."""
        self._checks = TableChecks()
        self._labels: LabelValues | None = None
        """The values of the training data's label, once they are counted."""

    def held_out(self) -> HeldOut | None:
        return held_out(self.config.model_dump())

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
        for data, rows, use in ((train, "rows", "learn"), (evaluation, "evaluation rows", "evaluate on")):
            if data is not None:
                self._check_missing_labels(unlabelled(data, self.roles.label.name), data.rows, rows, use)
        self.roles = self.with_times(self.roles)
        if evaluation is not None:
            check_eval_schema(self.roles, evaluation.schema)
        workers = self.config.workers
        least = workers.min if isinstance(workers, WorkerRange) else workers
        if isinstance(least, int) and self.roles.group is None:
            assign(self._units_of(train, least, []), max(1, least))  # too few rows: refused now
        return Opened(cells=train.rows * len(self.roles.features), features=len(self.roles.features))

    def with_times(self, roles: Roles) -> Roles:
        """Decide what becomes of columns of times. A learner that goes on from a model, which says it, overrides it."""
        looks = looks_at(roles.features, self.train, self.config)
        features, told = with_times(roles.features, self.train.schema, looks, self.config)
        for event in told:
            self.emit(event)
        return replace(roles, features=features)

    def begin(self, *, alone: bool) -> None:  # noqa: ARG002
        """Look at a few rows while the workers start; a learner that reads more then calls this too."""
        features = [feature.name for feature in self.roles.features]
        self._checks.begin(self.train, self.evaluation, features, self.roles.label.name, self.roles.group)

    def survey(self, workers: Surveyors, latest: Checkpoint) -> RowSharding:  # noqa: ARG002
        units, evaluation = self.units(workers)
        return RowSharding(self.preparation(), units, evaluation)

    def close(self) -> None:
        self._checks.close()

    def units(self, workers: Surveyors) -> tuple[list[Unit], list[Unit]]:
        """Find the categories, the ranking groups and the split; return the units of both data sets."""
        self._split = self._find_split(workers)
        unknown = [name for name in self.roles.categories if name not in self.settled]
        most = self.config.workers.max if isinstance(self.config.workers, WorkerRange) else workers.count
        found = self._scan(workers, self.train, most, unknown) if unknown or self.roles.group else []
        units = self._units_of(self.train, most, found)
        evaluation: list[Unit] = []
        if self.evaluation is not None:
            groups = self._scan(workers, self.evaluation, most, []) if self.roles.group else []
            evaluation = self._units_of(self.evaluation, most, groups)
        if unknown:
            self.roles = with_categories(self.roles, found)
        self._checks.tell(self.emit, self._split)
        return units, evaluation

    def _find_split(self, workers: Surveyors) -> Split | PickedRows | None:
        """Have the workers look through the column that decides, if one does."""
        rule = self._rule(workers)
        if rule is None:
            return (
                self._split if (share := self.share_of_classes(workers)) is None else self._stratified(workers, share)
            )
        mask = np.zeros(self.train.rows, np.bool_)
        shares = scan_shares(self.train.row_groups, max(1, workers.count))
        for part in workers.run(PickRows(), [(share, rule, self.storage) for share in shares]):
            for position, rows, bits in part:
                mask[position : position + rows] = np.unpackbits(bits, count=rows)
        if not 0 < (held_out := int(mask.sum())) < self.train.rows:
            flag = "--split-seed" if self.config.split_by else "--eval-from"
            which, other = ("No row is", "evaluate on") if not held_out else ("All rows are", "train on")
            raise DataError(
                f'{which} evaluated on by "{rule.column}": there is nothing to {other}.',
                fix=f"Give another {flag} or --eval-fraction, or another column.",
            )
        return PickedRows.of(mask)

    def share_of_classes(self, workers: Surveyors) -> ClassShares | None:  # noqa: ARG002
        """Return the share of each class that is evaluated on. A learner of classes overrides it."""
        return None

    def _stratified(self, workers: Surveyors, share: ClassShares) -> PickedRows:
        shares = scan_shares(self.train.row_groups, max(1, workers.count))
        split = stratified(workers, shares, self.train.rows, share, self.storage)
        if split is None:
            alone = max(share.classes.values(), default=0) <= 1
            fix = "Every class has one row, which is trained on: --no-stratify takes any rows."
            raise DataError("No row went to the evaluation set.", fix=fix if alone else "Use a larger --eval-fraction.")
        return split

    def _rule(self, workers: Surveyors) -> Rule | None:
        config = self.config
        if config.split_by is not None:
            assert config.eval_fraction is not None
            return ByGroup(config.split_by, config.eval_fraction, config.split_seed)
        if (column := config.eval_by) is None:
            return None
        form, type_ = self._time_form(column)
        shares = scan_shares(self.train.row_groups, max(1, workers.count))

        def counted(search: Search) -> Any:
            return sum(workers.run(CountKeys(), [(share, column, search, self.storage) for share in shares]))

        counts = counted(Search(0, form))
        if not (known := int(counts.sum())):
            raise DataError(f'No row has a time in "{column}".', fix="Name another column with --eval-by.")
        if known < self.train.rows:
            missing = f'{self.train.rows - known:,} of {self.train.rows:,} rows have no time in "{column}".'
            self.emit(Warned(missing, "They are trained on, and never evaluated on."))
        if config.eval_from is not None:
            return FromKey(column, key_of(config.eval_from, column, type_), form)
        assert config.eval_fraction is not None
        search = search_of(config.eval_fraction, known, form).narrowed(counts)
        while not search.over:
            search = search.narrowed(counted(search))
        return FromKey(column, search.prefix, form)

    def _time_form(self, column: str) -> tuple[str, pa.DataType]:
        """Return how the times of a column of text are written, and the type of what is compared."""
        type_ = self.train.schema.field(column).type
        if not is_text(type_):
            return "", type_
        look = look_at_texts(self.train, [column]).get(column, Look())
        form = self.config.time_form.get(column) or look.form
        if not form:
            raise not_ordered(column, type_)
        return form, pa.timestamp(
            "us", "UTC"
        )  # as which text is read; --eval-from may have a zone then as the text has

    def label_values(self, workers: Surveyors, data: Dataset, most: int) -> LabelValues:
        """Count the rows of each value of the label; only so much is known of one that has more than `most`."""
        if data is self.train and self._labels is not None and len(self._labels.counts) <= most:
            return self._labels
        name = self.roles.label.name
        shares = scan_shares(data.row_groups, max(1, workers.count))
        found = LabelValues.merge(
            workers.run(ScanLabel(), [(share, name, most, self.storage) for share in shares]), most
        )
        if data is self.train and not found.more:
            self._labels = found
        return found

    def whole_numbers(self, workers: Surveyors, names: Sequence[str]) -> dict[str, Wholes]:
        """Find the different values of columns of whole numbers."""
        known = {name: whole_range(self.train, name) for name in names}
        ranges = {name: Wholes() if span is None else Wholes(low=span[0], high=span[1]) for name, span in known.items()}
        shares = scan_shares(self.train.row_groups, max(1, workers.count))
        found = workers.run(ScanWholes(), [(share, ranges, self.storage) for share in shares])
        return {name: reduce(Wholes.joined, (part[name] for part in found)) for name in names}

    def dropped(self, reports: Sequence[ShardReport]) -> tuple[int, int]:
        """Return how many rows of the training and of the evaluation data were left out, for they have no label."""
        train, evaluation = sum(r.rows_dropped for r in reports), sum(r.eval_rows_dropped for r in reports)
        for data in (self.train, self.evaluation):
            skipped = set() if data is None or self.roles.group else unread(data, self.roles.label.name, self._drops)
            for piece in sorted(skipped, key=lambda piece: piece.position):
                held_out = piece.rows if data is self.evaluation else self._held_out(piece)
                train, evaluation = train + piece.rows - held_out, evaluation + held_out
        return train, evaluation

    def warn_dropped(self, dropped: int, eval_dropped: int) -> None:
        """Tell of rows that turned out to have no label when they were loaded: NaN, which the footers do not count."""
        both = [data for data in (self.train, self.evaluation) if data is not None]
        told = sum(unlabelled(data, self.roles.label.name) for data in both)
        if (more := dropped + eval_dropped - told) > 0:
            self.emit(Warned(f"{more:,} {'more ' if told else ''}rows have {self._no_label}.", LEFT_OUT))

    def preparation(self) -> Preparation:
        """Return what all workers agree on, after `survey`."""
        return Preparation(
            features=self.roles.features,
            label=self.roles.label,
            weight=self.roles.weight,
            group=self.roles.group,
            split=self._split,
            label_sample=Split(min(1.0, LABELS_SEEN / self.train.rows), LABELS_SEED),
            storage=self.storage,
            missing_label=self.config.missing_label,
        )

    @property
    def _drops(self) -> bool:
        return self.config.missing_label == "drop"

    @property
    def _no_label(self) -> str:
        return f'no value in the label "{self.roles.label.name}"'

    def _check_missing_labels(self, missing: int, of: int, rows: str, use: str) -> None:
        """Refuse or tell of rows without a label, as far as the footers know."""
        if not missing:
            return
        what = f"{missing:,} of {of:,} {rows} have {self._no_label}"
        if missing == of:
            raise DataError(f"{what}: there is nothing to {use}.", fix="Check --label, and that the data is complete.")
        if not self._drops:
            raise DataError(f"{what}.", fix="Leave them out with --missing-label drop, or fill in the label.")
        self.emit(Warned(f"{what}.", LEFT_OUT))

    def _units_of(self, dataset: Dataset, workers: int, found: Sequence[Found]) -> list[Unit]:
        """Return what can be assigned to so many workers."""
        groups = dataset.row_groups
        if self.roles.group is None:
            skipped = unread(dataset, self.roles.label.name, self._drops)
            groups = tuple(group for group in groups if group not in skipped)
        return units_of(divided(groups, workers), self.roles, found)

    def _held_out(self, piece: Slice) -> int:
        """Return how many rows of a slice are evaluated on."""
        split = self._split
        return 0 if split is None else int(split.picks(np.arange(piece.position, piece.position + piece.rows)).sum())

    def _scan(self, workers: Surveyors, data: Dataset, most: int, categories: list[str]) -> list[Found]:
        shares = scan_shares(divided(data.row_groups, most), max(1, workers.count))
        return workers.run(Scan(), [(share, categories, self.roles.group, self.storage) for share in shares])


def _by_position(config: TableConfig) -> Split | None:
    """Return the split, if no value decides."""
    by_value = config.eval_by is not None or config.split_by is not None
    fraction = config.eval_fraction
    return None if fraction is None or by_value else Split(fraction, config.split_seed)


def assign_roles(config: TableConfig, schema: pa.Schema) -> Roles:
    """Give every column its role, or say which is missing."""
    label = column_of(config.label, require_column(schema, config.label, role="--label"))
    for name, role in ((config.weight, "--weight"), (config.group, "--group")):
        if name is not None:
            kind_of(name, require_column(schema, name, role=role))
    if config.split_by is not None:
        require_column(schema, config.split_by, role="--split-by")
    if config.eval_by is not None:
        type_ = require_column(schema, config.eval_by, role="--eval-by")
        require_ordered(config.eval_by, type_)
        if config.eval_from is not None and not is_text(type_):
            key_of(config.eval_from, config.eval_by, type_)
    if config.weight is not None:
        require_weight(config.weight, schema.field(config.weight).type)
    taken = [name for name in (config.label, config.weight, config.group) if name is not None]
    features = choose_features(schema, taken=taken, ignore=config.ignore)
    return Roles(tuple(features), label, config.weight, config.group)


def check_eval_schema(roles: Roles, schema: pa.Schema) -> None:
    """The evaluation set needs every column that is used. Features may be of any type, as in prediction."""
    for column in roles.features:
        require_column(schema, column.stored, role="needed for evaluation")
    label = roles.label
    found = require_column(schema, label.stored, role="needed for evaluation")
    if not label.takes(found):
        raise DataError(
            f'The label "{label.stored}" is a {label.kind} in the training data but a '
            f"{kind_of(label.stored, found)} in the evaluation data.",
            fix="Write it with one type in both.",
        )
    for name in (roles.weight, roles.group):
        if name is not None:
            require_column(schema, name, role="needed for evaluation")


def with_categories(roles: Roles, found: Sequence[Found]) -> Roles:
    """Give every category column the one dictionary of all the data; an earlier run's comes first, unchanged."""

    def complete(column: Column) -> Column:
        scanned = column.kind == "category" and any(column.name in one.categories for one in found)
        return column.with_more(merge_categories(found, column.name)) if scanned else column

    label = complete(roles.label)
    if roles.label.categories and label != roles.label:
        raise DataError(
            f'The label "{label.name}" has a class that the earlier run did not know: {label.categories[-1]!r}.',
            fix="Train a new model instead of continuing.",
        )
    return replace(roles, features=tuple(map(complete, roles.features)), label=label)


def units_of(pieces: Sequence[Slice], roles: Roles, found: Sequence[Found]) -> list[Unit]:
    """What can be assigned: row groups or cuts of them, or whole ranking groups."""
    if roles.group is None:
        return [(piece,) for piece in pieces]
    return keep_groups_whole(pieces, require_groups_together(pieces, found, roles.group))


def scan_shares(pieces: Sequence[Slice], workers: int) -> list[list[Slice]]:
    """Which worker looks through which rows."""
    shards = assign([(piece,) for piece in pieces], workers, may_be_empty=True)
    return [[piece for unit in shard for piece in unit] for shard in shards]


def whole_range(dataset: Dataset, name: str) -> tuple[int, int] | None:
    """Return the least and greatest value of a column of whole numbers before it is read; None if that is not known."""
    if (known := dataset.statistics.ranges.get(name)) is not None:
        return int(known[0]), int(known[1])
    texts = {c.text for piece in dataset.row_groups for c in piece.constants if c.name == name}
    numbers = [int(text) for text in texts if text is not None and text.removeprefix("-").isdecimal()]
    return (min(numbers), max(numbers)) if numbers else None


def unlabelled(dataset: Dataset, label: str) -> int:
    """Return how many rows have no label, as far as the footers know: NaN is not counted there."""
    return sum(dataset.statistics.nulls.get(label, ()))


def unread(dataset: Dataset, label: str, drops: bool) -> set[Slice]:
    """Return the row groups in which no row has a label: no worker loads them where such rows are left out."""
    nulls = dataset.statistics.nulls.get(label, ())
    if not drops or len(nulls) != len(dataset.row_groups):
        return set()
    return {group for group, missing in zip(dataset.row_groups, nulls, strict=True) if missing == group.rows}
