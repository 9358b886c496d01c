"""The Python API: the commands as functions. Progress is off unless asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from dray.batch.options import Where
from dray.clusters.resolve import Attached, resolve
from dray.config.run_file import Level, RunConfig, read_run_file
from dray.data.sources.tables import columns_of_frame
from dray.events.telemetry import Sink
from dray.hints import in_arguments, speaks_python
from dray.ingesting.cache import Reading, as_parquet, used_cluster
from dray.ingesting.written import IngestResult
from dray.jobs.anywhere import names_of, run
from dray.jobs.anywhere import resume as _resume
from dray.jobs.anywhere import train as _train
from dray.jobs.commands.predicting import Predict
from dray.jobs.commands.recommending import Recommend
from dray.jobs.commands.training import Train
from dray.learners.configs import make_config
from dray.learners.predictor import PredictionType
from dray.learners.registry import RecommenderName
from dray.learners.result import RunResult
from dray.predicting.predict import PredictResult, load_model
from dray.recommending.recommend import RecommendResult
from dray.runs.naming import Names
from dray.storage import StorageOptions, takes_paths
from dray.training.session import Session, open_session

if TYPE_CHECKING:
    from dray import FactorModel, FactorResult, Model, TrainResult


@overload
def train(data: Any, label: str, *, progress: bool = False, **settings: Any) -> TrainResult: ...


@overload
def train(
    data: Any, label: None = None, *, model: RecommenderName, progress: bool = False, **settings: Any
) -> FactorResult: ...


@overload
def train(data: Any, label: None = None, *, progress: bool = False, **settings: Any) -> TrainResult | FactorResult: ...


@speaks_python
@takes_paths
def train(
    data: Any, label: str | None = None, *, progress: bool = False, **settings: Any
) -> TrainResult | FactorResult:
    """Train on `data`, or as a run file says; `settings` are the keys of a run file (docs/guides/training.md).

    `data` is what `dray train` takes, a table of pandas, polars or Arrow, or a function that connects to a database;
    so is `eval`.

    >>> result = dray.train("data/", label="y", rounds=200, eval_fraction=0.2, params={"max_depth": 8})
    >>> result.booster
    >>> result = dray.train("events/", model="factorization", user="user_id", item="item_id", event="type")
    >>> result.loaded.recommend("ann", 10)
    """
    config = _config(data, label, settings)
    return _told(_train(config, sinks=_sinks(progress)))  # type: ignore[return-value]


@speaks_python
@takes_paths
def session(data: Any, label: str | None = None, *, progress: bool = False, **settings: Any) -> Session:
    """Load `data` once, and train on it as often as `Session.fit` is called; arguments as those of `train`.

    >>> with dray.session("data/", label="y", eval_fraction=0.2) as session:
    ...     for depth in (4, 6, 8):
    ...         print(depth, session.fit(params={"max_depth": depth}).metrics)
    """
    sinks, command = _sinks(progress), Train(_config(data, label, settings))
    return open_session(command.named(names_of(command.storage, sinks)).config, sinks=sinks)


def _config(data: Any, label: str | None, settings: dict[str, Any]) -> RunConfig:
    """Return the configuration that the arguments say, or a run file and what they change of it."""
    if isinstance(data, str) and data.endswith((".yaml", ".yml")):
        values, origin = read_run_file(data), data
    else:
        values, origin = {"data": _named(data, settings)}, "the arguments"
    if label is not None:
        values["label"] = label
    if settings.get("eval") is not None:
        # How `data` is read says nothing of a table.
        how, mixed = settings | {"format": None, "read": None}, columns_of_frame(settings["eval"])
        settings = settings | {"eval": _named(settings["eval"], how, mixed)}
    return make_config(values | settings, origin=origin)


def _named(data: Any, settings: dict[str, Any], as_text: Collection[str] = ()) -> list[str]:
    """Return locations: of what has none, those of its copy. The run keeps them, for `resume`."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, Sequence) and all(isinstance(name, str) for name in data):
        return list(data)
    cluster = resolve(settings.get("cluster", "local"))
    attached = used_cluster(settings.get("workers", "auto"), cluster.word) if isinstance(cluster, Attached) else None
    reading = Reading(settings.pop("format", None), settings.pop("read", None), settings.get("cache"), cluster=attached)
    storage = StorageOptions(**(settings.get("storage") or {}))
    return list(as_parquet(data, storage, reading, lambda _event: None, as_text=as_text))


@speaks_python
@takes_paths
def resume(
    run: str,
    *,
    workers: int | str | Mapping[str, int] | None = None,
    threads: int | None = None,
    cluster: str | None = None,
    on_failure: Level | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    role: str | None = None,
    progress: bool = False,
) -> TrainResult | FactorResult:
    """Go on with a run that ended before its last round, from its last checkpoint, as `dray resume` does.

    What is given replaces what the run was asked for; `workers` is a number, "auto", "2-8" or {"min": 2, "max": 8}.
    """
    given = {"workers": workers, "threads": threads, "cluster": cluster, "on_failure": on_failure}
    overrides = {name: value for name, value in given.items() if value is not None}
    result = _resume(run, StorageOptions(endpoint, region, profile, role), overrides, sinks=_sinks(progress))
    return _told(result)  # type: ignore[return-value]


