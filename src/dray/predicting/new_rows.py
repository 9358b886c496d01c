"""The rows to predict for: opened as the model knows its columns, and which processes can read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from dray.batch.engine import Emit
from dray.batch.input_files import InputFile
from dray.batch.written import Written
from dray.clusters.connect import connect, joins
from dray.data.features import is_text
from dray.data.parquet import Dataset, open_dataset
from dray.data.source import Source
from dray.data.sources.csv_format import CsvFormat
from dray.data.sources.csv_separators import Separators
from dray.data.sources.types import flag_of_type, is_number
from dray.events.kinds import Warned
from dray.ingesting.cache import Reading
from dray.ingesting.new_data import TEXT_FORMATS, as_trained, locations, opened_as_text, trained_on
from dray.ingesting.noticed import tell
from dray.learners.predictor import Predictor
from dray.predicting.outputs import local_files
from dray.storage import StorageOptions

CELL_BYTES = 4
"""About so many bytes a value takes in text, with its delimiter."""
_IN_PROCESS = ("table", "sql")
"""Formats that only this process can read: rows in its memory, and databases whose passwords it has."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows to predict for."""

    data: Dataset | Source
    shown: pa.Schema
    """The types that the data itself shows; text files may be read as text."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """Of times in text, by column."""
    inherited: Mapping[str, Any] = field(default_factory=dict)
    """The options of the run that hold for this data, as no others were given."""

    @property
    def schema(self) -> pa.Schema:
        """The types that the rows are read with."""
        return self.data.schema

    @property
    def source(self) -> Source | None:
        """None for Parquet, which is read by its row groups."""
        return None if isinstance(self.data, Dataset) else self.data

    @property
    def is_parquet(self) -> bool:
        return isinstance(self.data, Dataset)

    @property
    def has_files(self) -> bool:
        return isinstance(self.data, Dataset) or self.data.format not in _IN_PROCESS

    @property
    def written(self) -> Written:
        """How the columns are written that are read as text."""
        form = getattr(getattr(self.data, "inner", self.data), "form", None)
        separators = form.separators if isinstance(form, CsvFormat) else Separators()
        return Written(separators, self._floats, self.forms)

    @property
    def _floats(self) -> tuple[str, ...]:
        """The columns of JSON that are read as text and hold floats: pandas writes whole numbers with gaps so."""
        if isinstance(self.data, Dataset) or self.data.format != "json":
            return ()
        read = self.data.schema
        return tuple(f.name for f in self.shown if pa.types.is_floating(f.type) and is_text(read.field(f.name).type))

    def numbers_for(self, moments: Collection[str]) -> Warned | None:
        """Return what to tell where columns that hold dates and times for a model are of numbers here."""
        found = [field.name for field in self.shown if field.name in moments and is_number(field.type)]
        if not found:
            return None
        names = ", ".join(f'"{name}"' for name in found)
        message = f"{names}: numbers here, and dates or times for the model, which reads none of them."
        if self.source is None or self.source.format not in TEXT_FORMATS:
            return Warned(message, fix="Write them as timestamps.")
        fix = f"Say what they are: {flag_of_type(found[0], 'timestamp(milliseconds)')}"
        return Warned(message, fix=f"{fix}, or seconds, microseconds, nanoseconds, %Y%m%d.")

    @property
    def rows(self) -> int | None:
        return self.data.rows

    @property
    def bytes(self) -> int:
        return self.data.bytes

    def cells(self, columns: int) -> int:
        """Return about how many values a model of so many columns reads."""
        return self.bytes // CELL_BYTES if self.rows is None else self.rows * columns


def open_rows(
    model: str,
    predictor: Predictor,
    data: Any,
    kept: Sequence[str],
    storage: StorageOptions,
    reading: Reading,
    emit: Emit,
) -> NewRows:
    """Open data for a model: of text files, its columns and those that are kept are read as they are written."""
    before = trained_on(model, storage)
    given = reading.options or {}
    reading = as_trained(data, predictor.columns, before, reading, storage, emit)
    names = locations(data)
    if names is not None and reading.format == "parquet" and not reading.options:
        dataset = open_dataset(names, storage, may_be_empty=True, own_types=True)
        tell(dataset.notes, emit)
        return NewRows(dataset, dataset.schema)
    source, shown, forms = opened_as_text(data, predictor.columns, kept, before.types, reading, storage)
    tell(source.notes, emit)
    inherited = {name: value for name, value in (reading.options or {}).items() if name not in given}
    return NewRows(source, shown, forms, inherited)


def where_predicted(
    rows: NewRows, inputs: Sequence[InputFile], workers: int | Literal["auto"], cluster: str, emit: Emit
) -> int | Literal["auto"]:
    """Return how many workers can be asked: none where only this process can read the rows."""
    if workers == 0 or (workers == "auto" and cluster == "local"):
        return workers
    reason = None
    if not rows.has_files:
        reason = "only this process has the rows"
    elif not rows.is_parquet and (local := local_files(inputs)) and joins(cluster):
        reason = _unseen(cluster, local)
    if reason is None:
        return workers
    emit(Warned(f"This process predicts, and not the workers: {reason}.", fix="Give data that all nodes can read."))
    return 0


def _unseen(cluster: str, files: Sequence[str]) -> str | None:
    """Say which node does not see the files."""
    from dray.clusters.files_seen import unseen_files

    with connect(cluster, workers=1, threads=1) as connected:
        unseen = unseen_files(connected, files)
    return next((f"the node {node} cannot read {missing[0]}" for node, missing in unseen.items()), None)
