"""The run that a run of trees goes on from: its model, its cuts, what it has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.data.cuts import cut_table, with_borders
from dray.data.features import Column
from dray.errors import DAMAGE, ConfigError, DataError, ModelError
from dray.learners.table import Roles
from dray.learners.xgboost.categories import without_categories
from dray.learners.xgboost.config import XGBoostConfig
from dray.learners.xgboost.model import Model, splits_of
from dray.learners.xgboost.params import bins_of, has_classes
from dray.learners.xgboost.unknown import MODEL, read_model
from dray.runs.directory import RunDirectory, open_run
from dray.runs.trained_on import TrainedOn, as_split, trained_on
from dray.storage import StorageOptions


@dataclass(frozen=True)
class Previous:
    """The run that this one goes on from."""

    model: Model
    cuts: npt.NDArray[np.float32]
    bins: int
    content: bytes
    """The model as training starts from it."""
    trained_on: tuple[TrainedOn, ...]
    """What it has seen, run by run."""


CUTS = "cuts.parquet"
_BINS = b"max_bin"


def read_previous(location: str, storage: StorageOptions) -> Previous:
    directory = open_run(location, storage)
    if directory.document["status"] != "finished":
        raise ModelError(
            f"{location} is {directory.document['status']}, not finished.", fix="Name a finished run: dray runs"
        )
    content = read_model(directory)
    model = Model.from_bytes(content, directory.path(MODEL))
    table = directory.read_table(CUTS)
    if table.column_names != [feature.name for feature in model.features]:
        raise directory.damaged(CUTS, "its columns are not the model's")
    try:
        cuts = np.stack([column.to_numpy().astype(np.float32, casting="same_kind") for column in table.columns], axis=1)
        return _previous(directory, model, content, table, cuts)
    except DAMAGE as error:
        raise directory.damaged(CUTS, f"{type(error).__name__} {error}") from error


def _previous(
    directory: RunDirectory, model: Model, content: bytes, table: pa.Table, cuts: npt.NDArray[np.float32]
) -> Previous:
    # Older tables do not say it, and the configuration of a continued run does not either.
    told = (table.schema.metadata or {}).get(_BINS)
    bins = int(told) if told else max(bins_of(directory.document["config"]["params"]), _longest_numeric(model, cuts))
    return Previous(model, cuts, bins, without_categories(content), _seen(directory, model.objective))


def _seen(directory: RunDirectory, objective: str) -> tuple[TrainedOn, ...]:
    seen = trained_on(directory)
    if not seen:
        return ()
    earlier, own = seen[:-1], seen[-1]
    return (*earlier, replace(own, held_out=as_split(own.held_out, earlier, classes=has_classes(objective))))


def cuts_as_table(features: Sequence[Column], cuts: npt.NDArray[np.float32], bins: int) -> pa.Table:
    table = pa.table(list(cuts.T), names=[feature.name for feature in features])
    return table.replace_schema_metadata({_BINS: str(bins)})


def _longest_numeric(model: Model, cuts: npt.NDArray[np.float32]) -> int:
    counts = (~np.isnan(cuts)).sum(axis=0)
    numeric = [int(count) for feature, count in zip(model.features, counts, strict=True) if feature.kind != "category"]
    return max(numeric, default=0)


def agreed_bins(params: Mapping[str, Any], previous: Previous | None) -> int:
    """Return how many bins a feature has: as asked, or as before."""
    if previous is None:
        return bins_of(params)
    if "max_bin" in params and bins_of(params) != previous.bins:
        raise ConfigError(
            f"The earlier run has max_bin {previous.bins}, not {params['max_bin']}.", fix="Leave max_bin out."
        )
    return previous.bins


def make_cuts(
    roles: Roles,
    points: Sequence[npt.NDArray[np.float32]],
    bins: int,
    previous: Previous | None,
    checkpoint: bytes | None,
) -> tuple[npt.NDArray[np.float32], int]:
    """Fix the cuts and how many bins they are: from the sample's points, or as they were.

    Whatever the trees that training starts from split at is a cut, or their predictions for binned rows would not be
    those for the rows themselves. A category's cuts are its categories, grown or not.
    """
    if previous is not None:
        points = [column[~np.isnan(column)] for column in previous.cuts.T]
    grown = checkpoint or (None if previous is None else previous.content)
    if grown is not None:
        borders = splits_of(grown)
        if len(borders) != len(roles.features):
            raise ModelError(
                f"The run was begun with {len(borders)} features, and the data has {len(roles.features)} now: another "
                "version of dray takes other columns from it.",
                fix="Train anew.",
            )
        points, bins = with_borders(points, borders, bins)
    return cut_table(points, [feature.category_count for feature in roles.features]), bins


def as_before(roles: Roles, schema: pa.Schema, previous: Previous) -> Roles:
    """Return the roles with the columns of the earlier run, which must all be there."""
    model, label = previous.model, roles.label
    if label.name != model.label.name or not model.label.takes(schema.field(label.name).type):
        raise ModelError(
            f'The earlier run predicts "{model.label.name}" ({model.label.kind}), not "{label.name}" ({label.kind}).',
            fix="Continue with the same label.",
        )
    now = {feature.name: feature for feature in roles.features}
    for before in model.features:
        found = now.get(before.stored)
        if found is None or not before.takes(schema.field(before.stored).type):
            raise DataError(
                f'The earlier run has the feature "{before.name}" ({before.kind}); the data has '
                f"{'no such feature' if found is None else f'a {found.kind} there'}.",
                fix="Continue on data with the same columns.",
            )
    known = {feature.stored for feature in model.features}
    if new := [name for name in now if name not in known]:
        raise DataError(
            f'The data has a feature that the earlier run did not know: "{new[0]}".',
            fix=f"Leave it out with --ignore {quote(new[0])}, or train a new model.",
        )
    return replace(roles, features=tuple(model.features), label=model.label)


def texts_as_begun(features: Sequence[Column], categories: Sequence[bool]) -> tuple[Column, ...]:
    """Return the features of a run that is resumed: text of times stays a category where trees were grown on it as one.

    They were by a version of dray that saw no times in text. `categories`: whether each feature was one.
    """
    if len(categories) != len(features):
        return tuple(features)
    return tuple(
        Column(feature.name, "category") if feature.form and not feature.part and was else feature
        for feature, was in zip(features, categories, strict=True)
    )


def times_as_before(roles: Roles, config: XGBoostConfig) -> Roles:
    """Return the roles as they are: the earlier model says what becomes of times."""
    parts = any(feature.part is not None for feature in roles.features)
    if "times" in config.model_fields_set and (config.times == "parts") != parts:
        raise ConfigError(
            f"The earlier run {'has' if parts else 'has no'} parts of times, so that --times {config.times} cannot be.",
            fix="Leave --times out, or train a new model.",
        )
    return roles
