"""`dray predict`: stream a data set through a model, in this process or on workers.

Columns are matched by name. A missing column or one of another kind is an error, an extra one is ignored, an unseen
category counts as missing and is reported.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
from pyarrow import fs as pafs

from dray.data.features import fits, kind_of
from dray.data.parquet import Dataset, open_dataset
from dray.data.shards import Unit, deal
from dray.errors import ConfigError, DataError, ModelError, StorageError, nearest
from dray.ingesting.cache import PLAIN, Reading, as_parquet
from dray.learners.xgboost_model import Model, Output
from dray.storage import (
    DEFAULT,
    StorageOptions,
    absolute,
    is_s3,
    join,
    open_storage,
    remove_directory,
    translate_errors,
)
from dray.telemetry.events import Sink, Telemetry
from dray.telemetry.run_directory import open_run
from dray.workers.crew import started_crew
from dray.workers.predict_files import PredictJob, PredictReport, output_schema


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
    """Values by column that the model has no category for: they counted as missing."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def load_model(location: str, storage: StorageOptions = DEFAULT) -> Model:
    """Return the model of a run directory, or of a model file that dray wrote."""
    model, _ = _read_model(location, storage)
    return model


def predict(
    model: str,
    data: Any,
    out: str,
    *,
    keep: Sequence[str] = (),
    output: Output = "probability",
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
    """
    begin = time.perf_counter()
    if output not in get_args(Output):
        raise ConfigError(
            f'There is no output "{output}".{nearest(output, get_args(Output))}',
            fix=f"Known: {', '.join(get_args(Output))}.",
        )
    loaded, content = _read_model(model, storage)
    telemetry = Telemetry(sinks)
    parquet = as_parquet(data, storage, reading, telemetry.emit, functools.partial(_check_columns, loaded))
    dataset = open_dataset(parquet, storage)
    _check_columns(loaded, dataset.schema)
    if output == "probability" and loaded.objective == "multi:softmax":
        raise ModelError(
            "A multi:softmax model knows classes, no probabilities.",
            fix="Ask for --type class, or train with --objective multiclass.",
        )
    schema = output_schema(loaded, output, _kept_fields(keep, dataset), contributions=contributions)
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise ConfigError(
            f'The output would have two columns "{min(twice)}".', fix="Keep fewer columns, or rename it in the data."
        )
    files = _destinations(dataset, out)
    missing = _require_free(out, storage)
    job = PredictJob(content, model, output, tuple(keep), contributions, schema, storage)
    wanted = min(workers, len(files)) if workers != "auto" else workers
    try:
        telemetry.emit("phase", name="predict")
        cells = dataset.rows * len(loaded.features)
        with started_crew(wanted, threads, cluster, len(files), cells, telemetry) as crew:
            destination = dict(files)
            shards = deal([unit for unit, _ in files], len(crew.ready), may_be_empty=True)
            job_ref = crew.group.share(job)
            tasks = [(job_ref, [(unit, destination[unit]) for unit in shard]) for shard in shards]
            reports: list[PredictReport] = crew.run("predict", tasks)
    except BaseException:
        _remove_all(out, files, missing, storage)
        raise
    finally:
        telemetry.close()
    seconds = time.perf_counter() - begin
    rows = sum(report.rows for report in reports)
    return PredictResult(
        rows=rows,
        seconds=round(seconds, 3),
        rows_per_second=round(rows / seconds, 1),
        peak_memory_bytes=crew.watch.peak_memory_bytes,
        output=absolute(out),
        files=len(files),
        workers=0 if crew.alone else len(shards),
        unseen={
            name: sum(report.unseen.get(name, 0) for report in reports) for report in reports for name in report.unseen
        },
    )


def _read_model(location: str, storage: StorageOptions) -> tuple[Model, bytes]:
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.NotFound and not is_s3(location):
        raise ModelError(f"There is no run or model at {location}.", fix="dray runs lists the runs.")
    if kind == pafs.FileType.File:
        with translate_errors(location), filesystem.open_input_stream(path) as stream:
            content = bytes(stream.read())
        return Model.from_bytes(content, location), content
    directory = open_run(location, storage)
    if directory.document["status"] != "finished":
        raise ModelError(
            f"The run {location} is {directory.document['status']}: it has no model.", fix="Name a finished run."
        )
    content = directory.read_bytes("model.ubj")
    return Model.from_bytes(content, directory.path("model.ubj")), content


def _check_columns(model: Model, schema: pa.Schema) -> None:
    for feature in model.features:
        if feature.name not in schema.names:
            raise DataError(
                f'The model needs the column "{feature.name}", which the data does not have.'
                f"{nearest(feature.name, schema.names)}",
                fix="Add the column (with nulls where it is unknown).",
            )
        arrow = schema.field(feature.name).type
        if not pa.types.is_null(arrow) and not fits(kind_of(feature.name, arrow), feature.kind):
            raise DataError(
                f'The model knows the column "{feature.name}" as a {feature.kind}, the data holds {arrow}.',
                fix="Write the column with the type it had in training.",
            )


def _kept_fields(keep: Sequence[str], dataset: Dataset) -> list[Any]:
    for name in keep:
        if name not in dataset.schema.names:
            raise DataError(
                f'There is no column "{name}" (--keep) in the data.{nearest(name, dataset.schema.names)}',
                fix=f"Columns: {', '.join(dataset.schema.names[:12])}.",
            )
    return [dataset.schema.field(name) for name in keep]


def _destinations(dataset: Dataset, out: str) -> list[tuple[Unit, str]]:
    """Where each file's predictions go: the same names, below `out`; a single file may be named itself."""
    units = [tuple(piece for piece in dataset.row_groups if piece.file == file) for file in dataset.files]
    if len(units) == 1 and out.endswith(".parquet"):
        return [(units[0], absolute(out))]
    paths = ["/" + file.removeprefix("s3://").lstrip("/") for file in dataset.files]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120  (of a bucket too)
    return [(unit, join(absolute(out), path[len(root) :].lstrip("/"))) for unit, path in zip(units, paths, strict=True)]


def _require_free(out: str, storage: StorageOptions) -> list[Path]:
    """Refuse an output that holds something; return the local directories that have to be made, the deepest first."""
    filesystem, path = open_storage(out, storage)
    with translate_errors(out):
        info = filesystem.get_file_info(path)
        taken = info.type == pafs.FileType.File
        if info.type == pafs.FileType.Directory:
            taken = bool(filesystem.get_file_info(pafs.FileSelector(path)))
    if taken:
        raise StorageError(f"The output {out} exists and is not empty.", fix="Name another place, or remove it.")
    return [] if is_s3(out) else [place for place in (Path(path), *Path(path).parents) if not place.exists()]


def _remove_all(out: str, files: Sequence[tuple[Unit, str]], missing: Sequence[Path], storage: StorageOptions) -> None:
    """Leave nothing half-written: `out` was free before, so all of it is ours."""
    filesystem, path = open_storage(out, storage)
    with suppress(StorageError, OSError):
        if len(files) == 1 and files[0][1] == absolute(out):
            filesystem.delete_file(path)
        elif is_s3(out) or missing:
            remove_directory(out, storage)
        else:  # an empty directory that was there before
            filesystem.delete_dir_contents(path, missing_dir_ok=True)
    with suppress(OSError):  # a parent that holds something else by now stays
        for place in missing:
            if place.exists():
                place.rmdir()
