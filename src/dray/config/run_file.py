"""The run file: what `dray train` is asked to do, as one frozen object.

The command line, `run.yaml` and the Python API all end here, so that each says the same thing the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dray.errors import ConfigError, nearest


def _as_list(value: Any) -> Any:
    if value is None:
        return []
    return value if isinstance(value, list | tuple) else [value]


Locations = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class StorageConfig(BaseModel):
    """How to reach an object store. Credentials come from the environment or the profile, never from here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = None
    """Address of an S3-compatible store, such as http://minio:9000. Default: AWS."""

    region: str | None = None
    """Region of the bucket. Default: as the environment or the profile says."""

    profile: str | None = None
    """Profile in ~/.aws to take credentials from. Default: the environment, then the default profile."""


class RunConfig(BaseModel):
    """One training run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: Locations
    """Parquet to train on: a file, a directory, a glob, or a list of those; local or s3://."""

    label: str
    """Column to predict."""

    objective: str | None = None
    """binary, multiclass, regression, ranking, or any XGBoost objective. Default: chosen by the label."""

    group: str | None = None
    """Column that names the query of a row (ranking). Rows of one group stand together and are never split."""

    weight: str | None = None
    """Column with the weight of a row (of a group's first row in ranking)."""

    ignore: Locations = ()
    """Columns that are neither feature nor anything else."""

    rounds: int = Field(default=100, ge=1)
    """Boosting rounds."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the split and of the learner."""

    params: dict[str, Any] = Field(default_factory=dict)
    """XGBoost parameters, passed through."""

    eval: Locations = ()
    """Parquet to evaluate on after every round."""

    eval_fraction: float | None = Field(default=None, gt=0, lt=1)
    """Share of the rows set aside for evaluation, by row position: the same rows whatever the workers."""

    early_stop: int | None = Field(default=None, ge=1)
    """Stop when the last evaluation metric has not improved for this many rounds; keep the best round."""

    continue_from: str | None = None
    """A finished run to go on from: its trees, its cuts, its categories."""

    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """0 trains in this process; N on N Ray workers; auto decides."""

    threads: int | None = Field(default=None, ge=1)
    """Threads of each worker. Default: the CPUs there are, shared by the workers of a machine."""

    cluster: str = "local"
    """local (embedded), auto (the one of this machine), or an address host:port."""

    out: str | None = None
    """Run directory, local or s3://. Default: runs/<id>."""

    storage: StorageConfig = StorageConfig()
    """How to reach an object store."""

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if not self.data:
            raise ValueError("data is empty: name a file, a directory or a glob")
        if self.eval and self.eval_fraction is not None:
            raise ValueError("eval and eval_fraction exclude each other: give one of them")
        if self.early_stop is not None and not self.eval and self.eval_fraction is None:
            raise ValueError("early_stop needs an evaluation set: add eval_fraction (0.2, say) or eval")
        roles = [column for column in (self.label, self.group, self.weight) if column is not None]
        if len(set(roles)) < len(roles):
            raise ValueError("label, group and weight must be three different columns: name another")
        return self


def make_config(values: Mapping[str, Any], *, origin: str = "the command line") -> RunConfig:
    """Return the checked configuration, or a ConfigError that names the key and the fix."""
    try:
        return RunConfig.model_validate(dict(values))
    except ValidationError as error:
        raise _explain(error, origin) from None


def read_run_file(path: str) -> dict[str, Any]:
    """Return the keys of a run file, unchecked: flags may still override them."""
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read the run file {path}: {error.strerror}.", fix="Check the path.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The run file {path} is not UTF-8 text.", fix="Save it as UTF-8.") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"The run file {path}{where} is not YAML: {problem}.", fix="Mend that line.") from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError(
            f"The run file {path} does not hold keys and values.", fix="Start it with, for instance, 'data: DIR'."
        )
    return document


def _explain(error: ValidationError, origin: str) -> ConfigError:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    if place.startswith("workers."):  # pydantic goes on with the alternative that it tried
        place = "workers"
    if first["type"] == "extra_forbidden":
        model = StorageConfig if first["loc"][0] == "storage" else RunConfig
        name = str(first["loc"][-1])
        hint = nearest(name, model.model_fields)
        known = ", ".join(model.model_fields)
        return ConfigError(f'Unknown key "{place}" in {origin}.{hint}', fix=f"Known keys: {known}.")
    if first["type"] == "missing":
        return ConfigError(f'"{place}" is missing in {origin}.', fix=_HOW_TO_GIVE.get(place, f"Add {place}: ..."))
    message = first["msg"].removeprefix("Value error, ")
    if not place:
        what, _, fix = message.partition(": ")
        return ConfigError(f"{what[0].upper()}{what[1:]}.", fix=f"{fix[0].upper()}{fix[1:]}." if fix else "")
    if place == "workers":
        message = "must be a number from 0 on, or auto"
    return ConfigError(f'"{place}" in {origin} is {first["input"]!r}: {message}.', fix=f"Change {place}.")


_HOW_TO_GIVE = {
    "data": "Give it as the first argument, or as data: DIR in the run file.",
    "label": "Add --label COLUMN, or label: COLUMN in the run file.",
}
