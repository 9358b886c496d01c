"""The run file: what `dray train` is asked to do, as one frozen object.

The command line, `run.yaml` and the Python API all end here, so that each says the same thing the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from dray.config.factorization import (
    EVENT_WEIGHTS,
    FLAGS,
    MISSING,
    as_weights,
    check_evaluation,
    check_model,
    default_rounds,
)
from dray.config.private import holds_password
from dray.config.yaml_file import read_yaml
from dray.errors import ConfigError, nearest


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    return value if isinstance(value, list | tuple) else [value]


def _as_json(value: Any) -> Any:
    """Return what run.json gives back: a resumed run must be asked for the same as the first one."""
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must hold finite numbers, not {value}")
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _as_params(value: Any) -> Any:
    params = _as_json(value)
    if isinstance(params, dict) and isinstance(order := params.get("monotone_constraints"), list):
        # XGBoost takes a tuple, which JSON and YAML lack, or this text, but no list.
        return params | {"monotone_constraints": f"({','.join(map(str, order))})"}
    return params


def _as_range(value: Any) -> Any:
    found = re.fullmatch(r"(\d+)-(\d+)", value.strip()) if isinstance(value, str) else None
    return {"min": int(found[1]), "max": int(found[2])} if found else value


def _shape(value: Any) -> str:
    if isinstance(value, Mapping | WorkerRange):
        return "range"
    return "auto" if value == "auto" else "number"


Locations = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Params = Annotated[dict[str, Any], BeforeValidator(_as_params)]
Options = Annotated[dict[str, Any], BeforeValidator(_as_json)]
Weights = Annotated[dict[str, float], BeforeValidator(as_weights)]
Cutoffs = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), BeforeValidator(_as_list)]
Level = Literal["stop", "restart", "shrink", "elastic"]
ModelName = Literal["xgboost", "factorization"]


class WorkerRange(BaseModel):
    """How many workers may come and go: `{min: 2, max: 8}`, or 2-8."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: int = Field(ge=1)
    """Training waits while there are fewer."""

    max: int = Field(ge=1)
    """More are not asked for."""

    @model_validator(mode="after")
    def _in_order(self) -> WorkerRange:
        if self.min > self.max:
            raise ValueError("min must not be more than max")
        return self


Workers = Annotated[
    Annotated[int, Field(ge=0), Tag("number")]
    | Annotated[Literal["auto"], Tag("auto")]
    | Annotated[WorkerRange, Tag("range")],
    Discriminator(_shape),
    BeforeValidator(_as_range),
]


class StorageConfig(BaseModel):
    """How to reach an object store. Credentials come from the environment or the profile, never from here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = None
    """Address of an S3-compatible store, such as http://minio:9000. Default: AWS."""

    region: str | None = None
    """Region of the bucket. Default: as the environment or the profile says."""

    profile: str | None = None
    """Profile in ~/.aws to take credentials from. Default: the environment, then the default profile."""

    role: str | None = None
    """ARN of a role to assume with those credentials, as arn:aws:iam::123456789012:role/name; renewed on long runs."""


