"""How the values of new data are written, where the model knows only what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from dray.data.fitting import as_time, as_type, with_point, without_fraction
from dray.data.sources.csv_separators import Separators
from dray.data.sources.types import is_number


@dataclass(frozen=True, slots=True)
class Written:
    """How the columns are written that are read as text."""

    separators: Separators = field(default_factory=Separators)
    """What is before the fraction and between the thousands of numbers."""
    floats: tuple[str, ...] = ()
    """Columns that hold floats: 7.0 is 7 there, as it is where floats are read as such."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """Of times, by column, where the user said it."""

    def as_meant(self, batch: pa.RecordBatch, numbers: Collection[str]) -> tuple[pa.RecordBatch, dict[str, int]]:
        """Return a batch as a model reads it, and how many values were lost by column. `numbers`: those of numbers."""
        lost = {}
        for index, column in enumerate(batch.schema):
            values = batch.column(index)
            if not pa.types.is_string(column.type):
                continue
            if column.name in self.forms:
                values, lost[column.name] = as_time(values, self.forms[column.name])
            elif column.name in numbers and not self.separators.plain:
                values = with_point(values, self.separators)
            if column.name in self.floats:
                values = without_fraction(values)
            batch = batch.set_column(index, column.name, values)
        return batch, lost

    def as_kept(self, name: str, values: pa.Array, type_: pa.DataType) -> tuple[pa.Array, int]:
        """Return the values of a column that is copied, and how many were lost. `type_`: that of the column."""
        if pa.types.is_string(values.type) and name in self.forms:
            return as_time(values, self.forms[name])
        if pa.types.is_string(values.type) and is_number(type_) and not self.separators.plain:
            values = with_point(values, self.separators)
        return as_type(values, type_)