@speaks_python
@takes_paths
def predict(
    model: str,
    data: Any,
    out: str,
    *,
    format: str | None = None,
    read: Mapping[str, Any] | None = None,
    cache: str | None = None,
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
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    role: str | None = None,
    progress: bool = False,
) -> PredictResult:
    """Write the predictions of a run or a model file for `data` to `out`, as `dray predict` does: a row for each row.

    `out` is a file if it ends in .csv, .json, .jsonl or .parquet, else a directory of Parquet files. `keep` copies
    columns; `key` too, exactly as they are written. `.rows_rejected` of the result are rows that cannot be read: they
    have nulls; `.unreadable`, `.unseen` and `.infinite` count values by column; `.missing_columns` are those that the
    data does not have.

    `output` is "probability" (the default), "class" or "margin"; a recommender has scores of pairs, and no other. With
    a cluster's name or http://head:8265 as `cluster` a job there predicts: both sides must see the locations.
    """
    command = Predict(
        model=model,
        data=data,
        out=out,
        keep=keep,
        key=key,
        row_number=row_number,
        file_column=file_column,
        output=output,
        contributions=contributions,
        overwrite=overwrite,
        workers=workers,
        threads=threads,
        cluster=cluster,
        format=format,
        read=read,
        cache=cache,
        storage=StorageOptions(endpoint, region, profile, role),
    )
    return run(command, _sinks(progress))


@speaks_python
@takes_paths
def recommend(
    model: str | FactorModel,
    *,
    users: Any = None,
    top: int = 10,
    exclude_seen: bool = True,
    items: Any = None,
    events: Any = None,
    out: str | None = None,
    overwrite: bool = False,
    workers: int | Literal["auto"] = "auto",
    threads: int | None = None,
    cluster: str = "local",
    format: str | None = None,
    read: Mapping[str, Any] | None = None,
    cache: str | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    role: str | None = None,
    progress: bool = False,
) -> RecommendResult:
    """Find the best items of many users, as `dray recommend` does: Parquet in `out`, or `.table` of the result.

    `users` and `items` are ids, or the name of a file with them; all by default. `events` (data, or a table; `format`,
    `read` and `cache` are for it) are those of new users: they are answered without training again. With a cluster's
    name or http://head:8265 as `cluster` a job there makes the lists: both sides must see the locations.

    >>> dray.recommend("runs/...", top=10, out="lists/")
    >>> dray.recommend("runs/...", users=["ann", "bob"]).table
    """
    command = Recommend(
        model=model,
        users=users,
        top=top,
        exclude_seen=exclude_seen,
        items=items,
        events=events,
        out=out,
        overwrite=overwrite,
        workers=workers,
        threads=threads,
        cluster=cluster,
        format=format,
        read=read,
        cache=cache,
        storage=StorageOptions(endpoint, region, profile, role),
    )
    return run(command, _sinks(progress))


@speaks_python
@takes_paths
def ingest(
    data: Any,
    out: str,
    *,
    columns: Sequence[str] = (),
    filter: str | None = None,
    transform: Callable[[Any], Any] | None = None,
    dedup: Sequence[str] | Literal["all"] | None = None,
    sort: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    test: float | None = None,
    test_from: str | None = None,
    split_by: str | Sequence[str] = (),
    seed: int = 0,
    max_rejects: str = "1%",
    overwrite: bool = False,
    where: Where = "auto",
    workers: int | Literal["auto"] = "auto",
    cluster: str | None = None,
    format: str | None = None,
    read: Mapping[str, Any] | None = None,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    role: str | None = None,
    progress: bool = False,
) -> IngestResult:
    """Write the rows of `data` to `out` as Parquet that trains well, as `dray data ingest` does.

    `transform` gets a record batch and returns a table; it runs before the filter. A call that was ended before its
    time goes on when it is made again. With a cluster's name or http://head:8265 as `cluster` a job there does it: both
    sides must see the locations, and `transform` is a function of a module, whose directory goes along.
    """
    from dray.ingesting.limits import parse_limit
    from dray.ingesting.recipe import Recipe, make_split
    from dray.jobs.commands.ingesting import Ingest

    recipe = Recipe(
        columns=tuple(columns),
        filter=filter,
        dedup=None if dedup is None else () if dedup == "all" else tuple(dedup),
        sort=tuple(sort),
        partition_by=tuple(partition_by),
        split=make_split(test, (split_by,) if isinstance(split_by, str) else tuple(split_by), test_from, seed),
        max_rejects=parse_limit(max_rejects),
    )
    command = Ingest(
        data=data,
        out=out,
        recipe=recipe,
        function=transform,
        overwrite=overwrite,
        where=where,
        workers=workers,
        word=cluster,
        read={"format": format, **(read or {})},
        storage=StorageOptions(endpoint, region, profile, role),
    )
    return run(command, _sinks(progress))


@speaks_python
@takes_paths
def load(
    run: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    role: str | None = None,
) -> Model | FactorModel:
    """Return the model of a run directory or of what it keeps as its model.

    Of xgboost a `Model`, whose `.booster` is the native one; of factorization a `FactorModel`:

    >>> dray.load("runs/...").recommend("ann", 10).items
    """
    storage = StorageOptions(endpoint, region, profile, role)
    model: Model | FactorModel = load_model(Names(storage).finished(run), storage)
    return model


def _sinks(progress: bool) -> list[Sink]:
    if not progress:
        return []
    from dray.events.sinks.terminal import terminal

    return [terminal(sys.stderr, live=sys.stderr.isatty(), speak=in_arguments)]


def _told(result: RunResult) -> RunResult:
    """Return a result whose warnings say in arguments what to do."""
    return replace(result, warnings=tuple(map(in_arguments, result.warnings)))
