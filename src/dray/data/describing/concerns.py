"""Warnings about a column before training on it. Pure: profiles and values in, warnings out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.describing import leaks
from dray.data.describing import values as v
from dray.data.describing.figures import ColumnProfile, Concern, Figure
from dray.data.describing.profile import FEW_VALUES
from dray.data.features import is_text
from dray.data.times import recognise

MOSTLY = 0.95
ID_SHARE = 0.99
ID_LEAST = 100
"""At least so many values before a column is called an id: few rows may differ by chance."""
ID_CHARACTERS = 64
"""Longer text that never repeats is free text, not an id."""
MANY_VALUES = 10_000
RARE_CLASS = 0.001
NUMBERS_SHARE = 0.9
_TRIED = 1000
_NUMBER = re.compile(r"\s*[-+]?(\d[\d,]*\.?\d*|\.\d+)([eE][-+]?\d+)?\s*%?\s*")
_CODE = re.compile(r"\s*[-+]?0\d")


def concerns_about(profile: ColumnProfile, column: pa.ChunkedArray, is_label: bool = False) -> list[Concern]:
    """Return the warnings about one column by itself."""
    if profile.missing.value >= 1 or (profile.seen == 0 and profile.missing.basis != "exact"):
        where = "no value at all" if profile.missing.basis == "exact" else "no value in the sample"
        return [Concern("empty", profile.name, f"{where}: leave it out", profile.missing.value)]
    found = [*_constant(profile), *_missing(profile), *_infinite(profile)]
    if is_label:
        return [*found, *_label(profile)]
    if pt.is_nested(column.type) or not profile.seen:
        return found
    if times := _text_times(profile, column):
        return [*found, times]
    return [*found, *_identity(profile, v.plain_array(column)), *_numbers_as_text(profile, column)]


def leak_concerns(label: ColumnProfile, table: pa.Table, profiles: Sequence[ColumnProfile]) -> list[Concern]:
    """Return a warning for each column that alone nearly decides the label."""
    target = _target(label, table[label.name])
    if target is None:
        why = "the label has too few rows of a class, or one value only"
        return [Concern("leak-unchecked", label.name, f"not checked for leaks: {why} in the sample")]
    found = []
    for profile in profiles:
        if profile.name == label.name or profile.kind == "other" or not profile.seen:
            continue
        column = v.plain_array(table[profile.name])
        if profile.kind == "text":
            bins = leaks.bins_of_codes(codes_of(column), target)
        else:
            bins = leaks.bins_of_numbers(v.numbers(column), target)
        measure = leaks.how_far_decided(bins, target)
        if measure >= target.threshold:
            message = (
                f'alone predicts "{label.name}" ({target.measure} {measure:.3f}): a leak? '
                "Leave it out if its values are known only after the label"
            )
            found.append(Concern("leak", profile.name, message, measure))
    return found


def _constant(profile: ColumnProfile) -> Iterator[Concern]:
    if profile.missing.value or profile.distinct_seen != 1:
        return
    low, high = profile.low, profile.high
    if profile.kind != "text" and low is not None and high is not None and low.value != high.value:
        return  # the footers show another value
    where = "in every row" if _exactly_one(profile) else "in every row of the sample"
    value = profile.values[0].value if profile.values else (low.value if low else "")
    yield Concern("constant", profile.name, f"the same value {where}: {value!r}")


def _exactly_one(profile: ColumnProfile) -> bool:
    exact_range = profile.kind != "text" and profile.low is not None and profile.low.basis == "exact"
    return exact_range or profile.distinct == Figure(1, "exact")


def _missing(profile: ColumnProfile) -> Iterator[Concern]:
    if profile.missing.value > MOSTLY:
        yield Concern("mostly-missing", profile.name, f"{_percent(profile.missing)} missing", profile.missing.value)


def _infinite(profile: ColumnProfile) -> Iterator[Concern]:
    share = profile.infinite.value if profile.infinite else 0.0
    ends = [figure.value for figure in (profile.low, profile.high) if figure is not None]
    if share or "inf" in ends or "-inf" in ends:
        where = f"{share:.2%} of the values are" if share else "some values, by the footers, are"
        yield Concern("infinite", profile.name, f"{where} infinite: training refuses them", share or None)


def _label(profile: ColumnProfile) -> Iterator[Concern]:
    if profile.missing.value:
        message = f"the label is missing in {_percent(profile.missing)} of the rows"
        yield Concern("label-missing", profile.name, message, profile.missing.value)
    if profile.distinct_seen <= FEW_VALUES or profile.kind == "text":
        rare = [value for value in profile.values if value.share < RARE_CLASS]
        if rare:
            least = min(rare, key=lambda value: value.share)
            message = f"the class {least.value!r} has {least.share:.3%} of the rows: hardly enough to learn from"
            yield Concern("label-rare-class", profile.name, message, least.share)


def _identity(profile: ColumnProfile, column: pa.Array) -> Iterator[Concern]:
    """Nearly every value is different, or values count up."""
    share = profile.distinct_seen / profile.seen
    discrete = pt.is_integer(column.type) or _is_whole_decimal(column.type) or profile.kind == "text" or _whole(column)
    if profile.seen >= ID_LEAST and share >= ID_SHARE and discrete:
        if profile.kind == "text" and pc.mean(pc.utf8_length(column)).as_py() > ID_CHARACTERS:
            yield Concern("many-values", profile.name, "free text: nearly every value is different", share)
        else:
            counts = profile.kind != "text" and _counts_up(v.numbers(column.drop_null()))
            what = (
                "a counter: every value is greater than the one before" if counts else "nearly every value is different"
            )
            yield Concern("id", profile.name, f"looks like an id ({what}): a model would memorize rows", share)
    elif profile.kind == "text" and profile.distinct is not None and profile.distinct.value > MANY_VALUES:
        about = "" if profile.distinct.basis == "exact" else "about "
        message = f"{about}{profile.distinct.value:,} different texts: each becomes a category"
        yield Concern("many-values", profile.name, message, float(profile.distinct.value))


def _counts_up(numbers: npt.NDArray[np.float64]) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def _is_whole_decimal(arrow: pa.DataType) -> bool:
    """Whether decimals have no digits after the point: prices are no ids."""
    return bool(pt.is_decimal(arrow)) and arrow.scale <= 0


def _whole(column: pa.Array) -> bool:
    """Whether floats are whole numbers, as ids with gaps become."""
    if not pt.is_floating(column.type):
        return False
    numbers = column.drop_null().to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    return bool(len(numbers)) and bool((numbers == np.floor(numbers)).all())


def _numbers_as_text(profile: ColumnProfile, column: pa.ChunkedArray) -> Iterator[Concern]:
    values = column.type.value_type if pt.is_dictionary(column.type) else column.type
    if profile.kind != "text" or not is_text(values):  # a dictionary of numbers is a category on purpose
        return
    tried = [text for text in column.unique().drop_null().cast(pa.string())[:_TRIED].to_pylist() if text.strip()]
    odd = [text for text in tried if not _NUMBER.fullmatch(text)]
    share = 1 - len(odd) / len(tried) if tried else 0.0
    # Codes keep their zeros only as text.
    if share < NUMBERS_SHARE or any(_CODE.match(text) for text in tried):
        return
    but = f", but not {', '.join(map(repr, odd[:3]))}" if odd else ""
    count = f"{len(tried) - len(odd):,} of {len(tried):,} different values"
    yield Concern("numbers-as-text", profile.name, f"numbers kept as text ({count}{but})", share)


def _text_times(profile: ColumnProfile, column: pa.ChunkedArray) -> Concern | None:
    if not is_text(column.type):
        return None
    look = recognise(column.combine_chunks())
    if not look.form and not look.problem:
        return None
    such = f"times kept as text, such as {look.examples[0]!r}"
    if look.problem == "ambiguous":
        message = f"{such}: no value tells the day from the month: train --time-form '{profile.name}={look.suggested}'"
    elif look.problem == "mixed":
        message = f"{such} and {look.examples[1]!r}, in two forms: write them in one"
    else:
        message = f"{such}: train reads them as seconds since 1970; train --times parts makes year to hour of them"
    return Concern("text-times", profile.name, message)


def _target(label: ColumnProfile, column: pa.ChunkedArray) -> leaks.Label | None:
    array = v.plain_array(column)
    if label.kind in ("text", "boolean") or (label.kind == "number" and label.distinct_seen <= FEW_VALUES):
        return leaks.label_of_classes(codes_of(array))
    return leaks.label_of_numbers(v.numbers(array)) if label.kind != "other" else None


def codes_of(array: pa.Array) -> leaks.Codes:
    """Return a number for each value, -1 where it is missing."""
    if pt.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)
    indices = array.dictionary_encode().indices
    found: leaks.Codes = pc.fill_null(indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return found


def _percent(figure: Figure) -> str:
    about = "" if figure.basis == "exact" else "about "
    return f"{about}{figure.value:.1%}"
