"""The rows of a synthetic data set: hidden factors, columns that show them with noise, a label that depends on them.

A `TableSpec` (which column shows which factor, how clearly, in which shape) comes from the seed and the shape of the
table alone; `rows` then makes any row group of the table from its own random stream. So a row group is the same in any
process, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

LABEL = "label"

Floats = npt.NDArray[np.float32]

ATTAINABLE = 0.848
"""The AUC of the best possible prediction from the columns. Missing values and a model's own error lower it: a tuned
model reaches 0.80 (thousands of rows) to 0.85 (millions of rows)."""

CLARITY = 4.0  # signal-to-noise ratio of all the columns that show one factor, taken together
FADING = 1.5  # the r-th best of these columns has r ** -FADING of that clarity: few are strong, many are weak

_FACTORS = 6
_NUISANCES = 2  # factors that columns share and the label ignores
_INFORMATIVE = 0.6  # of the columns; the others are noise, half of them correlated noise
_BINS = 256
_SPREAD = 4.0  # values beyond so many standard deviations fall into the outermost level
_NAMES = (
    *("alder", "ash", "aspen", "beech", "birch", "cedar", "cherry", "chestnut", "elder", "elm", "fir", "hazel"),
    *("holly", "juniper", "larch", "lime", "maple", "oak", "pine", "poplar", "rowan", "spruce", "willow", "yew"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """One feature: a standard normal value seen through a monotone shape, or cut into levels."""

    name: str
    factor: int
    """The factor it shows; -1 for none."""
    weight: float
    """Its correlation with that factor."""
    missing: float
    """Share of its values that are missing."""
    shape: str
    """"plain", "amount" (log-normal) or "count" (whole numbers) for numbers; "level" for categories."""
    scale: float = 1.0
    shift: float = 0.0
    levels: tuple[str, ...] = ()
    level_of_bin: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What all row groups of one data set share."""

    seed: int
    columns: tuple[Column, ...]
    factors: int
    minority: float
    linear: tuple[float, ...]
    product: float
    curve: float
    signal: float = 0.0
    """How much a score of one changes the log-odds of the label."""

    def score(self, hidden: Floats) -> Floats:
        """What the label follows: a sum, a product and a curve of the hidden factors, of variance one."""
        total: Floats = np.zeros(hidden.shape[1:], np.float32)
        for coefficient, factor in zip(self.linear, hidden, strict=False):
            total += np.float32(coefficient) * factor
        if self.product:
            total += np.float32(self.product) * hidden[0] * hidden[1]
        if self.curve:
            total += np.float32(self.curve / math.sqrt(2)) * (hidden[2] ** 2 - 1)
        return total

    @property
    def schema(self) -> Any:
        fields = [
            pa.field(c.name, pa.dictionary(pa.int8(), pa.string()) if c.levels else pa.float32()) for c in self.columns
        ]
        return pa.schema([pa.field(LABEL, pa.int8(), nullable=False), *fields])


def table_spec(features: int, *, seed: int, categorical: float, missing: float, minority: float) -> TableSpec:
    """Draw what the columns of the data set show, and how the label follows from the hidden factors."""
    rng = _stream(seed, 0)
    informative = max(1, round(_INFORMATIVE * features))
    factors = min(_FACTORS, informative)
    shown = [_informative(i, informative, factors) for i in range(informative)]
    shown += [_uninformative(i, factors) for i in range(features - informative)]
    # Evenly spread rates have exactly the mean that was asked for, however few the columns.
    spread = [(2 * i + 1) / features for i in range(features)]
    rates = [missing * u if missing <= 0.5 else 1 - (1 - missing) * u for u in spread]
    show_order, rate_order = rng.permutation(features), rng.permutation(features)
    numbers = features - round(categorical * features)
    digits = len(str(features))
    columns = []
    for i in range(features):
        (factor, weight), rate = shown[show_order[i]], rates[rate_order[i]]
        if i < numbers:
            columns.append(_number(rng, f"num_{i + 1:0{digits}}", factor, weight, rate))
        else:
            columns.append(_category(rng, f"cat_{i - numbers + 1:0{digits}}", factor, weight, rate))
    linear = np.array([0.8**k for k in range(factors)]) * rng.choice([-1.0, 1.0], factors)
    # Along the linear part, not against it: both must push the same rows into the minority class.
    product = 0.35 * float(np.sign(linear[0] * linear[1])) if factors > 1 else 0.0
    curve = 0.3 if factors > 2 else 0.0
    # The terms are uncorrelated, each of variance one before its coefficient: the score gets variance one.
    linear *= math.sqrt(1 - product**2 - curve**2) / math.sqrt(float(linear @ linear))
    spec = TableSpec(seed, tuple(columns), factors, minority, tuple(map(float, linear)), product, curve)
    return replace(spec, signal=_signal(spec))


def rows(spec: TableSpec, file: int, group: int, start: int, count: int) -> Any:
    """Make one row group: rows `start` to `start + count` of the data set, as a table."""
    rng = _stream(spec.seed, 1, file, group)
    hidden = rng.standard_normal((spec.factors + _NUISANCES, count), dtype=np.float32)
    arrays = [_label(rng, spec, hidden, start)]
    arrays += [_array(rng, column, hidden) for column in spec.columns]
    return pa.Table.from_arrays(arrays, schema=spec.schema)


def minority_rows(share: float, start: int, count: int) -> int:
    """How many of these rows are of the minority class: over the whole data set the share is exact."""
    return math.floor(share * (start + count) + 0.5) - math.floor(share * start + 0.5)


