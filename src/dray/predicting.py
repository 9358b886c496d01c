"""`dray predict`: stream a data set through a model, in this process or on workers.

Columns are matched by name. A missing column or one of another kind is an error, an extra one is ignored, an unseen
category or an infinite number counts as missing and is reported. A recommender gives each pair of user and item a
score; users and items that it does not know are scored by what is known, and counted.
"""

from __future__ import annotations

import functools
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa
from pyarrow import fs as pafs

from dray.config.run_file import ModelName
from dray.data.features import plain_field
from dray.data.parquet import Dataset, open_dataset
from dray.data.partitions import partitions_of
from dray.data.shards import Unit, deal
from dray.errors import ConfigError, DataError, ModelError, nearest
from dray.ingesting.cache import PLAIN, Reading, as_parquet
from dray.learners.factorization.model import FactorModel
from dray.learners.xgboost_model import Model, Output
from dray.learners.xgboost_outputs import has_vector_leaves
from dray.recommending.opening import holds_recommender, open_recommender
from dray.recommending.output_place import OutputPlace
from dray.recommending.running import Runner, Where
from dray.recommending.scoring import SCORE, ScoreJob, require_pairs, score_all
from dray.storage import DEFAULT, StorageOptions, absolute, is_s3, join, open_storage, translate_errors
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
    """Rows by column whose value the model does not know: a category, a user, an item."""
    infinite: dict[str, int] = field(default_factory=dict)
    """Rows by column whose number is infinite, or too large for float32; it counted as missing."""
    model: ModelName = "xgboost"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def load_model(location: str, storage: StorageOptions = DEFAULT) -> Model | FactorModel:
    """Return the model of a run directory, or of a model file or directory that dray wrote."""
    if holds_recommender(location, storage):
        return open_recommender(location, storage).model
    model, _ = _read_model(location, storage)
    return model


def predict(
    model: str,
    data: Any,
    out: str,
    *,
    keep: Sequence[str] = (),
    output: Output | None = None,
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
    if holds_recommender(model, storage):
        if output is not None or contributions:
            raise ConfigError(
                f"The run {model} is a recommender: it has scores of pairs, no "
                f"{'contributions' if contributions else 'types of predictions'}.",
                fix=f"Leave out --{'contributions' if contributions else 'type'}.",
            )
        return _score(model, data, out, keep, Where.of(workers, threads, cluster, 1 << 30), storage, reading, sinks)
    output = output or "probability"
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
    if contributions and has_vector_leaves(loaded.booster):
        raise ModelError(
            "XGBoost has no contributions for trees that predict several numbers at once.",
            fix="Leave out --contributions, or train without multi_strategy=multi_output_tree.",
        )
    files = _destinations(dataset, out)
    kept = _kept_fields(keep, dataset, files, out)
    keep = [field.name for field in kept]
    schema = output_schema(loaded, output, kept, contributions=contributions)
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise ConfigError(
            f'The output would have two columns "{min(twice)}".', fix="Keep fewer columns, or rename it in the data."
        )
    place = OutputPlace(out, storage, is_file=_is_file(files, out))
    job = PredictJob(content, model, output, tuple(keep), contributions, schema, storage)
    wanted = min(workers, len(files)) if workers != "auto" else workers
    try:
        telemetry.emit("phase", name="predict")
        cells = dataset.rows * len(loaded.features)
        with place, started_crew(wanted, threads, cluster, len(files), cells, telemetry) as crew:
            destination = dict(files)
            shards = deal([unit for unit, _ in files], len(crew.ready), may_be_empty=True)
            job_ref = crew.group.share(job)
            tasks = [(job_ref, [(unit, destination[unit]) for unit in shard]) for shard in shards]
            reports: list[PredictReport] = crew.run("predict", tasks)
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
        unseen=_added(report.unseen for report in reports),
        infinite=_added(report.infinite for report in reports),
    )


def _score(
    model: str,
    data: Any,
    out: str,
    keep: Sequence[str],
    where: Where,
    storage: StorageOptions,
    reading: Reading,
    sinks: Sequence[Sink],
) -> PredictResult:
    """Write a score for each row of `data`, a pair of user and item, to `out`."""
    begin = time.perf_counter()
    known = open_recommender(model, storage)
    rule = known.rule
    telemetry = Telemetry(sinks)
    try:
        parquet = as_parquet(data, storage, reading, telemetry.emit, lambda schema: require_pairs(schema, rule))
        dataset = open_dataset(parquet, storage)
        require_pairs(dataset.schema, rule)
        if SCORE in keep:
            raise ConfigError(f'The output would have two columns "{SCORE}".', fix="Rename it in the data.")
        files = _destinations(dataset, out)
        kept = _kept_fields(keep, dataset, files, out)
        keep = [field.name for field in kept]
        schema = pa.schema([*kept, pa.field(SCORE, pa.float32())])
        source = known.model if where.workers == 0 or known.location is None else known.location
        job = ScoreJob(source, rule.user, rule.item, tuple(keep), schema, storage)
        runner = Runner(where, telemetry.emit)
        with OutputPlace(out, storage, is_file=_is_file(files, out)):
            telemetry.emit("phase", name="predict")
            reports = score_all(runner, job, files, dataset.rows, telemetry)
    finally:
        telemetry.close()
    seconds = time.perf_counter() - begin
    rows = sum(report.rows for report in reports)
    unknown = {
        rule.user: sum(report.unknown_users for report in reports),
        rule.item: sum(report.unknown_items for report in reports),
    }
    return PredictResult(
        rows=rows,
        seconds=round(seconds, 3),
        rows_per_second=round(rows / seconds, 1),
        peak_memory_bytes=runner.peak_memory_bytes,
        output=absolute(out),
        files=len(files),
        workers=runner.workers,
        unseen={name: count for name, count in unknown.items() if count},
        model="factorization",
    )


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add up the rows of each column."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def _is_file(files: Sequence[tuple[Unit, str]], out: str) -> bool:
    return len(files) == 1 and files[0][1] == absolute(out)


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
        if not feature.takes(arrow):
            raise DataError(
                f'The model knows the column "{feature.name}" as a {feature.kind}, the data holds {arrow}.',
                fix="Write the column with the type it had in training.",
            )


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
    """Where each file's predictions go: the same names, below `out`; a single file may be named itself."""
    units = [tuple(piece for piece in dataset.row_groups if piece.file == file) for file in dataset.files]
    if len(units) == 1 and out.endswith(".parquet"):
        return [(units[0], absolute(out))]
    paths = ["/" + file.removeprefix("s3://").lstrip("/") for file in dataset.files]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120  (of a bucket too)
    return [(unit, join(absolute(out), path[len(root) :].lstrip("/"))) for unit, path in zip(units, paths, strict=True)]
