"""From a stream of encoded batches to XGBoost's binned matrix, with the cuts that all workers share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from dray.data.cuts import LARGEST
from dray.data.features import Column
from dray.data.prepare import Preparation
from dray.data.split import Split
from dray.data.stream import Batch, Stream
from dray.errors import DataError
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.xgboost.errors import InfiniteValueError, translated

PASSES = 3
"""How often XGBoost walks the data to bin it by a reference."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class BinnedPreparation(Preparation):
    """What workers of trees agree on before they load."""

    cuts: Floats
    """The reference rows by which every worker bins (`data/cuts.py`)."""
    bins: int


@dataclass(frozen=True)
class Loaded:
    """A binned matrix, and what there is to know of its labels.

    Labels, weights and groups themselves are in the matrix only: XGBoost copies them, and 4 bytes a row add up.
    """

    matrix: xgboost.QuantileDMatrix
    labels: LabelSummary
    sample: LabelSample
    dropped: npt.NDArray[np.int64]
    """Positions of the rows that were left out, because they have no label."""

    @property
    def rows(self) -> int:
        return self.labels.rows


def load(stream: Stream, preparation: BinnedPreparation) -> Loaded | None:
    """Bin a stream's rows; nothing when it has none."""
    passes = _Passes(stream, preparation.label_sample)
    if not passes.has_rows:
        stream.close()
        return None
    features = preparation.features
    try:
        with translated():
            matrix = xgboost.QuantileDMatrix(
                passes,
                ref=reference(features, preparation.cuts, preparation.bins),
                max_bin=preparation.bins,
                enable_categorical=True,
            )
    except InfiniteValueError as error:
        raise DataError(
            f'Column "{_first_infinite(stream)}" holds an infinite value, or one of {LARGEST:.8g} or more.',
            fix=error.fix,
        ) from error
    finally:
        stream.close()
    starts = passes.group_starts()
    first_rows = None if starts is None else np.flatnonzero(starts)
    label, weight = passes.labels(), passes.weights()
    sizes = None if first_rows is None else np.diff(np.append(first_rows, len(label))).astype(np.uint32)
    if weight is not None:
        check_weights(weight, preparation.weight)
        weight = weight if first_rows is None else weight[first_rows]
    # A group may cross batches, and XGBoost would split it there: labels and groups are set on the whole.
    labels = LabelSummary.of(label)
    if not labels.missing:
        matrix.set_info(label=label, group=sizes, weight=weight)
    return Loaded(matrix, labels, passes.sample(), stream.dropped)


def without_rows(stream: Stream, preparation: BinnedPreparation) -> Loaded:
    """Return the matrix of a shard of which no row is left after `load`: it adds nothing to the sums of the ring."""
    matrix = xgboost.QuantileDMatrix(
        np.empty((0, len(preparation.features)), np.float32),
        ref=reference(preparation.features, preparation.cuts, preparation.bins),
        max_bin=preparation.bins,
        feature_names=safe_names(preparation.features),
        feature_types=_types(preparation.features),
        enable_categorical=True,
    )
    nothing = np.empty(0, np.float32)
    matrix.set_info(label=nothing, group=None if preparation.group is None else np.empty(0, np.uint32))
    return Loaded(matrix, LabelSummary.of(nothing), LabelSample(np.empty(0, np.int64), nothing, None), stream.dropped)


def _first_infinite(stream: Stream) -> str:
    for matrix in stream.matrices():
        infinite = (np.isinf(matrix) | (matrix >= LARGEST)).any(axis=0)
        if infinite.any():
            return stream.encoder.names[int(infinite.argmax())]
    return "?"


def reference(features: Sequence[Column], cuts: Floats, bins: int) -> xgboost.QuantileDMatrix:
    """The matrix whose cuts are those of the table."""
    return xgboost.QuantileDMatrix(
        cuts,
        max_bin=bins,
        feature_names=safe_names(features),
        feature_types=_types(features),
        enable_categorical=True,
    )


def safe_names(features: Sequence[Column]) -> list[str]:
    """Names that XGBoost accepts: it refuses brackets. dray matches by the real names, kept with the model."""
    names = [re.sub(r"[\[\]<]", "_", feature.name) for feature in features]
    return names if len(set(names)) == len(names) else [f"f{index}" for index in range(len(names))]


def _types(features: Sequence[Column]) -> list[str]:
    return ["c" if feature.kind == "category" else "q" for feature in features]


def check_weights(weight: Floats, column: str | None) -> None:
    bad = int((~np.isfinite(weight) | (weight < 0)).sum())
    if bad:
        raise DataError(
            f'{bad:,} rows have a negative, missing or infinite weight in "{column}".',
            fix="Correct or drop those rows.",
        )


def check_group_weights(matrix: xgboost.QuantileDMatrix, preparation: Preparation) -> None:
    """Raise when no group counts: each worker scales the weights of its groups by their sum."""
    weight = matrix.get_weight() if preparation.group and preparation.weight else np.ones(1)
    if len(weight) and not weight.any():
        raise DataError(
            f'The first row of every group has the weight 0 in "{preparation.weight}", and its weight is the group\'s.',
            fix="Give the rows of a group the same weight, or leave --weight out.",
        )


class _Passes(xgboost.DataIter):  # type: ignore[misc]
    """Feeds XGBoost one pass after another; the first also collects the columns that are not features."""

    def __init__(self, stream: Stream, label_sample: Split) -> None:
        super().__init__(release_data=True)
        self._stream = stream
        self._label_sample = label_sample
        self._samples: list[LabelSample] = []
        self._rest: list[tuple[Floats, Floats | None, npt.NDArray[np.bool_] | None]] = []
        first = stream.batches()
        self._head = next(first, None)
        self._pass: Iterator[Floats] | None = self._first_pass(first)
        self._used = False
        self._names = safe_names(stream.encoder.columns)
        self._types = _types(stream.encoder.columns)

    @property
    def has_rows(self) -> bool:
        return self._head is not None

    def next(self, input_data: Any) -> bool:
        self._used = True
        if self._pass is None:
            self._pass = self._stream.matrices()
        matrix = next(self._pass, None)
        if matrix is None:
            return False
        input_data(data=matrix, feature_names=self._names, feature_types=self._types)
        return True

    def reset(self) -> None:
        if self._used:  # XGBoost also resets before the first pass
            self._pass = None

    def labels(self) -> Floats:
        return np.concatenate([label for label, _, _ in self._rest])

    def weights(self) -> Floats | None:
        parts = [weight for _, weight, _ in self._rest if weight is not None]
        return np.concatenate(parts) if parts else None

    def group_starts(self) -> npt.NDArray[np.bool_] | None:
        parts = [starts for _, _, starts in self._rest if starts is not None]
        return np.concatenate(parts) if parts else None

    def sample(self) -> LabelSample:
        return LabelSample.merge(self._samples)

    def _first_pass(self, others: Iterator[Batch]) -> Iterator[Floats]:
        batch = self._head
        while batch is not None:
            self._rest.append((batch.label, batch.weight, batch.group_starts))
            picked = self._label_sample.picks(batch.positions)
            weight = None if batch.weight is None else batch.weight[picked]
            self._samples.append(LabelSample(batch.positions[picked], batch.label[picked], weight))
            if (batch.features >= LARGEST).any():  # the highest bin ends there; XGBoost refuses infinity itself
                raise InfiniteValueError("A feature holds too large a value.", fix="Replace it by null.")
            yield batch.features
            batch = next(others, None)