def _stream(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))


def _signal(spec: TableSpec) -> float:
    """Find the signal at which the best guess from the columns reaches ATTAINABLE, whatever the minority share."""
    rng = _stream(spec.seed, 2)
    hidden = rng.standard_normal((spec.factors, 20_000), dtype=np.float32)
    known = CLARITY / (1 + CLARITY)
    noise = rng.standard_normal(hidden.shape, dtype=np.float32)
    guessed = np.float32(known) * hidden + np.float32(math.sqrt(known * (1 - known))) * noise
    score = spec.score(hidden)[np.argsort(spec.score(guessed))].astype(np.float64)
    signal = _bisect(lambda signal: _auc(signal * score, spec.minority) - ATTAINABLE, 0.1, 10.0)
    return round(signal, 3)


def _auc(odds: npt.NDArray[np.float64], minority: float) -> float:
    """The expected AUC of rows in this order, when each has label 1 with these log-odds up to a constant."""

    def likely(shift: float) -> npt.NDArray[np.float64]:
        chance: npt.NDArray[np.float64] = 1 / (1 + np.exp(-odds - shift))
        return chance

    ones = likely(_bisect(lambda shift: float(likely(shift).mean()) - minority, -40.0, 40.0))
    zeros = 1 - ones
    return float(ones @ (np.cumsum(zeros) - zeros / 2) / (ones.sum() * zeros.sum()))


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _informative(i: int, informative: int, factors: int) -> tuple[int, float]:
    factor, rank = i % factors, i // factors + 1
    ranks = len(range(factor, informative, factors))
    # The clarities of a factor's columns add up to the same sum however many there are, so the label is as
    # predictable from 20 columns as from 500.
    clarity = CLARITY * rank**-FADING / sum(r**-FADING for r in range(1, ranks + 1))
    return factor, math.sqrt(clarity / (1 + clarity))


def _uninformative(i: int, factors: int) -> tuple[int, float]:
    return (factors + i // 2 % _NUISANCES, 0.7) if i % 2 else (-1, 0.0)


def _number(rng: np.random.Generator, name: str, factor: int, weight: float, missing: float) -> Column:
    shape = str(rng.choice(["plain", "amount", "count"], p=[0.5, 0.3, 0.2]))
    if shape == "plain":
        scale, shift = 10.0 ** rng.uniform(-2, 3), rng.uniform(-2, 5)
        return Column(name, factor, weight, missing, shape, float(scale), float(scale * shift))
    scale, shift = rng.uniform(0.4, 1.2), rng.uniform(3, 6)
    return Column(name, factor, weight, missing, shape, float(scale), float(shift))


def _category(rng: np.random.Generator, name: str, factor: int, weight: float, missing: float) -> Column:
    count = int(rng.integers(8, len(_NAMES), endpoint=True))
    frequency = rng.permutation(1 / np.arange(1, count + 1) ** 0.8)
    upper = np.cumsum(frequency / frequency.sum())[:-1]
    normal = NormalDist()
    middles = [((b + 0.5) / _BINS * 2 - 1) * _SPREAD for b in range(_BINS)]
    level_of_bin = np.searchsorted(upper, [normal.cdf(x) for x in middles])
    # Names in random order: what a level means cannot be read off its place in the alphabet.
    levels = tuple(_NAMES[i] for i in rng.permutation(len(_NAMES))[:count])
    return Column(
        name, factor, weight, missing, "level", levels=levels, level_of_bin=tuple(int(v) for v in level_of_bin)
    )


def _label(rng: np.random.Generator, spec: TableSpec, hidden: Floats, start: int) -> Any:
    score = spec.score(hidden)
    # A threshold on score + logistic noise is a draw from the logistic model; setting it by rank instead of by a
    # fitted intercept makes the share of the minority class exact.
    odds = spec.signal * score + rng.logistic(size=len(score))
    label = np.zeros(len(score), np.int8)
    wanted = minority_rows(spec.minority, start, len(score))
    if wanted:
        label[np.argpartition(-odds, wanted - 1)[:wanted]] = 1
    return pa.array(label)


def _array(rng: np.random.Generator, column: Column, hidden: Floats) -> Any:
    value: Floats = rng.standard_normal((hidden.shape[1],), dtype=np.float32)
    if column.factor >= 0:
        value *= np.float32(math.sqrt(1 - column.weight**2))
        value += np.float32(column.weight) * hidden[column.factor]
    validity = _validity(rng, len(value), column.missing)
    if column.levels:
        bins = np.clip((value + np.float32(_SPREAD)) * np.float32(_BINS / 2 / _SPREAD), 0, _BINS - 1).astype(np.uint8)
        codes = np.array(column.level_of_bin, np.int8)[bins]
        indices = pa.Array.from_buffers(pa.int8(), len(codes), [validity, pa.py_buffer(codes)])
        return pa.DictionaryArray.from_arrays(indices, pa.array(column.levels))
    value *= np.float32(column.scale)
    value += np.float32(column.shift)
    if column.shape != "plain":
        np.exp(value, out=value)
    if column.shape == "count":
        np.floor(value, out=value)
    return pa.Array.from_buffers(pa.float32(), len(value), [validity, pa.py_buffer(value)])


def _validity(rng: np.random.Generator, count: int, missing: float) -> Any:
    """Arrow's bitmap of the values that are there; None when all are."""
    threshold = round(missing * 65536)
    if not threshold:
        return None
    there = rng.integers(0, 65536, count, dtype=np.uint16) >= threshold
    return pa.py_buffer(np.packbits(there, bitorder="little"))
