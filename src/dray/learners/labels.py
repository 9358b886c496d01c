"""What the labels look like, the objective that fits them, and the labels that do not fit an objective. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from dray.data.features import TEXT, Column
from dray.data.whole_numbers import EXACT
from dray.errors import ConfigError, DataError
from dray.learners.classes import MOST_CLASSES, value_of

SHORT_NAMES = {
    "binary": "binary:logistic",
    "multiclass": "multi:softprob",
    "regression": "reg:squarederror",
    "ranking": "rank:ndcg",
}


@dataclass(frozen=True, slots=True)
class LabelSummary:
    """Labels of some rows in a few numbers; two summaries add up."""

    rows: int
    missing: int
    minimum: float
    maximum: float
    whole: bool
    """Every label is a whole number."""
    infinite: int = 0
    """Of those that are missing: there is a value, which is infinite."""
    classes: Counter[int] = field(default_factory=Counter)
    """Rows of each class, where all that are present can be classes: 0, 1, 2, ..."""

    @staticmethod
    def of(labels: npt.NDArray[np.float32]) -> LabelSummary:
        present = labels[np.isfinite(labels)]
        missing, infinite = len(labels) - len(present), int(np.isinf(labels).sum())
        if not len(present):
            return LabelSummary(len(labels), missing, np.inf, -np.inf, True, infinite)
        whole = bool((present == np.rint(present)).all())
        least, most = float(present.min()), float(present.max())
        classes = _rows_of_each(present, int(most) + 1) if _can_be_classes(whole, least, most) else Counter()
        return LabelSummary(len(labels), missing, least, most, whole, infinite, classes)

    @staticmethod
    def merge(parts: Iterable[LabelSummary]) -> LabelSummary:
        parts = list(parts)
        least, most = min(part.minimum for part in parts), max(part.maximum for part in parts)
        whole = all(part.whole for part in parts)
        usable = parts if _can_be_classes(whole, least, most) else ()
        return LabelSummary(
            rows=sum(part.rows for part in parts),
            missing=sum(part.missing for part in parts),
            minimum=least,
            maximum=most,
            whole=whole,
            infinite=sum(part.infinite for part in parts),
            classes=sum((part.classes for part in usable), Counter[int]()),
        )


def _can_be_classes(whole: bool, least: float, most: float) -> bool:
    return whole and least >= 0 and most < MOST_CLASSES


def _rows_of_each(codes: npt.NDArray[np.float32], classes: int) -> Counter[int]:
    counts = np.zeros(classes, np.int64)
    for at in range(0, len(codes), 1_000_000):  # to count takes 8 bytes a label
        counts += np.bincount(codes[at : at + 1_000_000].astype(np.int64), minlength=classes)
    return Counter({int(code): int(counts[code]) for code in np.flatnonzero(counts)})


@dataclass(frozen=True, slots=True)
class LabelSample:
    """Labels of rows picked by position: the same for any assignment of rows to workers."""

    positions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32] | None

    @staticmethod
    def merge(parts: Iterable[LabelSample]) -> LabelSample:
        """Return all labels in the order of the data set."""
        parts = list(parts)
        positions = np.concatenate([part.positions for part in parts])
        order = np.argsort(positions)
        weights = [part.weights for part in parts if part.weights is not None]
        return LabelSample(
            positions[order],
            np.concatenate([part.labels for part in parts])[order],
            np.concatenate(weights)[order] if weights else None,
        )


def full_name(objective: str) -> str:
    return SHORT_NAMES.get(objective, objective)


def choose_objective(label: Column, summary: LabelSummary, *, ranking: bool) -> tuple[str, str]:
    """Return the objective that fits the labels when the user gave none, and why."""
    if ranking:
        return SHORT_NAMES["ranking"], "a group column is given"
    if label.kind == "category" and len(label.categories) > 2:
        return SHORT_NAMES["multiclass"], f"the label has {len(label.categories)} classes"
    zero_or_one = summary.whole and (summary.minimum, summary.maximum) == (0, 1)
    if label.kind in ("category", "boolean") or zero_or_one:
        return SHORT_NAMES["binary"], "the label has two values"
    few = summary.whole and summary.maximum - summary.minimum < 100
    if not few:
        return SHORT_NAMES["regression"], "the label is a number"
    span = f"whole numbers from {summary.minimum:g} to {summary.maximum:g}"
    return SHORT_NAMES["regression"], f"the label holds {span}, in order; for classes use --objective multiclass"


def has_exponential_gain(params: Mapping[str, Any]) -> bool:
    """Say whether NDCG gains 2^relevance - 1, as by default, rather than the relevance itself."""
    return str(params.get("ndcg_exp_gain", True)).lower() in ("true", "1")


def check_labels(
    label: Column,
    summary: LabelSummary,
    objective: str,
    *,
    ranking: bool,
    params: Mapping[str, Any] = MappingProxyType({}),
    may_be_constant: bool = False,
) -> None:
    """Raise unless these labels fit the objective; evaluation labels may all be the same."""
    name = label.name
    if ranking != objective.startswith("rank:"):
        if ranking:
            raise ConfigError(
                f"A group column is for ranking, but the objective is {objective}.",
                fix="Use --objective ranking, or leave --group out (and --ignore the column).",
            )
        raise ConfigError(f"The objective {objective} needs groups.", fix="Name the group column with --group COLUMN.")
    if objective.startswith("survival:"):
        raise ConfigError(f"The objective {objective} is not supported yet.", fix="Use another objective.")
    if summary.infinite:
        raise DataError(
            f'{summary.infinite:,} of {summary.rows:,} rows have an infinite value in the label "{name}", or one too '
            "large for 32 bits.",
            fix="Correct those rows, or leave them out: dray data ingest ... --filter.",
        )
    if summary.missing:
        raise DataError(
            f'{summary.missing:,} of {summary.rows:,} rows have no value in the label "{name}".',
            fix="Leave them out with --missing-label drop, or fill in the label.",
        )
    if summary.minimum == summary.maximum and not may_be_constant:
        if label.kind == "number" and abs(summary.minimum) > EXACT:
            raise DataError(
                f'The label "{name}" is {summary.minimum:g} in every row as float32, to which trees round it: there is '
                "nothing to learn.",
                fix="Subtract a number from it that most of it has, or check --label.",
            )
        value = label.categories[int(summary.minimum)] if label.kind == "category" else f"{summary.minimum:g}"
        raise DataError(
            f'The label "{name}" is {value} in every row: there is nothing to learn.',
            fix="Check --label, and that the data holds every outcome.",
        )
    if problem := _misfit(label, summary, objective, params):
        what, fix = problem
        raise DataError(f'The label "{name}" does not fit {objective}: {what}.', fix=fix)


def _misfit(label: Column, summary: LabelSummary, objective: str, params: Mapping[str, Any]) -> tuple[str, str] | None:
    span = f"it runs from {summary.minimum:g} to {summary.maximum:g}"
    if objective.startswith(("binary:", "reg:logistic")):
        if label.kind == "category" and len(label.categories) > 2:
            return f"it has {len(label.categories)} classes", "Use --objective multiclass."
        if summary.minimum < 0 or summary.maximum > 1:
            return f"{span}, not from 0 to 1", "Use --objective multiclass or regression, or map the label to 0 and 1."
        return None
    if objective.startswith("multi:"):
        if summary.maximum >= MOST_CLASSES:
            return f"{span}, and more than {MOST_CLASSES:,} classes are too many", "Use --objective regression."
        if not summary.whole or summary.minimum < 0:
            return f"{span} and classes are 0, 1, 2, ...", "Number the classes from 0, or write them as strings."
        return None
    if label.kind == "category":
        if label.values != TEXT:  # the values of a session's label were made classes by its own objective
            return f"its values are classes: {', '.join(label.categories[:8])}", "Open another session for it."
        return "it is text", "Use --objective binary or multiclass, or give a numeric label."
    if objective.startswith("rank:") and summary.minimum < 0:
        return f"{span}, and relevance is never negative", "Shift the label so that 0 means irrelevant."
    if objective == "rank:map" and not (summary.whole and summary.maximum <= 1):
        return f"{span}, and relevance is 0 or 1 there", "Use --objective ranking, which takes degrees of relevance."
    if objective == "rank:ndcg" and has_exponential_gain(params) and not (summary.whole and summary.maximum <= 31):
        return (
            f"{span}, and relevance is a whole number up to 31 there, because its gain is exponential",
            "Give --param ndcg_exp_gain=false, or use --objective rank:pairwise.",
        )
    if objective in ("count:poisson", "reg:tweedie") and summary.minimum < 0:
        return f"{span}, and must not be negative", "Use --objective regression, or drop those rows."
    if objective == "reg:gamma" and summary.minimum <= 0:
        return f"{span}, and must be positive", "Use --objective regression, or drop those rows."
    if objective == "reg:squaredlogerror" and summary.minimum <= -1:
        return f"{span}, and must be greater than -1", "Use --objective regression."
    return None


def classes_in(label: Column, summary: LabelSummary, objective: str, known: int = 0) -> int:
    """Return the number of classes of a multi-class task, 0 for others. A continued run keeps the `known` number."""
    if not objective.startswith("multi:"):
        return 0
    classes = len(label.categories) if label.kind == "category" else int(summary.maximum) + 1
    if known and classes > known:
        raise DataError(
            f'The label "{label.name}" has a class that the earlier run did not know: {classes - 1}; it knows 0 to '
            f"{known - 1}.",
            fix="Train a new model instead of continuing, or drop those rows.",
        )
    return known or classes


def check_class_count(label: Column, count: int) -> None:
    """Raise where a model would have more classes than the label has names for."""
    named = {"category": len(label.categories), "boolean": 2}.get(label.kind, count)
    if count > named:
        raise ConfigError(f"num_class is {count}, but the label has {named} classes.", fix="Leave num_class out.")


def check_eval_classes(label: Column, summary: LabelSummary, classes: int) -> None:
    """Raise for a class of the evaluation set that the training rows do not have."""
    if classes and summary.maximum >= classes:
        raise DataError(
            f'The label "{label.name}" of the evaluation set has the class {summary.maximum:g}, and the training '
            f"rows have 0 to {classes - 1}.",
            fix="Evaluate on classes of the training rows, or give the number of classes: --param num_class=N.",
        )


def only_evaluated(label: Column, training: LabelSummary, evaluation: LabelSummary) -> str:
    """Return what is said of classes that only evaluation rows have; nothing where there are none."""
    found = {code: count for code, count in evaluation.classes.items() if code not in training.classes}
    if not found:
        return ""
    codes = sorted(found, key=lambda code: (-found[code], code))
    named = [json.dumps(value_of(label, label.categories[c])) if label.kind == "category" else str(c) for c in codes]
    each = ", ".join(f"{name} ({found[code]:,} rows)" for name, code in zip(named[:5], codes, strict=False))
    return (
        f'{sum(found.values()):,} of {evaluation.rows:,} evaluation rows have a label "{label.name}" that no training '
        f"row has: {each}{', and others' if len(codes) > 5 else ''}."
    )


def check_weights_add_up(sample: LabelSample, column: str | None) -> None:
    """Raise when all weights are 0: XGBoost divides by their sum."""
    if sample.weights is not None and len(sample.weights) and not sample.weights.any():
        raise DataError(
            f'The weight "{column}" is 0 in every row: there is nothing to learn.',
            fix="Check --weight, or leave it out.",
        )
