"""The run file: what `dray train` is asked to do, as one frozen object.

The command line, `run.yaml` and the Python API all end here, so that each says the same thing the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from dray.config.private import texts_in
from dray.config.yaml_file import read_yaml
from dray.masking import holds_password


def as_list(value: Any) -> Any:
    if value is None:
        return []
    return value if isinstance(value, list | tuple) else [value]


def as_json(value: Any) -> Any:
    """Return what run.json gives back: a resumed run must be asked for the same as the first one."""
    if hasattr(value, "tolist"):  # numpy
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must hold finite numbers, not {value}")
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _as_range(value: Any) -> Any:
    found = re.fullmatch(r"(\d+)-(\d+)", value.strip()) if isinstance(value, str) else None
    return {"min": int(found[1]), "max": int(found[2])} if found else value


def _shape(value: Any) -> str:
    if isinstance(value, Mapping | WorkerRange):
        return "range"
    return "auto" if value == "auto" else "number"


Locations = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Options = Annotated[dict[str, Any], BeforeValidator(as_json)]
Column = Annotated[str, Field(title="COLUMN")]
"""A column that a model needs; the title is what its flag shows."""
Level = Literal["stop", "restart", "shrink", "elastic"]


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
    """One training run: the keys that every model has. Each learner has a class with its own (`Learner.Config`).

    A class of a learner says by the types of its fields what a key may be, and by validators which keys go together:
    they raise ValueError("what: fix").
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    FLAGS: ClassVar[Mapping[str, str]] = {"heartbeat_s": "--heartbeat", "wait_s": "--wait", "params": "--param"}
    """Flags that are not named as their keys are."""
    HOLDS_OUT: ClassVar[tuple[str, ...]] = ("eval", "eval_fraction")
    """Keys that say what to evaluate on: they exclude each other."""

    data: Locations
    """What to train on: files, directories, globs, local or s3://; a Delta Lake table; a database. All but Parquet is
    copied into the cache as Parquet first."""

    model: str
    """The learner, by its name in the registry; each learner's class fixes it."""

    rounds: int = Field(default=100, ge=1)
    """Rounds to train; of some models epochs, with another default."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the learner, and of the split unless split_seed is given."""

    split_seed: int = Field(default_factory=lambda values: values.get("seed", 0), ge=0, lt=2**31)
    """Seed of the split: which rows eval_fraction sets aside. Default: seed. Runs with different seeds and the same
    split_seed are evaluated on the same rows."""

    params: Options = Field(default_factory=dict)
    """Settings of the learner, by its own names."""

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

    early_stop: int | None = Field(default=None, ge=1)
    """Stop when the metric that decides has not improved for this many rounds; keep the best round."""

    continue_from: str | None = None
    """A finished run to go on from, with its model and what that was made of."""

    workers: Workers = "auto"
    """0 trains in this process; N on N Ray workers; {min: 2, max: 8} on as many as there is room for; auto decides."""

    threads: int | None = Field(default=None, ge=1)
    """Threads of each worker. Default: the CPUs there are, shared by the workers of a machine."""

    cluster: str = "local"
    """local (embedded), auto (the one of this machine), host:port, spark; or elsewhere, as a job: http://head:8265, or
    the name of a cluster that dray started."""

    on_failure: Level = "elastic"
    """When a worker is lost. stop: end, to be resumed. restart: all workers anew, from the last checkpoint. shrink: go
    on with the rest. elastic: replace it, go on with the rest if there is no replacement, take in later workers."""

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

    overwrite: bool = False
    """Replace the run that is in `out`, once the new one is finished. Anything but a run of dray is refused."""

    storage: StorageConfig = StorageConfig()
    """How to reach an object store."""

    kubernetes: Options = Field(default_factory=dict)
    """For `dray job submit --on kubernetes` (docs/guides/kubernetes.md); other clusters do not need it."""

    @classmethod
    def flag(cls, key: str) -> str:
        return cls.FLAGS.get(key, f"--{key.replace('_', '-')}")

    @classmethod
    def named(cls, key: str) -> str:
        """Return a key as a run file and as the command line has it."""
        return f"{key} ({cls.flag(key)})"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.data:
            raise ValueError("data is empty: name a file, a directory or a glob")
        check_no_password(self)
        self._check_evaluation()
        return self

    def _check_evaluation(self) -> None:
        """Refuse two kinds of evaluation data, and to stop early without any."""
        given = [self.named(key) for key in self.HOLDS_OUT if getattr(self, key) not in (None, ())]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: give one of them")
        if self.early_stop is not None and not given:
            raise ValueError(
                f"{self.named('early_stop')} needs an evaluation set: add {self.named('eval_fraction')}, 0.2 say, "
                f"or {self.named('eval')}"
            )


def check_no_password(config: RunConfig) -> None:
    """Refuse a password anywhere: the configuration is written into the run directory, and goes along with jobs."""
    for key, value in config.model_dump().items():
        if any(holds_password(text) for text in texts_in(value)):
            raise ValueError(
                f"{key} holds a password: name a variable instead, as in postgresql://user:${{DB_PASSWORD}}@host, "
                "and write an @ that belongs to something else as %40"
            )
    if "://" in config.cluster and "@" in config.cluster:
        raise ValueError(
            "cluster holds credentials: give the plain address, as in http://head:8265; "
            "a token goes into RAY_AUTH_TOKEN"
        )
    endpoint = config.storage.endpoint or ""
    if "@" in endpoint or "?" in endpoint or "#" in endpoint:
        raise ValueError(
            "storage.endpoint holds credentials: give the plain address, as in http://minio:9000; keys come from "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from a profile"
        )


def read_run_file(path: str) -> dict[str, Any]:
    """Return the keys of a run file, unchecked: flags may still override them."""
    return read_yaml(path, "run file", "data: DIR")
