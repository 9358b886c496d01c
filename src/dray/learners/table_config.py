"""The keys of a run file that learners of tables with a label share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dray.config.run_file import Column, Locations, RunConfig
from dray.errors import ConfigError


def as_forms(value: Any) -> Any:
    """Return forms of times by column, each one that can be read."""
    if not isinstance(value, Mapping):
        raise ValueError("must be columns with forms, such as {when: '%d.%m.%Y %H:%M'}")
    from dray.data.time_text import PER_SECOND, compile_form

    for form in value.values():
        try:
            if form not in PER_SECOND:
                compile_form(str(form))
        except ConfigError as error:
            raise ValueError(f"{error.what} {error.fix}") from None
    return {str(name): str(form) for name, form in value.items()}


TimeForms = Annotated[dict[str, str], BeforeValidator(as_forms)]


def _as_text(value: Any) -> Any:
    """YAML reads 2024-06-01 as a date, and 2024 as a number."""
    return value if value is None or isinstance(value, str) else str(value)


def _the_one(value: Any) -> Any:
    """As `dray.ingest` has it, a list; here of one column."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _unless_random(value: Any) -> Any:
    return None if value == "random" else value


class TableConfig(RunConfig):
    """A training run on a table with a label."""

    HOLDS_OUT: ClassVar[tuple[str, ...]] = (*RunConfig.HOLDS_OUT, "eval_from")

    label: Column
    """Column to predict."""

    group: str | None = None
    """Column that names the query of a row (ranking). Rows of one group are next to each other and are never split."""

    weight: str | None = None
    """Column with the weight of a row (of a group's first row in ranking)."""

    ignore: Locations = ()
    """Columns that are neither feature nor anything else."""

    missing_label: Literal["drop", "error"] = "drop"
    """What becomes of rows without a label: they are left out and counted, or refused."""

    times: Literal["number", "parts", "category"] = "number"
    """What becomes of columns of times. number: seconds since 1970, text too. parts: year, month, weekday, hour and
    days of each. category: text stays text."""

    time_form: TimeForms = Field(default_factory=dict)
    """How the text of a column of times is written, where its values do not tell: {when: "%d/%m/%Y"}."""

    eval_by: Annotated[str | None, BeforeValidator(_unless_random)] = None
    """Column of dates, times or numbers: the latest rows by it are evaluated on, eval_fraction of them, or those from
    eval_from on. Rows of the same time stay together; those without one are trained on. As for recommenders,
    "random" is the default: any rows, by position."""

    eval_from: Annotated[str | None, BeforeValidator(_as_text)] = None
    """With eval_by: rows from this date, time or number on are evaluated on, such as 2024-06-01."""

    split_by: Annotated[str | None, BeforeValidator(_the_one)] = None
    """With eval_fraction: rows alike in this column are all trained on or all evaluated on, whole customers say, by a
    hash of the value and split_seed."""

    @model_validator(mode="after")
    def _split_fits(self) -> Self:
        eval_by, eval_from, split_by = (self.named(key) for key in ("eval_by", "eval_from", "split_by"))
        fraction = self.named("eval_fraction")
        if self.eval_from is not None and self.eval_by is None:
            raise ValueError(f"{eval_from} needs {eval_by}: name the column with the time")
        if self.eval_by is not None and self.eval_fraction is None and self.eval_from is None:
            raise ValueError(f"{eval_by} needs to know how much: add {fraction}, 0.2 say, or {eval_from}")
        if self.split_by is not None and self.eval_by is not None:
            raise ValueError(f"{split_by} and {eval_by} exclude each other: give one of them")
        if self.split_by is not None and self.eval_fraction is None:
            raise ValueError(f"{split_by} needs {fraction}: add the share to set aside, 0.2 say")
        return self

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        columns = [name for name in (self.label, self.group, self.weight) if name is not None]
        if len(set(columns)) < len(columns):
            raise ValueError("label, group and weight must be three different columns: name another")
        return self
