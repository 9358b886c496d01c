"""What becomes of columns of times in learners of tables: decided once, in the driver, and kept in the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote

import pyarrow as pa
import pyarrow.types as pt

from dray.data.features import Column, is_text
from dray.data.parquet import Dataset
from dray.data.sources.time_forms import forms_in
from dray.data.time_columns import look_at_texts, sampled
from dray.data.time_text import PER_SECOND, compile_form
from dray.data.times import PARTS, Look, Part, has_text, times_of
from dray.errors import ConfigError, DataError, nearest
from dray.events.kinds import Warned
from dray.learners.table_config import TableConfig


def looks_at(features: Sequence[Column], train: Dataset, config: TableConfig) -> dict[str, Look]:
    """Return how the columns are written that hold times: as asked, else as a sample shows."""
    for name in config.time_form:
        if name not in [column.name for column in features]:
            fix = f"Name a feature: {', '.join(column.name for column in features[:12])}."
            like = nearest(name, [column.name for column in features])
            raise ConfigError(f'time_form (--time-form) has "{name}", which is not a feature.{like}', fix=fix)
    found = {name: _asked(name, form, train) for name, form in config.time_form.items()}
    texts = [c.name for c in features if c.kind == "category" and is_text(train.schema.field(c.name).type)]
    if config.times != "category":
        found |= look_at_texts(train, [name for name in texts if name not in found])
    return found


def with_times(
    features: Sequence[Column], schema: pa.Schema, looks: Mapping[str, Look], config: TableConfig
) -> tuple[tuple[Column, ...], list[Warned]]:
    """Return the features with what is made of times, and what to tell of it. Pure."""
    made: list[Column] = []
    told: list[Warned] = []
    for column in features:
        look = looks.get(column.name)
        if look is not None and not look.form:
            told.append(_undecided(column.name, look))
        if look is not None and look.form and config.times != "parts":
            made.append(Column(column.name, "timestamp", form=look.form))
            if column.name not in config.time_form:
                told.append(_as_number(column.name, look))
        elif config.times == "parts" and (column.kind in ("date", "timestamp") or (look is not None and look.form)):
            made += _parts(column, look, schema)
        else:
            made.append(column)
    if config.times == "number" and "times" not in config.model_fields_set:
        told += _as_numbers(
            [column.name for column in made if column.kind in ("date", "timestamp") and not column.form]
        )
    return tuple(_kept_readable(made, config)), told


def _parts(column: Column, look: Look | None, schema: pa.Schema) -> list[Column]:
    form = "" if look is None else look.form
    timed = not pt.is_date(schema.field(column.name).type) if look is None else look.timed
    parts: list[Part] = [part for part in PARTS if part != "hour" or timed]
    made = [Column(f"{column.name}_{part}", "number", of=column.name, part=part, form=form) for part in parts]
    for one in made:
        if one.name in schema.names:
            raise DataError(
                f'--times parts makes "{one.name}" of "{column.name}", but the data has such a column.',
                fix="Rename that column, or leave --times parts out; "
                f"--ignore {quote(column.name)} leaves the times out.",
            )
    return made


def _kept_readable(columns: Sequence[Column], config: TableConfig) -> list[Column]:
    """Give columns whose times the reader made of text the form of it: new data may come as text."""
    types = config.read.get("types")
    forms = forms_in(types) if isinstance(types, Mapping) else {}

    def kept(column: Column) -> Column:
        unread = not column.form and (column.part is not None or column.kind == "timestamp")
        return replace(column, form=forms[column.stored]) if unread and column.stored in forms else column

    return list(map(kept, columns))


def _asked(name: str, form: str, train: Dataset) -> Look:
    if form not in PER_SECOND:
        compile_form(form)
    values = sampled(train, name).values.combine_chunks()
    times = times_of(values, form)
    there = has_text(values)
    if there.any() and not times.valid.any():
        value = values.filter(pa.array(there))[0].as_py()
        raise DataError(
            f'Column "{name}" holds no time of the form {form}, but values such as "{value}".',
            fix=f"Give the form that it has: --time-form '{name}=%Y-%m-%d %H:%M:%S', say.",
        )
    return Look(form, timed=bool((times.valid & (times.seconds % 86_400 != 0)).any()))


def _as_number(name: str, look: Look) -> Warned:
    return Warned(
        f'Column "{name}" holds times as text, such as "{look.examples[0]}": they are read as seconds since 1970, '
        "in order.",
        "--times parts makes year, month, weekday, hour and days of them; --times category keeps them as texts.",
    )


def _as_numbers(names: Sequence[str]) -> Iterator[Warned]:
    if names:
        columns = ("Column " if len(names) == 1 else "Columns ") + ", ".join(f'"{name}"' for name in names)
        yield Warned(
            f"{columns}: times are read as numbers that count from 1970. What depends on the hour, weekday or month is "
            "hard to find in them.",
            "--times parts makes year, month, weekday, hour and days of them; --times number ends this message.",
        )


def _undecided(name: str, look: Look) -> Warned:
    first = look.examples[0]
    if look.problem == "mixed":
        return Warned(
            f'Column "{name}" holds times in two forms, such as "{first}" and "{look.examples[1]}": it is used as a '
            "category.",
            f"Write them in one form; --time-form '{name}={look.suggested}' reads the first, the others are missing.",
        )
    return Warned(
        f'Column "{name}" holds times such as "{first}", and no value tells the day from the month: it is used as a '
        "category.",
        f"Say which comes first: --time-form '{name}={look.suggested}', or "
        f"{replace(look, others=look.others[::-1]).suggested}.",
    )
