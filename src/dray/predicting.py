"""`dray predict`: stream a data set through a model, in this process or on workers.

Columns are matched by name. What a model reads, refuses and counts is its predictor's (`learners/predictor.py`): trees
count an unseen category and an infinite number as missing, a recommender scores unknown users and items by what is
known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from dray.batch.output import Output
from dray.batch.predict_file import FileReport, PredictFile, RowsDone, StoreWait
from dray.batch.tasks import TaskRun, Workers
from dray.data.features import plain_field
from dray.data.parquet import Dataset, open_dataset
from dray.data.partitions import partitions_of
from dray.data.shards import Slice, Unit
from dray.errors import ConfigError, DataError, nearest
from dray.events.kinds import PhaseStarted, Progress, Warned
from dray.events.telemetry import Sink, Telemetry
from dray.ingesting.cache import PLAIN, Reading, as_parquet
from dray.learners.predictor import Counted, PredictionType, Question
from dray.learners.stored import open_model
from dray.storage import DEFAULT, StorageOptions, absolute, join

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
    output: PredictionType | None = None,
    contributions: bool = False,
    workers: int | Literal["auto"] = "auto",
    threads: int | None = None,
    cluster: str = "local",
    storage: StorageOptions = DEFAULT,
    reading: Reading = PLAIN,
    sinks: Sequence[Sink] = (),
) -> PredictResult:
    """Write the predictions for `data` to `out`, one Parquet file for each input file, in the same order.

    Data of another format is copied into the cache as Parquet first; its copy's files are what is predicted for.
    `output` is a probability unless another is asked for; a recommender knows scores only.
    """
    begin = time.perf_counter()
    if output is not None and output not in get_args(PredictionType):
        raise ConfigError(
            f'There is no type of prediction "{output}".{nearest(output, get_args(PredictionType))}',
            fix=f"Give --type (output=) one of {', '.join(get_args(PredictionType))}.",
        )
    question = Question(output, contributions)
    predictor = open_model(model, storage)
    fields = predictor.fields(question)
    telemetry = Telemetry(sinks)
    try:
        dataset = open_dataset(as_parquet(data, storage, reading, telemetry.emit, predictor.check), storage)
        predictor.check(dataset.schema)
        files = _destinations(dataset, out)
        kept = _kept_fields(keep, dataset, files, out)
        schema = _schema([*kept, *fields])
        if predictor.uses_threads:
            cells = dataset.rows * len(predictor.columns)
            decided = Workers.for_threads(workers, threads, cluster, len(files), cells)
        else:
            decided = Workers.of(workers, threads, cluster, len(files))
        single = len(files) == 1 and files[0][1] == absolute(out)
        job = PredictFile(predictor, question, tuple(field.name for field in kept), schema, storage)
        run = TaskRun(decided, telemetry.emit, _Told(telemetry, dataset.rows))
        with Output(out, storage, is_file=single):
            telemetry.emit(PhaseStarted("predict"))
            reports = list(run.run(job, files))
    finally:
        telemetry.close()
    seconds = time.perf_counter() - begin
    rows, counted = sum(report.rows for report in reports), _added(reports)
    return PredictResult(
        rows=rows,
        seconds=round(seconds, 3),
        rows_per_second=round(rows / seconds, 1),
        peak_memory_bytes=run.peak_memory_bytes,
        output=absolute(out),
        files=len(files),
        workers=run.workers,
        unseen=dict(counted.unseen),
        infinite=dict(counted.infinite),
        model=predictor.learner,
    )


class _Told:
    """Turns what is told of the files into events: rows a few times a second, a wait for a store once."""

    def __init__(self, telemetry: Telemetry, total: int) -> None:
        self._telemetry, self._total = telemetry, total
        self._rows: dict[str, int] = {}
        """By file: one whose process was lost begins anew."""
        self._waits: set[StoreWait] = set()
        self._told_at = 0.0

    def __call__(self, told: RowsDone | StoreWait) -> None:
        if isinstance(told, StoreWait):
            self._warn(told)
            return
        self._rows[told.destination] = told.rows
        done, now = sum(self._rows.values()), time.monotonic()
        if done == self._total or now - self._told_at >= PROGRESS_EVERY_S:
            self._told_at = now
            self._telemetry.emit(Progress(done=done, total=self._total, unit="rows"))

    def _warn(self, wait: StoreWait) -> None:
        if wait not in self._waits:
            self._waits.add(wait)
            message = f"A worker on {wait.host} waits for the storage: {wait.what}"
            self._telemetry.emit(Warned(message, fix="It tries again for 90 seconds."))


def _added(reports: Sequence[FileReport]) -> Counted:
    """Add up the rows of each column."""
    total = Counted()
    for report in reports:
        total.unseen.update(report.counted.unseen)
        total.infinite.update(report.counted.infinite)
    return total


def _schema(fields: Sequence[pa.Field]) -> pa.Schema:
    schema = pa.schema(fields)
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise ConfigError(
            f'The output would have two columns "{min(twice)}".', fix="Keep fewer columns, or rename it in the data."
        )
    return schema


def _kept_fields(keep: Sequence[str], dataset: Dataset, files: Sequence[tuple[Unit, str]], out: str) -> list[Any]:
    """Return what is kept in the files; a column in the names of their directories is there already."""
    for name in keep:
        if name not in dataset.schema.names:
            raise DataError(
                f'There is no column "{name}" (--keep) in the data.{nearest(name, dataset.schema.names)}',
                fix=f"Columns: {', '.join(dataset.schema.names[:12])}.",
            )
    told = {key for key, _ in partitions_of([out], [destination for _, destination in files])[0]}
    return [plain_field(dataset.schema.field(name)) for name in keep if name not in told]


def _destinations(dataset: Dataset, out: str) -> list[tuple[Unit, str]]:
    """Where each file's predictions go, also one without rows: the same names, below `out`; a single file may be named
    itself."""
    pieces: dict[str, list[Slice]] = {file: [] for file, _, _ in dataset.contents}
    for piece in dataset.row_groups:
        pieces[piece.file].append(piece)
    units = [tuple(found) for found in pieces.values()]
    if len(units) == 1 and out.endswith(".parquet"):
        return [(units[0], absolute(out))]
    paths = ["/" + file.removeprefix("s3://").lstrip("/") for file in pieces]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120  (of a bucket too)
    return [(unit, join(absolute(out), path[len(root) :].lstrip("/"))) for unit, path in zip(units, paths, strict=True)]