class RunConfig(BaseModel):
    """One training run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Locations
    """What to train on: files, directories, globs, local or s3://; a Delta Lake table; a database. All but Parquet is
    copied into the cache as Parquet first."""

    model: ModelName = "xgboost"
    """xgboost: trees that predict a column (label). factorization: a recommender, from who had what (user, item)."""

    label: str | None = None
    """Column to predict. Needed for xgboost."""

    objective: str | None = None
    """binary, multiclass, regression, ranking, or any XGBoost objective. Default: chosen by the label."""

    group: str | None = None
    """Column that names the query of a row (ranking). Rows of one group stand together and are never split."""

    weight: str | None = None
    """Column with the weight of a row (of a group's first row in ranking)."""

    ignore: Locations = ()
    """Columns that are neither feature nor anything else."""

    user: str | None = None
    """Column with the id of the user: text or whole numbers. Needed for factorization, as is item."""

    item: str | None = None
    """Column with the id of the item."""

    rating: str | None = None
    """Column with ratings: explicit feedback. The last rating of a user and item counts."""

    event: str | None = None
    """Column with the type of an event: implicit feedback. Without it and rating, each row weighs 1."""

    event_weights: Weights = Field(default_factory=lambda: dict(EVENT_WEIGHTS))
    """Weight of each type of event; the weights of a user and item are summed up. What is given replaces the default:
    {view: 1, add_to_cart: 3, purchase: 5, payment_failed: -2}."""

    time: str | None = None
    """Column with the time of an event or rating: a timestamp, a date, or seconds since 1970."""

    half_life_days: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """An event that is so much older than the newest one weighs half. Default: age does not matter."""

    rounds: int = Field(default_factory=default_rounds, ge=1)
    """Boosting rounds, or epochs. Default: 100; of a recommender 20 with ratings, 15 with events."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the split and of the learner."""

    params: Params = Field(default_factory=dict)
    """Settings of the learner: XGBoost's parameters, passed through; factors, regularization, ... of a recommender."""

    eval: Locations = ()
    """What to evaluate on after every round; of the same format as data."""

    format: str | None = None
    """parquet, csv, json, arrow, delta or sql. Default: by the endings."""

    read: Options = Field(default_factory=dict)
    """How to read it: delimiter, header, version, query, ... (docs/guides/sources.md)."""

    cache: str | None = None
    """Where the Parquet copies of other formats are kept; on several machines a place that all of them see, such as
    s3://bucket/cache. Default: ~/.cache/dray."""

    eval_fraction: float | None = Field(default=None, gt=0, lt=1)
    """Share of the rows set aside for evaluation, by row position: the same rows whatever the workers."""

    eval_by: Literal["random", "time"] = "random"
    """Which share of the events eval_fraction sets aside: drawn by seed, or the last by time. Recommenders only."""

    eval_last: int | None = Field(default=None, ge=1)
    """Set aside the last so many events of each user, by time. Recommenders only."""

    eval_at: Cutoffs = (10,)
    """Lengths of the lists that recall, NDCG and MAP are taken of, the first for early stopping. Recommenders only."""

    early_stop: int | None = Field(default=None, ge=1)
    """Stop when the last evaluation metric (of recommenders: the RMSE, of events the NDCG) has not improved for this
    many rounds; keep the best round."""

    continue_from: str | None = None
    """A finished run to go on from: its trees, its cuts, its categories; its factors."""

    workers: Workers = "auto"
    """0 trains in this process; N on N Ray workers; {min: 2, max: 8} on as many as there is room for; auto decides."""

    threads: int | None = Field(default=None, ge=1)
    """Threads of each worker. Default: the CPUs there are, shared by the workers of a machine."""

    cluster: str = "local"
    """local (embedded), auto (the one of this machine), host:port, spark; or elsewhere, as a job: http://head:8265, or
    the name of a cluster that dray started."""

    on_failure: Level = "elastic"
    """When a worker is lost. stop: end, to be resumed. restart: all workers anew, from the last checkpoint. shrink: go
    on with the others. elastic: replace it, go on with the others if nobody comes, take in whoever comes later."""

    max_failures: int = Field(default=100, ge=0)
    """Workers that may be lost in a run before it stops."""

    max_failures_in_round: int = Field(default=5, ge=0)
    """Interruptions of one and the same round before the run stops: that round is probably the cause."""

    heartbeat_s: float = Field(default=8.0, ge=1, allow_inf_nan=False)
    """A worker that has not answered for so many seconds is taken for lost."""

    wait_s: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    """Seconds to wait for workers while there are fewer than the minimum."""

    out: str | None = None
    """Run directory, local or s3://. Default: runs/<id>."""

    storage: StorageConfig = StorageConfig()
    """How to reach an object store."""

    kubernetes: Options = Field(default_factory=dict)
    """For `dray job submit --on kubernetes` (docs/guides/kubernetes.md); other clusters do not need it."""

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if not self.data:
            raise ValueError("data is empty: name a file, a directory or a glob")
        if any(holds_password(location) for location in (*self.data, *self.eval)):
            # What stands here is written into the run directory.
            raise ValueError(
                "data holds a password: name a variable instead, as in postgresql://user:${DB_PASSWORD}@host"
            )
        check_evaluation(self)
        check_model(self)
        return self

    @property
    def kind(self) -> Literal["explicit", "implicit"]:
        """What a recommender learns from: ratings or events."""
        return "implicit" if self.rating is None else "explicit"


def make_config(values: Mapping[str, Any], *, origin: str = "the command line") -> RunConfig:
    """Return the checked configuration, or a ConfigError that names the key and the fix."""
    try:
        return RunConfig.model_validate(dict(values))
    except ValidationError as error:
        raise _explain(error, origin) from None


def read_run_file(path: str) -> dict[str, Any]:
    """Return the keys of a run file, unchecked: flags may still override them."""
    return read_yaml(path, "run file", "data: DIR")


def _explain(error: ValidationError, origin: str) -> ConfigError:
    problems = error.errors()
    # A misspelt key leaves the right one missing: tell the first.
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    location = [first["ctx"]["key"]] if first["type"] == MISSING else _keys(first["loc"])
    place = ".".join(location)
    if first["type"] == "extra_forbidden":
        model = _MODELS.get(location[0], RunConfig) if len(location) > 1 else RunConfig
        hint = nearest(location[-1], model.model_fields)
        known = ", ".join(model.model_fields)
        return ConfigError(f'Unknown key "{place}" in {origin}.{hint}', fix=f"Known keys: {known}.")
    if first["type"] in ("missing", MISSING):
        return ConfigError(f'"{place}" is missing in {origin}.', fix=_HOW_TO_GIVE.get(place, f"Add {place}: ..."))
    message = first["msg"].removeprefix("Value error, ")
    if not place:
        what, _, fix = message.partition(": ")
        return ConfigError(f"{_sentence(what)}.", fix=f"{_sentence(fix)}." if fix else "")
    if place == "workers" and first["type"] != "value_error":
        message = "must be a number from 0 on, auto, or a range such as {min: 2, max: 8}"
    flag = f" ({FLAGS[place]})" if place in FLAGS else ""
    return ConfigError(f'"{place}" in {origin} is {first["input"]!r}: {message}.', fix=f"Change {place}{flag}.")


def _sentence(words: str) -> str:
    """Return words with a capital, unless they begin with a key."""
    first = words.partition(" ")[0].rstrip(",")
    return words if first in RunConfig.model_fields else f"{words[:1].upper()}{words[1:]}"


def _keys(location: tuple[int | str, ...]) -> list[str]:
    """Return a place as it is written: pydantic puts the alternative that it took behind "workers"."""
    keys = [str(key) for key in location]
    return keys[:1] + keys[2:] if keys[:1] == ["workers"] else keys


_MODELS: dict[str, type[BaseModel]] = {"storage": StorageConfig, "workers": WorkerRange}
_HOW_TO_GIVE = {
    "data": "Give it as the first argument, or as data: DIR in the run file.",
    "label": "Add --label COLUMN, or label: COLUMN in the run file.",
    "user": "Add --user COLUMN, or user: COLUMN in the run file.",
    "item": "Add --item COLUMN, or item: COLUMN in the run file.",
    "workers.min": "Give both ends: workers: {min: 2, max: 8}.",
    "workers.max": "Give both ends: workers: {min: 2, max: 8}.",
}
