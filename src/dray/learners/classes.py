"""Which values of a label are classes, in which order, and which of two is the positive one. Pure.

The classes of a label have codes: 0, 1, 2, ... Numbers that are these codes already stay numbers; any others become a
category with the names of the values, as text does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from dray.data.features import Column
from dray.errors import DataError

MOST_CLASSES = 10_000
_PAIRS = (
    *(("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("neg", "pos"), ("negative", "positive")),
    *(("-", "+"), ("off", "on"), ("absent", "present"), ("control", "case"), ("failure", "success")),
)
"""Two classes of which people mean the second one when they speak of a probability."""
_COMMA = re.compile(r"\s*[-+]?\d{1,3}(\.?\d{3})*,\d+\s*")
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_FEW = 20
"""So many classes are never too many for their rows."""


def in_order(values: Collection[str]) -> tuple[str, ...]:
    """Return classes in the order of their codes: as numbers where all are, else as text; of two, the positive last."""
    numbers = all(_NUMBER.fullmatch(value) for value in values)
    ordered = tuple(sorted(values, key=lambda value: (float(value) if numbers else 0.0, value)))
    words = tuple(value.strip(" \t'\"").casefold() for value in ordered)
    return ordered[::-1] if words[::-1] in _PAIRS else ordered


def as_classes(label: Column, values: Collection[str], arrow: str, *, codes: int | None) -> Column:
    """Return the label as a category of these values of a type; as it is, if they are the codes 0, 1, 2, ... already.

    `codes` is the number of classes that the user gave, of which some may have no row.
    """
    if _are_codes(values, codes or len(values)):
        return label
    return Column(label.name, "category", in_order(values), arrow)


def _are_codes(values: Collection[str], count: int) -> bool:
    return set(values) <= {str(code) for code in range(count)}


def with_classes(label: Column, values: Collection[str]) -> Column:
    """Return a label of text with its classes."""
    return replace(label, categories=in_order(values))


def are_whole(values: Collection[str]) -> bool:
    return all(re.fullmatch(r"-?\d+", value) for value in values)


def positive_class(label: Column, objective: str) -> str | int | float | bool | None:
    """Return the class whose probability a binary model predicts, as the label's own value; None of other models."""
    if not objective.startswith("binary:"):
        return None
    if label.kind == "boolean":
        return True
    return value_of(label, label.categories[-1]) if label.kind == "category" else 1


def value_of(label: Column, category: str) -> str | int | float:
    """Return a class as the label's own value."""
    if label.values.startswith(("int", "uint")):
        return int(category)
    return float(category) if label.values in ("float", "double", "halffloat") else category


def type_of(label: Column) -> pa.DataType:
    """Return the type of a label's own values; text for what is neither whole numbers nor floats."""
    return pa.string() if isinstance(value_of(label, "0"), str) else pa.type_for_alias(label.values)


def check_few(label: Column, counts: Mapping[str, int], *, more: bool, asked: bool) -> None:
    """Refuse text that is not classes: almost as many values as rows, more than there can be, or numbers as text.

    Classes that were `asked` for may have few rows each.
    """
    rows, different = sum(counts.values()), len(counts)
    example = min(counts, default="")
    what = f'The label "{label.name}" is text with '
    if different > 2 and all(_COMMA.fullmatch(value) or _NUMBER.fullmatch(value) for value in counts):
        comma = next((value for value in sorted(counts) if _COMMA.fullmatch(value)), None)
        if comma is not None:
            raise DataError(
                f'The label "{label.name}" is text that looks like numbers with a decimal comma, such as "{comma}".',
                fix='Have it read as numbers: --read "decimal=," (CSV), or write it as a number.',
            )
    if more:
        what += f'more than {MOST_CLASSES:,} different values, such as "{example}": too many for classes.'
    elif different > _FEW and 2 * different > rows and not asked:
        what += f'{different:,} different values in {rows:,} rows, such as "{example}": free text or an id, no classes.'
    else:
        return
    raise DataError(what, fix="Name a column with few different values with --label, or write it as a number.")


def check_known(label: Column, counts: Mapping[str, int], *, of: str, fix: str) -> None:
    """Refuse labels that are none of the classes of training; `of` says which rows they are."""
    unknown = {value: count for value, count in counts.items() if value not in label.categories}
    if not unknown:
        return
    first, *others = sorted(unknown, key=lambda value: (-unknown[value], value))
    known = ", ".join(f'"{value}"' for value in label.categories[:8]) + (", ..." if len(label.categories) > 8 else "")
    more = "".join(f'; nor is "{value}" ({unknown[value]:,} rows)' for value in others[:4])
    raise DataError(
        f'{sum(unknown.values()):,} {of} have a label "{label.name}" that training does not know: "{first}" is not one '
        f"of {known} ({unknown[first]:,} rows){more}{', and others' if len(others) > 4 else ''}.",
        fix=fix,
    )
