"""`dray predict`: stream a data set through a model, in this process or on workers.

Columns are matched by name, and read as the model knows them, whatever their type. What a model reads, refuses and
counts is its predictor's (`learners/predictor.py`): trees count an unseen category and an infinite number as missing, a
recommender scores unknown users and items by what is known. Every row of the data has a row in the output.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from dray.batch.input_files import input_files
from dray.batch.output import Output
from dray.batch.predict_file import Columns, FileReport, OutputFile, PredictFile, RowsDone, StoreWait
from dray.batch.still_needed import locations_of
from dray.batch.table_files import kind_of_file
from dray.batch.tasks import TaskRun, Workers
from dray.data.conflicts import refuse_conflicts
from dray.errors import ConfigError, DataError, nearest
from dray.events.kinds import PhaseStarted, Progress, Warned
from dray.events.telemetry import Sink, Telemetry
from dray.ingesting.cache import PLAIN, Reading
from dray.ingesting.noticed import of_extra_fields, tell
from dray.learners.predictor import Counted, PredictionType, Predictor, Question
from dray.learners.stored import open_model
from dray.predicting.new_rows import NewRows, open_rows, where_predicted
from dray.predicting.outputs import kept_fields, output_files, output_schema, rejects_of
from dray.storage import DEFAULT, StorageOptions, absolute

PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class PredictResult:
    """What a batch prediction came to."""

    rows: int
    seconds: float
    rows_per_second: float
    peak_memory_bytes: int
    output: str
    files: int
    workers: int
    unseen: dict[str, int]
    """Rows by column whose value the model does not know: a category, a user, an item."""
    infinite: dict[str, int]
    """Rows by column whose number is infinite, or too large for float32; it counted as missing."""
    unreadable: dict[str, int]
    """Rows by column whose value is of another kind, such as text that is not a number; it counted as missing."""
    missing_columns: list[str]
    """Columns that the model reads and the data does not have; they counted as missing in all rows."""
    rows_rejected: int
    """Rows that cannot be read at all: they are in the output, with nulls."""
    rejects: str | None
    """Where these rows are listed with the reasons; None if there are none."""
    model: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def load_model(location: str, storage: StorageOptions = DEFAULT) -> Any:
    """Return the model of a run directory, or of a model file or directory that dray wrote."""
    return open_model(location, storage).model


def predict(
    model: str,
    data: Any,
    out: str,
    *,
    keep: Sequence[str] = (),
    key: Sequence[str] = (),
    row_number: bool = False,
    file_column: bool = False,
    output: PredictionType | None = None,
    contributions: bool = False,
    overwrite: bool = False,
    workers: int | Literal["auto"] = "auto",
    threads: int | None = None,
    cluster: str = "local",
    storage: StorageOptions = DEFAULT,
    reading: Reading = PLAIN,
    sinks: Sequence[Sink] = (),
) -> PredictResult:
    """Write the predictions for `data` to `out`: a row for each row, in order.

    `out` is one file of the kind that its ending says, or a directory with a Parquet file for each input file.
    `output` is a probability unless another is asked for; a recommender knows scores only.
    """
    begin = time.perf_counter()
    if output is not None and output not in get_args(PredictionType):
        raise ConfigError(
            f'There is no type of prediction "{output}".{nearest(output, get_args(PredictionType))}',
            fix=f"Give --type one of {', '.join(get_args(PredictionType))}.",
        )
    kind_of_file(out)  # an ending that means nothing is told before anything is read
    question = Question(output, contributions)
    predictor = open_model(model, storage)
    fields = predictor.fields(question)
    telemetry = Telemetry(sinks)
    try:
        rows = open_rows(model, predictor, data, (*key, *keep), storage, reading, telemetry.emit)
        missing = _require_columns(predictor, rows, telemetry)
        inputs = input_files(rows.data)
        files = output_files(inputs, out, parquet=rows.is_parquet, files=rows.has_files)
        kept = kept_fields(key, keep, rows.schema, rows.shown, files, out)
        known = tuple(name for name in predictor.columns if name not in missing)
        columns = Columns(known, missing, kept, file_column, row_number)
        schema = output_schema([*columns.carried, *fields])
        asked = where_predicted(rows, inputs, workers, cluster, telemetry.emit)
        if predictor.uses_threads:
            decided = Workers.for_threads(asked, threads, cluster, len(files), rows.cells(len(predictor.columns)))
        else:
            decided = Workers.of(asked, threads, cluster, len(files))
        job = PredictFile(predictor, question, columns, schema, storage, rows.source, rows.written)
        run = TaskRun(decided, telemetry.emit, _Told(telemetry, rows.rows, rows.bytes))
        single = kind_of_file(out) is not None
        reads = locations_of(data)
        with Output(out, storage, is_file=single, overwrite=overwrite, companion=rejects_of(out), reads=reads) as place:
            telemetry.emit(PhaseStarted("predict"))
            reports = list(run.run(job, [_written_at(place, file) for file in files]))
            if not any(report.rejected for report in reports):
                place.remove_companion()
            tell(of_extra_fields(_left_out(reports, predictor.columns)), telemetry.emit)
    finally:
        telemetry.close()
    seconds = time.perf_counter() - begin
    count, counted = sum(report.rows for report in reports), _added(reports)
    rejected = sum(report.rejected for report in reports)
    return PredictResult(
        rows=count,
        seconds=round(seconds, 3),
        rows_per_second=round(count / seconds, 1),
        peak_memory_bytes=run.peak_memory_bytes,
        output=absolute(out),
        files=len(files),
        workers=run.workers,
        unseen=dict(counted.unseen),
        infinite=dict(counted.infinite),
        unreadable=dict(counted.unreadable),
        missing_columns=list(missing),
        rows_rejected=rejected,
        rejects=rejects_of(out) if rejected else None,
        model=predictor.learner,
    )


def _require_columns(predictor: Predictor, rows: NewRows, telemetry: Telemetry) -> tuple[str, ...]:
    """Return the columns that the data lacks, and warn of them; refuse data that is not for this model."""
    refuse_conflicts(rows.schema, predictor.columns)
    try:
        missing = predictor.check(rows.schema)
    except DataError as error:
        if not rows.inherited:
            raise
        read = ", ".join(f"{name}={value}" for name, value in rows.inherited.items())
        raise DataError(
            error.what,
            fix=f"{error.fix}. It is read as the data of the run was, with {read}: --read gives other values.",
        ) from None
    for name in missing:
        telemetry.emit(
            Warned(
                f'The data has no column "{name}", which the model knows: it is missing in all rows.'
                f"{nearest(name, rows.schema.names)}",
                fix="Add the column, or rename the one that holds it.",
            )
        )
    if told := rows.numbers_for(predictor.moments):
        telemetry.emit(told)
    return missing


def _written_at(place: Output, file: OutputFile) -> OutputFile:
    """Return the file with where it is written for now."""
    return replace(file, destination=place.writing(file.destination), rejects=place.writing(file.rejects))


class _Told:
    """Turns what is told of the inputs into events: rows a few times a second, a wait for a store once."""

    def __init__(self, telemetry: Telemetry, rows: int | None, size: int) -> None:
        """`rows`: of all inputs, None where they are not known beforehand; `size`: bytes of all inputs."""
        self._telemetry, self._rows, self._size = telemetry, rows, size
        self._done: dict[str, RowsDone] = {}
        """By input: one whose process was lost begins anew."""
        self._waits: set[StoreWait] = set()
        self._told_at = 0.0

    def __call__(self, told: RowsDone | StoreWait) -> None:
        if isinstance(told, StoreWait):
            self._warn(told)
            return
        self._done[told.name] = told
        rows, now = sum(done.rows for done in self._done.values()), time.monotonic()
        if rows == self._rows or now - self._told_at >= PROGRESS_EVERY_S:
            self._told_at = now
            self._telemetry.emit(Progress(done=rows, total=self._total(rows), unit="rows"))

    def _total(self, rows: int) -> int | None:
        """Return all rows; where they are not known, about so many as the bytes read so far let expect."""
        if self._rows is not None:
            return self._rows
        read = sum(done.bytes for done in self._done.values())
        return max(rows, round(rows / read * self._size)) if read else None

    def _warn(self, wait: StoreWait) -> None:
        if wait not in self._waits:
            self._waits.add(wait)
            message = f"A worker on {wait.host} waits for the storage: {wait.what}"
            self._telemetry.emit(Warned(message, fix="It tries again for 90 seconds."))


def _left_out(reports: Sequence[FileReport], columns: Sequence[str]) -> Counter[str]:
    """Return the rows of each field that was left out though the model reads it; others do not matter to it."""
    every = sum((Counter(report.extra_fields) for report in reports), Counter[str]())
    return Counter({name: rows for name, rows in every.items() if name in columns})


def _added(reports: Sequence[FileReport]) -> Counted:
    """Add up the rows of each column."""
    total = Counted()
    for report in reports:
        total.unseen.update(report.counted.unseen)
        total.infinite.update(report.counted.infinite)
        total.unreadable.update(report.counted.unreadable)
    return total
