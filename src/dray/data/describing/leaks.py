"""Whether one column alone nearly predicts the label: it is then probably known only after the label.

Pure: arrays in, numbers out. Rows are divided into two random halves. One gives the label's rate for each bin of the
column; the other measures how well these rates order the labels. The values of an id do not repeat in the second half,
so it predicts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LEAK_AUC = 0.98
LEAK_SHARE = 0.98
MOST_BINS = 256
LEAST_IN_BIN = 5
"""Rows that a value must have in the first half to be a bin of its own."""
LEAST_IN_CLASS = 20
"""Rows that a class must have in each half: with fewer, chance alone looks like a leak."""


@dataclass(frozen=True, slots=True)
class Label:
    """What is to be predicted: 0/1 for each class that is frequent enough, or ranks; rows without a label left out."""

    rows: Codes
    """Which rows of the sample have a label."""
    first: Mask
    """Which of these are in the half for the rates."""
    targets: tuple[Numbers, ...]
    classes: bool

    @property
    def measure(self) -> str:
        return "AUC" if self.classes else "share of the variance of its ranks"

    @property
    def threshold(self) -> float:
        return LEAK_AUC if self.classes else LEAK_SHARE


def label_of_classes(codes: Codes) -> Label | None:
    """Return the label of a classification, from a code for each row (-1: missing); None if it cannot be judged."""
    rows, first = _halves(codes >= 0)
    found = codes[rows]
    targets = []
    for code in np.unique(found):
        target = found == code
        by_half = [target[first], target[~first]]
        if all(min(half.sum(), (~half).sum()) >= LEAST_IN_CLASS for half in by_half):
            targets.append(target.astype(np.float64))
    # Of two classes, one is enough.
    targets = targets[:1] if len(targets) == 2 and len(np.unique(found)) == 2 else targets
    return Label(rows, first, tuple(targets), classes=True) if targets else None


def label_of_numbers(values: Numbers) -> Label | None:
    """Return the label of a regression. Ranks in place of values: a few huge ones do not decide."""
    rows, first = _halves(np.isfinite(values))
    if min(first.sum(), (~first).sum()) < 4 * LEAST_IN_CLASS:
        return None
    _, ranks, counts = np.unique(values[rows], return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - (counts - 1) / 2)[ranks] / len(rows)
    return Label(rows, first, (middle,), classes=False) if len(counts) > 1 else None


def bins_of_numbers(values: Numbers, label: Label) -> Codes:
    """Return the bin of each labelled row: quantiles, or the values themselves where they are few; missing is one."""
    values = values[label.rows]
    known = values[label.first & ~np.isnan(values)]
    if not len(known):
        return np.where(np.isnan(values), 0, 1).astype(np.int64)
    known = np.sort(known)
    edges = known[np.append(True, known[1:] > known[:-1])]
    if len(edges) > MOST_BINS:
        count = int(np.clip(len(known) // 50, 8, MOST_BINS))
        edges = np.unique(known[np.arange(1, count) * len(known) // count])
    return np.where(np.isnan(values), 0, 1 + np.searchsorted(edges, values, side="right")).astype(np.int64)


def bins_of_codes(codes: Codes, label: Label) -> Codes:
    """Return the bin of each labelled row: its value, if the first half has it often enough; missing (-1) is one."""
    codes = codes[label.rows] + 1
    often = np.bincount(codes[label.first], minlength=int(codes.max(initial=0)) + 1) >= LEAST_IN_BIN
    return np.where(often[codes], codes + 1, np.where(codes == 0, 0, 1))


def how_far_decided(bins: Codes, label: Label) -> float:
    """Return how well the bins' rates predict the other half: AUC (mean over classes) or explained variance."""
    first, second = bins[label.first], bins[~label.first]
    size = int(bins.max(initial=0)) + 1
    results = []
    weights = []
    for target in label.targets:
        told, asked = target[label.first], target[~label.first]
        mean = told.mean()
        rows = np.bincount(first, minlength=size)
        rates = (np.bincount(first, weights=told, minlength=size) + mean) / (rows + 1)
        guess = rates[second]
        results.append(_auc(guess, asked > 0) if label.classes else _explained(guess, asked))
        weights.append(target.mean() if label.classes else 1.0)
    return float(np.average(results, weights=weights))


def _halves(usable: Mask) -> tuple[Codes, Mask]:
    rows = np.flatnonzero(usable)
    return rows, np.random.default_rng(0).random(len(rows)) < 0.5


def _auc(scores: Numbers, positive: Mask) -> float:
    _, place = np.unique(scores, return_inverse=True)
    wins = np.bincount(place, weights=positive)
    losses = np.bincount(place, weights=~positive)
    below = np.cumsum(losses) - losses
    return float((wins * (below + losses / 2)).sum() / (wins.sum() * losses.sum()))


def _explained(guess: Numbers, asked: Numbers) -> float:
    total = ((asked - asked.mean()) ** 2).sum()
    return float(max(0.0, 1 - ((asked - guess) ** 2).sum() / total)) if total else 0.0
