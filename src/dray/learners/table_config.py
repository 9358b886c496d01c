"""The keys of a run file that learners of tables with a label share."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from dray.config.run_file import Column, Locations, RunConfig


class TableConfig(RunConfig):
    """A training run on a table with a label."""

    label: Column
    """Column to predict."""

    group: str | None = None
    """Column that names the query of a row (ranking). Rows of one group are next to each other and are never split."""

    weight: str | None = None
    """Column with the weight of a row (of a group's first row in ranking)."""

    ignore: Locations = ()
    """Columns that are neither feature nor anything else."""

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        columns = [name for name in (self.label, self.group, self.weight) if name is not None]
        if len(set(columns)) < len(columns):
            raise ValueError("label, group and weight must be three different columns: name another")
        return self
